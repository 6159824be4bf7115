package http3_test

import (
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// deaths are the ways in which a server dies, and how long its client then waits.
var deaths = []struct {
	name string
	idle time.Duration
	die  func(*stage)
}{
	{"closes the connection", fault.Ample, func(s *stage) {
		_ = s.newest().conn.Load().CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
	}},
	{"is replaced without a word", time.Second, (*stage).replace},
}

func TestServerThatDiesInTheMiddleOfARequest(t *testing.T) {
	leavesNothing(t)
	var wg sync.WaitGroup
	for _, d := range deaths {
		for _, c := range fault.Cases([]*fault.Fault{{Name: d.name}}) {
			if c.Limit != fault.Unlimited || c.Kind.Spendable {
				continue
			}
			wg.Go(func() {
				t.Run(c.String(), func(t *testing.T) {
					s := newStage(t, d.idle)
					defer s.close()
					s.handler.Order("request", &fault.Fault{Answer: func(x *fault.Exchange) {
						x.Glance()
						d.die(s)
						x.Hang()
					}})
					w := s.send(retryhttp.Policy{RetryUnprocessed: true}, c.Method, c.Kind)
					assert.Equal(t, c.Method.Repeatable, w.Succeeded(), "%v", w)
					assert.NotContains(t, w.classes, retryhttp.Unprocessed)
				})
			})
		}
	}
	wg.Wait()
}
