package redisbudget_test

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

const maxKeys = 4096

// fill uses n keys, of a server that has tokens for each.
func fill(t *testing.T, b *redisbudget.Bucket, n int) {
	t.Helper()
	for i := range n {
		b.Deposit(get(t, fmt.Sprintf("%d.example", i)))
		synctest.Wait() // or calls would wait for a connection, for which go-redis has timers of all bubbles
	}
}

func TestEachHostHasABalanceOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		fill(t, b, 2)
		assert.Equal(t, 20, granted(b, get(t, "0.example"), 30))
		assert.Equal(t, 20, granted(b, get(t, "1.example"), 30))
	})
}

func TestKeyAndPrefixNameTheBalance(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{
			Client: e.client(t), Prefix: "shop:retries",
			Key: func(req *http.Request) string { return req.Method },
		}
		b.Deposit(get(t, host))
		synctest.Wait()
		assert.True(t, e.Exists("shop:retries:{GET}"))
		b.Key = nil
		b.Deposit(&http.Request{})
		synctest.Wait()
		assert.True(t, e.Exists("shop:retries:{}"))
	})
}

// A gauge may be asked about no request, and a base may fail for a request without a URL. A Key need expect neither.
func TestNoRequestHasTheEmptyKey(t *testing.T) {
	for name, key := range map[string]func(*http.Request) string{
		"by host": nil,
		"by path": func(r *http.Request) string { return r.URL.Path },
	} {
		t.Run(name, func(t *testing.T) {
			b := &redisbudget.Bucket{Key: key}
			assert.Equal(t, retryhttp.BucketStatus{Tokens: 1, Fleet: true}, b.Status(nil))
			assert.True(t, withdraw(b, &http.Request{}))
		})
	}
}

// A Cluster hashes what stands between the first brace and the next one that closes.
func TestPrefixDoesNotChangeTheHashTag(t *testing.T) {
	for prefix, stored := range map[string]string{
		"{shop}":  "%7Bshop}",
		"a{b":     "a%7Bb",
		"}{":      "}%7B",
		"a}":      "a}",
		"%7Bshop": "%7Bshop",
	} {
		t.Run(prefix, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b := &redisbudget.Bucket{Client: e.client(t), Prefix: prefix}
				b.Deposit(get(t, host))
				require.NoError(t, b.Close())
				key := stored + ":{" + host + "}"
				assert.True(t, e.Exists(key))
				_, tag, _ := strings.Cut(key, "{")
				assert.Equal(t, host+"}", tag)
			})
		})
	}
}

func TestAnyTextIsAKey(t *testing.T) {
	keys := []string{"", " ", "a\r\nb", "\x00", "\xff\xfe", "{", "}", "}{", "a}b{c", strings.Repeat("a", 1<<20)}
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{
			Client: e.client(t),
			Key:    func(req *http.Request) string { return req.Method },
		}
		for _, key := range keys {
			req := &http.Request{Method: key, URL: new(url.URL)}
			require.True(t, withdraw(b, req))
			synctest.Wait()
			assert.True(t, e.Exists("retryhttp:{"+key+"}"), "%.10q", key)
			assert.Equal(t, 19.0, b.Status(req).Tokens, "%.10q", key)
		}
	})
}

func TestKeysBeyondTheMostShareOneOwnBucket(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		e.full.Store(true)
		fill(t, b, maxKeys)
		require.Equal(t, 20.0, b.Status(get(t, "4095.example")).Tokens)
		calls := e.callTimes()
		assert.Equal(t, 1.0, b.Status(get(t, "one.example")).Tokens)
		assert.Equal(t, 1, granted(b, get(t, "one.example"), 2))
		assert.Zero(t, granted(b, get(t, "two.example"), 2))
		deposit(b, get(t, "two.example"), 10)
		assert.Equal(t, 1, granted(b, get(t, "three.example"), 2))
		b.Refund(get(t, "one.example"), 1)
		assert.Equal(t, 1, granted(b, get(t, "two.example"), 2))
		synctest.Wait()
		assert.Empty(t, calls(), "nothing is reported")
	})
}

func TestKeyThatIsUnusedForAWindowMakesRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		e.full.Store(true)
		fill(t, b, maxKeys)
		calls := e.record()
		added := func() bool {
			b.Deposit(get(t, "new.example"))
			return slices.ContainsFunc(calls(), func(c call) bool { return c.key == "retryhttp:{new.example}" })
		}
		require.False(t, added())
		time.Sleep(window - interval/2)
		require.False(t, added(), "all were used too recently")
		time.Sleep(interval / 2)
		require.False(t, added(), "room was looked for in this Interval")
		time.Sleep(interval / 2)
		assert.True(t, added())
	})
}

func TestDroppedKeyIsNotAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		e.full.Store(true)
		fill(t, b, maxKeys)
		time.Sleep(window)
		b.Deposit(get(t, "new.example")) // drops all
		synctest.Wait()
		calls := e.record()
		time.Sleep(time.Hour)
		assert.InDelta(t, 8, len(calls()), 1, "of the new key alone")
		assert.Equal(t, 1.0, b.Status(get(t, "0.example")).Tokens)
	})
}

func TestKeyWithSomethingToReportIsNotDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		e.full.Store(true)
		e.onCall(func(c *server.Peer, args []string) bool {
			if args[2] != storedKey {
				return false
			}
			c.WriteError("ERR away")
			return true
		})
		deposit(b, get(t, host), 1000)
		fill(t, b, maxKeys-1)
		time.Sleep(window)
		b.Deposit(get(t, "new.example")) // drops all others
		calls := e.record()
		time.Sleep(2 * interval)
		i := slices.IndexFunc(calls(), func(c call) bool { return c.key == storedKey })
		require.NotEqual(t, -1, i)
		assert.Greater(t, calls()[i].deposits, 1000*math.Exp(-1.2), "faded for a Window and two Intervals")
	})
}

func TestTokensAddsNoKey(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		calls := e.callTimes()
		for i := range maxKeys + 1 {
			require.Equal(t, 1.0, b.Status(get(t, fmt.Sprintf("%d.example", i))).Tokens)
		}
		assert.Empty(t, calls())
		b.Deposit(get(t, host))
		synctest.Wait()
		assert.Equal(t, 20.0, b.Status(get(t, host)).Tokens)
	})
}

func TestWithoutClientNothingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, req := new(redisbudget.Bucket), get(t, host)
		assert.Equal(t, 1, granted(b, req, 5))
		deposit(b, req, 15)
		assert.Equal(t, 1, granted(b, req, 5), "what was earned")
		assert.Equal(t, 1, granted(b, get(t, "other.example"), 5))
		fill(t, b, maxKeys)
		time.Sleep(window)
		fill(t, b, maxKeys+1)
		assert.Equal(t, 1.0, b.Status(get(t, "4096.example")).Tokens)
		assert.NoError(t, b.Close())
	})
}
