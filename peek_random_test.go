package retryhttp_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// randomAnswer sends random pieces of events, with or without a length, and may break off.
func randomAnswer(seed uint64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		dice := rand.New(rand.NewPCG(seed, 0))
		media := []string{"text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream", "application/json"}
		w.Header().Set("Content-Type", media[dice.IntN(len(media))])
		words := []string{"data: 1", "\n", "\n\n", "\r\n\r\n", "\r", "{}", "\x00\x00\x00\x06ab", "\x00\x00\x00\x04", pingEvent}
		pieces := make([]string, dice.IntN(8))
		length := 0
		for i := range pieces {
			for range 1 + dice.IntN(6) {
				pieces[i] += words[dice.IntN(len(words))]
			}
			length += len(pieces[i])
		}
		if dice.IntN(3) == 0 {
			w.Header().Set("Content-Length", fmt.Sprint(length))
		}
		if dice.IntN(8) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = http.NewResponseController(w).Flush()
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			if dice.IntN(2) == 0 {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Duration(dice.IntN(2)) * 100 * ms)
			}
			if dice.IntN(12) == 0 {
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// Whatever is awaited, and whatever Classify answers, the caller reads what the server has sent.
func TestCallerReadsTheSameHoweverMuchIsAwaited(t *testing.T) {
	for seed := range uint64(150) {
		dice := rand.New(rand.NewPCG(seed, 1))
		p := retryhttp.Policy{
			MaxAttempts: 1,
			PeekBytes:   dice.Int64N(3) * dice.Int64N(100),
			BufferBytes: dice.Int64N(2) * dice.Int64N(100),
			Classify:    func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Class(dice.IntN(4)) },
		}
		if dice.IntN(2) == 0 {
			p.AttemptTimeout, p.StallTimeout = time.Hour, time.Hour
		}
		for _, http2 := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.ServeProtocol(randomAnswer(seed), http2)
				defer stop()
				bare, err := base.RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				want, end := io.ReadAll(bare.Body)
				require.NoError(t, bare.Body.Close())
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err, "seed %d", seed)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, string(want), string(got), "seed %d", seed)
				if whole := int64(len(want)) == bare.ContentLength; !whole { // a break after the last byte may go unseen
					assert.Equal(t, end == nil, err == nil, "seed %d: %v, %v", seed, end, err)
				}
				assert.Equal(t, bare.StatusCode, resp.StatusCode)
			})
		}
	}
}
