package replicas_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// model is clients of a World that has every trouble at once.
type model struct {
	*ledger
	t         *testing.T
	w         *replicas.World
	transport *http.Transport
	client    http.RoundTripper
	seed      uint64
	calm      atomic.Bool // dials are well
}

// variant is a setting of an http.Transport, and of a Policy.
type variant struct {
	name      string
	transport func(*http.Transport)
	policy    func(*retryhttp.Policy)
}

var variants = []variant{
	{name: "plain"},
	{name: "with a Hedge", policy: func(p *retryhttp.Policy) { p.Hedge = &retryhttp.Hedge{Share: 1, After: 40 * time.Millisecond} }},
	{name: "with BufferBytes", policy: func(p *retryhttp.Policy) { p.BufferBytes = 32 << 10 }},
	{name: "MaxConnsPerHost", transport: func(t *http.Transport) { t.MaxConnsPerHost = 2 }},
	{name: "DisableKeepAlives", transport: func(t *http.Transport) { t.DisableKeepAlives = true }},
	{name: "short idle timeout", transport: func(t *http.Transport) { t.IdleConnTimeout = 200 * time.Millisecond }},
}

var everyProtocol = []replicas.Protocol{replicas.HTTP1, replicas.HTTP2, replicas.HTTP1TLS, replicas.HTTP2TLS}

// TestAnyTroubleLosesAndRepeatsNothing runs clients at random while replicas fail at random. The
// bubble ends only if no goroutine is left.
func TestAnyTroubleLosesAndRepeatsNothing(t *testing.T) {
	seed := uint64(0)
	for _, p := range everyProtocol {
		for _, v := range variants {
			seed++
			t.Run(fmt.Sprintf("%v, %s, %d", p, v.name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { play(t, p, v, seed) })
			})
		}
	}
}

func play(t *testing.T, p replicas.Protocol, v variant, seed uint64) {
	m := &model{ledger: newLedger(p), t: t, w: replicas.New(p, 3), seed: seed}
	defer m.w.Close()
	m.transport = m.w.Transport()
	m.transport.DialContext = m.dial(random(seed, 1))
	// Without pings, net/http keeps a silent HTTP/2 connection.
	m.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: 500 * time.Millisecond}
	if v.transport != nil {
		v.transport(m.transport)
	}
	policy := retryhttp.Policy{
		AttemptTimeout: 400 * time.Millisecond, Backoff: retryhttp.FullJitter(20*time.Millisecond, time.Second),
		Budget: retryhttp.Unlimited{}, OnDone: m.done,
	}
	if v.policy != nil {
		v.policy(&policy)
	}
	rt := retryhttp.New(m.transport, policy)
	m.client = rt
	m.each((*model).well)
	m.run()

	m.calm.Store(true)
	m.each((*model).well)
	rt.CloseIdleConnections()
	time.Sleep(2 * time.Second)
	assert.Equal(t, http.StatusOK, m.exchange(request{method: http.MethodGet, deadline: 10 * time.Second, read: true}, random(seed, 2)))
	rt.CloseIdleConnections()
	time.Sleep(2 * time.Minute)
	assert.Zero(t, m.w.Open(), "connections are open")
	m.check(t)
	t.Logf("%d requests, %d succeeded, %d took a detour", m.requests.Load(), m.succeeded.Load(), m.detours.Load())
}

// random returns a source that a seed repeats. Each goroutine has its own.
func random(seed, of uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, of)) }

// dial is slow at times, and fails at times.
func (m *model) dial(source *rand.Rand) func(context.Context, string, string) (net.Conn, error) {
	chance := make(chan *rand.Rand, 1)
	chance <- source
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		r := <-chance
		takes, fails := time.Duration(r.IntN(30))*time.Millisecond, r.IntN(10) == 0
		if r.IntN(8) == 0 {
			takes = time.Duration(r.IntN(3000)) * time.Millisecond
		}
		chance <- r
		if m.calm.Load() {
			takes, fails = 0, false
		}
		if pause.For(ctx, takes) != nil {
			return nil, ctx.Err()
		}
		if fails {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return m.w.Dial(ctx, network, address)
	}
}

func (m *model) run() {
	const clients, each = 6, 14
	done := make(chan struct{})
	for c := range uint64(clients) {
		go func() {
			defer func() { done <- struct{}{} }()
			r := random(m.seed, 100+c)
			for range each {
				time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
				m.exchange(anyRequest(r), r)
			}
		}()
	}
	r := random(m.seed, 3)
	for left := clients; left > 0; {
		select {
		case <-done:
			left--
		case <-time.After(time.Duration(1+r.IntN(150)) * time.Millisecond):
			m.event(r)
		}
	}
}

func (m *model) each(serve func(*model, *replicas.Replica)) {
	for _, r := range m.w.Replicas {
		serve(m, r)
	}
}

// event is a trouble, or the end of one.
func (m *model) event(r *rand.Rand) {
	replica := m.w.Replicas[r.IntN(len(m.w.Replicas))]
	switch n := r.IntN(12 + len(troubles)); n {
	case 0, 1:
		replica.Kill()
	case 2, 3:
		replica.Restart(time.Duration(r.IntN(1000)) * time.Millisecond)
	case 4:
		m.w.Freeze()
	case 5, 6:
		m.client.(*retryhttp.Transport).CloseIdleConnections()
	case 7:
		m.each((*model).well)
	case 8, 9, 10, 11:
		m.well(replica)
	default:
		m.serve(replica, troubles[n-12])
	}
}

func (m *model) done(a retryhttp.Attempt, _ retryhttp.Outcome) {
	if a.Detour {
		m.detours.Add(1)
	}
}
