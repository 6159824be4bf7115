//go:build unix

package redisbudget_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

const (
	burst         = 5
	shortInterval = 100 * time.Millisecond
)

// process is a process of a fleet, whose requests a server in memory answers. Its room is
// Burst, however many requests it sends.
type process struct {
	*redisbudget.Bucket
	sender
	mended   atomic.Bool
	failed   atomic.Int64 // calls that began after mended was set
	overtook atomic.Int64 // requests that ended during one call, at most
}

func newProcess(t *testing.T, client redis.UniversalClient) *process {
	t.Helper()
	p := &process{Bucket: &redisbudget.Bucket{Client: client, Ratio: 0.1, Burst: burst, Window: -1, Interval: shortInterval}}
	p.sender = newSender(t, p.Bucket)
	client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		mended, ended := p.mended.Load(), p.ended.Load()
		err := next(ctx, cmd)
		p.overtook.Store(max(p.overtook.Load(), p.ended.Load()-ended))
		// Redis refuses a HELLO on a connection that was made while there was a password.
		if mended && err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") && cmd.Name() != "hello" {
			p.failed.Add(1)
		}
		return err
	}))
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (p *process) tokens() float64 { return p.Status(p.sender.req).Tokens }

// shares reports whether the shared balance decides, and has more than the own bucket can
// hold. It sends a request.
func (p *process) shares() bool {
	p.send(http.StatusOK)
	return p.tokens() > 1
}

// sender sends requests through a Transport whose base answers as it should.
type sender struct {
	transport *retryhttp.Transport
	base      *answering
	req       *http.Request
	ended     *atomic.Int64 // requests
}

type answering struct {
	status   int
	attempts int
}

func newSender(t *testing.T, budget retryhttp.Budget) sender {
	base := &answering{}
	return sender{
		transport: retryhttp.New(base, retryhttp.Policy{
			Budget: budget, Backoff: retryhttp.Constant(0), Gate: &retryhttp.Gate{Hold: -1},
		}),
		base:  base,
		req:   get(t, host),
		ended: new(atomic.Int64),
	}
}

// RoundTrip answers without a server.
func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	a.attempts++
	return &http.Response{StatusCode: a.status, Body: http.NoBody, Request: req}, nil
}

// send sends a request to a host that answers with status. It returns how often the request
// was sent again, and how long all of it took.
func (s sender) send(status int) (retries int, took time.Duration) {
	s.base.status, s.base.attempts = status, 0
	began := time.Now()
	resp, err := s.transport.RoundTrip(s.req)
	took = time.Since(began)
	s.ended.Add(1)
	if err != nil || resp.StatusCode != status {
		panic("the base answers, and a response is no error")
	}
	return s.base.attempts - 1, took
}

// fail sends requests to a host that is down, and returns how often they were sent again.
func (s sender) fail(requests int) (retries int) {
	for range requests {
		n, _ := s.send(http.StatusServiceUnavailable)
		retries += n
	}
	return retries
}

func (s sender) succeed(requests int) {
	for range requests {
		s.send(http.StatusOK)
	}
}

// eventually waits until f is true.
func eventually(t *testing.T, f func() bool, claim string) {
	t.Helper()
	require.Eventually(t, f, forever, tick, claim)
}
