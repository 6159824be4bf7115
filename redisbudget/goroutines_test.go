package redisbudget_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// A call has a goroutine, and its dial has another. A Cluster's client also asks for the servers.
func TestBucketWhoseRedisIsUnreachableHasFewGoroutines(t *testing.T) {
	for name, addrs := range map[string][]string{
		"Client":        {"192.0.2.1:6379"},
		"ClusterClient": {"192.0.2.1:6379", "192.0.2.2:6379"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := unreachable(addrs...)
				b, reqs := &redisbudget.Bucket{Client: client}, hosts(t, 1000)
				before := goroutines()
				for range 60 {
					for _, req := range reqs {
						b.Deposit(req)
					}
					time.Sleep(interval)
					synctest.Wait()
					assert.LessOrEqual(t, goroutines()-before, 2*(atOnce+1))
				}
				_ = b.Close()
				require.NoError(t, client.Close())
				time.Sleep(5 * time.Minute)
			})
		})
	}
}

// goroutines returns how many goroutines are in a bubble. A client of an earlier test may still dial in real time, and
// runtime.NumGoroutine counts its goroutines, too. A dump says which are in a bubble.
func goroutines() int {
	dump := make([]byte, 1<<20)
	dump = dump[:runtime.Stack(dump, true)]
	return bytes.Count(dump, []byte(", synctest bubble "))
}
