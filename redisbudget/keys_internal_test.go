package redisbudget

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// use uses the account of a key, as a Refund does.
func use(b *Bucket, key string) {
	for !b.account(key).update(func(*account, time.Time) {}) {
	}
}

// full is a Bucket that has no room for further keys. Its first key was used early.
func full() *Bucket {
	b := new(Bucket)
	use(b, "early")
	time.Sleep(defaultInterval / 2)
	for i := range maxAccounts - 1 {
		use(b, strconv.Itoa(i))
	}
	return b
}

func (b *Bucket) knows(key string) bool {
	_, ok := b.find(key)
	return ok
}

func TestDroppedKeyMayBeUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := full()
		time.Sleep(b.settings.retire)
		use(b, "new")
		require.False(t, b.knows("early"))
		use(b, "early")
		assert.True(t, b.knows("early"))
		assert.Equal(t, 2, b.count)
	})
}

// Looking takes long with so many keys. Without the limit, each further key would look.
func TestRoomIsLookedForOncePerIntervalEvenIfSomeWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := full()
		time.Sleep(b.settings.retire - defaultInterval/2)
		use(b, "new")
		require.True(t, b.knows("new"), "in the place of the early one")
		time.Sleep(defaultInterval / 2)
		use(b, "second")
		assert.False(t, b.knows("second"), "all others could be dropped now")
		time.Sleep(defaultInterval / 2)
		use(b, "second")
		assert.True(t, b.knows("second"))
	})
}

// While there is no room, a further key takes no lock, and does not see room that there may be. A known
// key has its account.
func TestNothingIsLookedForUntilTheIntervalIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := full()
		require.Same(t, b.crowd, b.account("new"))
		b.count = 0
		time.Sleep(defaultInterval - 1)
		assert.Same(t, b.crowd, b.account("new"))
		assert.NotSame(t, b.crowd, b.account("early"))
		time.Sleep(time.Nanosecond)
		assert.NotSame(t, b.crowd, b.account("new"))
	})
}

func TestKeyThatIsNotKnownHasTheTokensThatItWouldHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := full()
		require.True(t, b.crowd.update(func(a *account, now time.Time) { a.withdraw(now, terms{price: 1}) }))
		assert.Zero(t, b.Status(nil).Tokens, "of the account of all for which there is no room")
		b.count--
		assert.Equal(t, 1.0, b.Status(nil).Tokens, "of its own")
	})
}

// The second goroutine that uses a new key finds the account of the first.
func TestTwoFirstUsesOfAKeyShareAnAccount(t *testing.T) {
	var b Bucket
	for i := range 4000 {
		key := strconv.Itoa(i)
		var come atomic.Int64
		var own [2]*account
		var found sync.WaitGroup
		for j := range own {
			found.Go(func() {
				come.Add(1)
				for come.Load() < int64(len(own)) {
					runtime.Gosched()
				}
				own[j] = b.account(key)
			})
		}
		found.Wait()
		require.Same(t, own[0], own[1])
	}
}
