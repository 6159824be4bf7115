package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAsNewIsABucketWithoutAPast(t *testing.T) {
	settings := usual()
	settings.MinPerSecond = 2
	now := time.Now()
	for name, change := range map[string]func(*bucket){
		"a token is out":            func(b *bucket) { b.tokens-- },
		"its server is poor":        func(b *bucket) { b.share.poor = true },
		"it has room for more":      func(b *bucket) { b.perSecond = 3 },
		"MinPerSecond has paid one": func(b *bucket) { b.floor.ReserveN(now, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket("a", settings, now)
			assert.True(t, b.asNew(now))
			change(b)
			assert.False(t, b.asNew(now))
		})
	}
	assert.True(t, newBucket("a", usual(), now).asNew(now), "without MinPerSecond")
}

// A fold that has waited for the lock has an old time.
func TestFoldNeverGoesBackInTime(t *testing.T) {
	now := time.Now()
	b := newBucket("a", usual(), now)
	b.fold(now.Add(-time.Second))
	assert.Equal(t, now, b.foldedAt)
}

// An heir, which was not drawn on, has what it has inherited and earned. A bucket that has more keeps it.
func TestRestFillsABucketToItsBurstAndNoMore(t *testing.T) {
	now, settings := time.Now(), usual()
	settings.HealthyRatio = 0.5
	old := newBucket("old", settings, now)
	old.tokens, old.drawn = 0, now
	heir := newBucket("heir", settings, now)
	heir.inherit(old, now)
	full := newBucket("full", settings, now)
	full.tokens, full.perSecond, full.drawn = 20, 1000, now
	for b, want := range map[*bucket]float64{old: settings.Burst, heir: 0.5, full: 20.5} {
		b.deposits.Add(1)
		b.fold(now)
		assert.NotEqual(t, settings.Burst, b.balance(now.Add(b.settings.IdleAfter)), "%s is in use until then", b.key)
		for range 2 { // a look at the balance changes nothing
			assert.Equal(t, want, b.balance(now.Add(b.settings.IdleAfter+1)), b.key)
		}
		b.endRest(now.Add(b.settings.IdleAfter + 1))
		assert.Equal(t, want, b.tokens, b.key)
	}
}
