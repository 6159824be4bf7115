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
