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
		assert.Same(t, w.tenant.waiters.first(), w, "the oldest asks")
		how := w.asks
		w.asks = unheld
		h.passAsk(how)
	}
	return asked
}

// A refused retry passes its turn to another bucket, three times at most, and each bucket asks once.
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
			{"a", "b", "c", "d"}, {"a", "e", "h", "b"}, {"a", "c", "d", "e"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				h := fail(&w)
				all := linesUp(t, h, tt.line...)
				for _, want := range tt.turns {
					h.locked(func(time.Time) { h.letAsk(h.oldest(), asProbe) })
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
		h.locked(func(time.Time) { h.letAsk(all[0], bySuccess) })
		h.giveUp(all[1])
		h.giveUp(all[3])
		all = append(all, linesUp(t, h, "b")...)
		assert.Equal(t, []any{"a", "c", "e"}, h.refuseAll(t, all))
		h.locked(func(time.Time) { h.letAsk(all[0], bySuccess) })
		assert.Equal(t, []any{"a", "b", "c", "e"}, h.refuseAll(t, all))
		h.locked(func(time.Time) { h.letAsk(all[0], bySuccess) })
		for _, left := range []int{0, 2, 4, 5} {
			h.giveUp(all[left])
		}
		h.passAsk(bySuccess) // to nobody
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
		for range tenants / mostPasses {
			w.End(host, Pass{}, Up, true, hold)
			asked := h.refuseAll(t, all)
			assert.Len(t, asked, 1+mostPasses)
			for _, bucket := range asked[1:] {
				turns[bucket]++
			}
		}
		assert.Len(t, turns, tenants-1, "all but the oldest retry's")
	})
}
