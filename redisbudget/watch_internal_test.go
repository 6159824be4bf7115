package redisbudget

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// The timer of a call may fire when the call has ended and the next one has just begun.
func TestOnlyACallThatIsAnIntervalOldIsOverdue(t *testing.T) {
	b := &Bucket{Client: (*redis.Client)(nil), Interval: time.Hour}
	a := b.account("shop.example")
	overdue := func() bool { _, overdue := a.overdue(); return overdue }
	assert.False(t, overdue())
	a.begin(time.Now())
	assert.False(t, overdue())
	a.began = a.began.Add(-time.Hour)
	assert.True(t, overdue())
	a.silence()
	assert.False(t, overdue(), "after Close")
}
