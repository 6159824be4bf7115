package integrations_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

func TestBreakerDoesNotCountTheAttemptThatHasLost(t *testing.T) {
	for name, stalls := range map[string]int{"the first attempt wins": 2, "the hedge wins": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent server
				_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if sent.record(r, nil) == stalls {
						<-r.Context().Done()
						return
					}
					time.Sleep(100 * time.Millisecond)
					answerOK(w, r)
				}))
				defer stop()
				b := trippingAfter(1, time.Hour)
				b.base = base
				policy := retryhttp.Policy{Hedge: &retryhttp.Hedge{After: 50 * time.Millisecond}}
				resp, err := through(b, policy).Get("http://host.example/")
				require.NoError(t, err)
				assert.Equal(t, "ok", bodyOf(t, resp))
				assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Hedges)
				time.Sleep(time.Second) // which a hedge that has lost does not take
				assert.Zero(t, b.circuit.Counts().TotalFailures)
				assert.Equal(t, gobreaker.StateClosed, b.circuit.State())
			})
		})
	}
}
