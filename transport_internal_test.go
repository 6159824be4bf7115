package retryhttp

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/stretchr/testify/assert"
)

// BenchmarkPartsOfASuccess takes the time that a success takes above its base apart. The parts come
// in the order of RoundTrip. docs/benchmarks.md quotes them.
func BenchmarkPartsOfASuccess(b *testing.B) {
	t := New(http.DefaultTransport, Policy{})
	req, err := http.NewRequest(http.MethodGet, "http://example.test/", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{
		"Content-Type": {"text/plain"}, "Content-Length": {"5"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
	}, Body: http.NoBody}
	var c call
	c.core, c.policy, c.req = &t.core, &t.policy, req
	got := result{Attempt: Attempt{Number: 1, Request: req, Response: resp}, status: http.StatusOK, responded: true}
	down, other := New(http.DefaultTransport, Policy{}), &http.Request{URL: &url.URL{Host: "other.test"}}
	down.policy.Gate.end(other, outage.Pass{}, outage.Down, true)
	var sink time.Duration
	for _, part := range []struct {
		name string
		f    func()
	}{
		{"nothing", func() {}},
		{"the clock", func() { sink = t.now() }},
		{"the stack of the call", func() { emptyCall(t, req) }},
		{"a policy in the context", func() { c.policy = t.policyFor(req) }},
		{"the method and the keys", func() { _, c.idempotent = withKey(req, t.policy.Idempotent, nil) }},
		{"the verdict and the Gate", func() { c.endAttempt(&got) }},
		{"the budget", func() { t.policy.Budget.Deposit(req) }},
		{"the verdict and the Gate of a host beside one that is down", func() {
			c.policy = &down.policy
			c.pass = c.policy.Gate.begin(req, c.pass)
			got.hear(c.policy)
			c.endAttempt(&got)
		}},
	} {
		b.Run(part.name, func(b *testing.B) {
			for b.Loop() {
				part.f()
			}
		})
	}
	_ = sink
}

// emptyCall is a RoundTrip that does nothing.
//
//go:noinline
func emptyCall(t *Transport, req *http.Request) {
	var c call
	c.core, c.req, c.unsent = &t.core, req, req
	defer c.giveBack()
	var next attempt
	next.number = 1
	var got result
	got.Number, got.Request = next.number, req
	c.over = true
}

// InTrouble reports what a Gate counts for a key beyond its run of failures: attempts
// under way, requests that are held or on their way to the line, and a count of troubles that does not fit.
func InTrouble(g *Gate, key string) int64 {
	s := g.hosts.Inspect(key)
	if !s.Sound {
		s.Open += 1_000_000
	}
	return s.Open
}

// FailuresInARow is the run of failures of a key.
func FailuresInARow(g *Gate, key string) int64 { return g.hosts.Inspect(key).Failures }

// Keys is how many keys a Gate knows.
func Keys(g *Gate) int { return g.hosts.Inspect("").Keys }

// The caller may change its request by then.
func TestHedgeThatIsTooLateDoesNotLookAtTheRequest(t *testing.T) {
	r := &race{state: firstWon}
	assert.NotPanics(t, func() { assert.False(t, r.ownRequest()) })
}

// Retries of several buckets take turns in line, so a refusal says whose bucket is empty.
func TestRefusalNamesItsBucket(t *testing.T) {
	b := &TokenBucket{Burst: 1, Key: func(req *http.Request) string { return req.URL.Path }}
	req := &http.Request{URL: &url.URL{Path: "/tenant"}}
	var by atomic.Pointer[bucketID]
	retry := Retry{Request: req, bucket: &by}
	_, granted := b.Withdraw(retry)
	assert.True(t, granted)
	assert.Nil(t, by.Load())
	_, granted = b.Withdraw(retry)
	assert.False(t, granted)
	assert.Equal(t, &bucketID{b, "/tenant"}, by.Load())
}

// A 429 says nothing about the health of a host, even of one that is down.
func TestRejectionIsNoFailureOfTheServer(t *testing.T) {
	for status, want := range map[int]bool{429: false, 503: true} {
		failure := failureOf(&Retry{Status: status, Down: true})
		assert.Equal(t, want, failure.Down, status)
		assert.Equal(t, want, failure.Outage, status)
	}
}
