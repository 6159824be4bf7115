package outage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// asking returns the retry that may ask. There is one at most.
func asking(t *testing.T, all []*waiter) (found *waiter) {
	for _, w := range all {
		if w.asks != unheld {
			assert.Nil(t, found, "two ask at once")
			found = w
		}
	}
	return found
}

// refuseAll refuses every ask of a turn, and returns the buckets that were asked.
func (h *health) refuseAll(t *testing.T, all []*waiter) (asked []any) {
	for w := asking(t, all); w != nil; w = asking(t, all) {
		asked = append(asked, w.tenant.bucket)
		assert.Same(t, first[waiter](&w.tenant.waiters), w, "the oldest asks")
		how := w.asks
		w.asks = unheld
		h.answer(w, how, false, true)
	}
	return asked
}

// After a refusal another bucket is asked, four at most, and each bucket once.
func TestBucketsTakeTurns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		line  []any
		turns [][]any
	}{
		{"one", []any{"a", "a"}, [][]any{{"a"}, {"a"}}},
		{"two", []any{"a", "a", "b", "b", "a"}, [][]any{{"a", "b"}, {"a", "b"}}},
		{"four", []any{"a", "b", "c", "d"}, [][]any{{"a", "b", "c", "d"}, {"a", "b", "c", "d"}}},
		{"six", []any{"a", "a", "b", "c", "c", "d", "e", "h"}, [][]any{
			{"a", "b", "c", "d"}, {"e", "h", "a", "b"}, {"c", "d", "e", "h"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				h := fail(&w)
				all := linesUp(t, h, tt.line...)
				for _, want := range tt.turns {
					h.locked(func(time.Time) { h.line.begin(); h.line.letAsk(asProbe) })
					assert.Equal(t, want, h.refuseAll(t, all))
				}
			})
		})
	}
}

// A bucket whose retries have left the line has no turn. If one joins again, others come first.
func TestBucketThatHasLeftHasNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		all := linesUp(t, h, "a", "b", "c", "d", "e")
		h.locked(func(time.Time) { h.line.begin(); h.line.letAsk(bySuccess) })
		h.answer(all[1], atTheEnd, false, true)
		h.answer(all[3], atTheEnd, false, true)
		all = append(all, linesUp(t, h, "b")...)
		assert.Equal(t, []any{"a", "c", "e"}, h.refuseAll(t, all))
		h.locked(func(time.Time) { h.line.begin(); h.line.letAsk(bySuccess) })
		assert.Equal(t, []any{"a", "b", "c", "e"}, h.refuseAll(t, all))
		h.locked(func(time.Time) { h.line.begin(); h.line.letAsk(bySuccess) })
		for _, left := range []int{0, 2, 4, 5} {
			h.answer(all[left], atTheEnd, false, true)
		}
		h.locked(func(time.Time) { h.line.letAsk(bySuccess) }) // nobody
	})
}

// Who gives up has had no turn. Callers with little time would otherwise never be served.
func TestBucketKeepsItsPlaceIfARetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		all := linesUp(t, h, "a", "b", "c", "d", "e", "a")
		h.answer(all[0], atTheEnd, false, true)
		h.locked(func(time.Time) { h.line.begin(); h.line.letAsk(bySuccess) })
		assert.Equal(t, []any{"a", "b", "c", "d"}, h.refuseAll(t, all))
	})
}

// The cost of a success does not grow with the line, and a bucket that is well again is soon found.
func TestFewAskForEachSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tenants, each = 100, 100
		var w Watch
		h := fail(&w)
		var line []any
		for i := range tenants * each {
			line = append(line, i%tenants)
		}
		all := linesUp(t, h, line...)
		w.End(host, Pass{}, Up, true, hold)
		h.behind = time.Time{} // from now on each success lets one ask
		turns := map[any]int{}
		for range tenants / mostAsks {
			w.End(host, Pass{}, Up, true, hold)
			asked := h.refuseAll(t, all)
			assert.Len(t, asked, mostAsks)
			for _, bucket := range asked {
				turns[bucket]++
			}
		}
		assert.Len(t, turns, tenants)
	})
}

// Retries that need no token leave a line in turn, too.
func TestBucketsTakeTurnsWithoutTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		all := linesUp(t, h, "a", "a", "b", "b")
		for _, next := range []int{0, 2, 1, 3} {
			assert.Same(t, all[next], h.next())
			h.locked(func(now time.Time) { h.release(h.next(), now, asProbe) })
		}
	})
}
