package detour

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// service is a service of replicas, and a Dispatcher whose pool has a connection to the first replica, which is broken.
type service struct {
	*replicas.World
	t *testing.T
	*Dispatcher
}

// inTrouble runs do with a service whose detours reach the replicas after the first in their order, and then the last.
func inTrouble(t *testing.T, p replicas.Protocol, of int, do func(s service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := replicas.New(p, of)
		defer w.Close()
		w.Choose = func(n int) int { return min(n, of) - 1 }
		w.Replicas[0].Serve(replicas.Status(http.StatusServiceUnavailable))
		s := service{w, t, New(w.Transport(), errors.New("superseded"))}
		defer time.Sleep(time.Second) // net/http may read the rest of a body that is closed
		defer s.CloseIdleConnections()
		require.Equal(t, http.StatusServiceUnavailable, s.send(s.request(1)))
		synctest.Wait() // net/http puts a new connection into its pool later
		h := s.host()
		do(s)
		synctest.Wait()
		assert.Zero(t, h.dialing)
		assert.Zero(t, h.trying())
	})
}

// request returns an attempt of a request of its own. The number of a retry is 2.
func (s service) request(number int) *http.Request { return s.follow(Route{}, number) }

// follow returns an attempt that follows the attempts of a route.
func (s service) follow(so Route, number int) *http.Request {
	var a Attempt
	a.Begin(s.t.Context(), so, number, false)
	ctx := context.WithValue(s.t.Context(), Key{}, &a)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(), nil)
	require.NoError(s.t, err)
	return req
}

// send returns the status of a response, or 0. It may run in any goroutine.
func (s service) send(req *http.Request) int {
	resp, err := s.RoundTrip(req)
	if !assert.NoError(s.t, err) {
		return 0
	}
	assert.Same(s.t, s.Dispatcher, attemptOf(req.Context()).Route().Reached)
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(s.t, err)
	assert.NoError(s.t, resp.Body.Close())
	return resp.StatusCode
}

func (s service) host() *host { return s.hostOf(s.request(1), false) }

func TestRetriesDoNotAskWhetherThePoolIsWell(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		for range 4 * leastOneIn {
			assert.Equal(t, http.StatusOK, s.send(s.request(2)))
			time.Sleep(time.Second)
		}
	})
}

func TestDetourThatCameTooLateServesOneRequestAtFirst(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 3, func(s service) {
		s.DialTime = mostPatient + time.Second/2
		require.Equal(t, http.StatusServiceUnavailable, s.send(s.request(2)), "nobody waits so long for a detour")
		time.Sleep(time.Second)
		synctest.Wait()
		s.DialTime = 0
		s.Replicas[1].Serve(replicas.Well(time.Second))
		first := make(chan int)
		go func() { first <- s.send(s.request(2)) }()
		synctest.Wait()
		assert.Equal(t, 1, s.host().trying())
		assert.Equal(t, http.StatusOK, s.send(s.request(2)))
		assert.EqualValues(t, 1, s.Replicas[1].Requests.Load())
		assert.EqualValues(t, 1, s.Replicas[2].Requests.Load())
		assert.Equal(t, http.StatusOK, <-first)
	})
}

func TestUpgradeTakesADetourOverHTTP1(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		for range 2 {
			req := s.request(2)
			req.Header.Set("Upgrade", "chat")
			assert.Equal(t, http.StatusOK, s.send(req))
		}
		assert.Equal(t, 2, s.Dials())
	})
}

// foreign is a context that others derive theirs from by a goroutine, which must end in a bubble.
type foreign struct {
	context.Context
	done chan struct{}
}

func (c foreign) Done() <-chan struct{} { return c.done }

// After a 101 the connection is the caller's. A Close could come before net/http has given it away.
func TestUpgradedConnectionIsNeverClosedHere(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		c := s.host().conns[0]
		s.Replicas[1].Serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Upgrade", "chat")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				_ = conn.Close()
			}
		})
		req := s.request(2)
		req = req.WithContext(foreign{req.Context(), make(chan struct{})})
		req.Header.Set("Upgrade", "chat")
		resp, err := s.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		assert.EqualValues(t, 1, c.requests.Load(), "it is closed with the last request")
		require.NoError(t, resp.Body.Close())
	})
}

// If the pool has no answer, a detour has one.
func TestUpgradeTakesANewDetourIfTheOthersAreBusy(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		s.Replicas[1].Serve(replicas.Well(time.Minute))
		done := make(chan int)
		for range 2 {
			go func() {
				req := s.request(2)
				req.Header.Set("Upgrade", "chat")
				done <- s.send(req)
			}()
			synctest.Wait()
		}
		assert.EqualValues(t, 3, s.Replicas[1].Requests.Load())
		for range 2 {
			assert.Equal(t, http.StatusOK, <-done)
		}
	})
}

func TestDetourThroughAProxyServesRequestsOfThatProxy(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 3, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		s.host().conns[0].proxy = "http://proxy.example"
		assert.Equal(t, http.StatusOK, s.send(s.request(2)))
		assert.EqualValues(t, 1, s.Replicas[2].Requests.Load())
	})
}

// One that has been slow from the beginning has a load, too.
func TestDetourThatIsExpectedToSucceedSoonestComesFirst(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 3, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		s.host().conns[0].proxy = "http://proxy.example"
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		synctest.Wait() // the end of a stream takes a moment
		h := s.host()
		h.conns[0].proxy = ""
		for _, c := range []struct {
			proven, otherProven bool
			took, otherTook     time.Duration
		}{{true, false, time.Second, 0}, {true, true, time.Second, 2 * time.Second}, {false, false, 0, time.Second}} {
			for i := range h.conns {
				best, other := h.conns[i], h.conns[1-i]
				best.proven, other.proven = c.proven, c.otherProven
				best.took, other.took = latency{c.took}, latency{c.otherTook}
				assert.Same(t, best, h.best(nil, false, ""), "%+v", c)
			}
		}
	})
}

func TestPanicOfATraceLeavesNoDialUnderWay(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		req := s.request(2)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			GetConn: func(string) { panic("hook") },
		}))
		assert.PanicsWithValue(t, "hook", func() { _, _ = s.RoundTrip(req) })
	})
}

func TestTraceHasTheAddressThatWasReached(t *testing.T) {
	for _, c := range []struct {
		report func(done func(network, address string, err error))
		want   string
	}{
		{func(func(network, address string, err error)) {}, "service.example:80"},
		{func(done func(network, address string, err error)) {
			done("tcp", "192.0.2.1:80", nil)
			done("tcp", "[2001:db8::1]:80", errors.New("too late"))
		}, "192.0.2.1:80"},
	} {
		inTrouble(t, replicas.HTTP2, 2, func(s service) {
			s.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				c.report(httptrace.ContextClientTrace(ctx).ConnectDone)
				return s.Dial(ctx, network, address)
			}
			var got []string
			req := s.request(2)
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
				GetConn: func(address string) { got = append(got, address) },
				GotConn: func(info httptrace.GotConnInfo) { got = append(got, info.Conn.RemoteAddr().String()) },
			}))
			assert.Equal(t, http.StatusOK, s.send(req))
			assert.Equal(t, []string{"service.example:80", c.want}, got)
		})
	}
}

func TestDialThatFailsIsOverAndIsNoReasonToDialNoMore(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		var failed context.Context
		s.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			failed = ctx
			return nil, errors.New("unreachable")
		}
		begin := time.Now()
		assert.Equal(t, http.StatusServiceUnavailable, s.send(s.request(2)))
		assert.Less(t, time.Since(begin), mostPatient, "nothing to wait for")
		synctest.Wait()
		assert.Error(t, failed.Err(), "what the Dial function has begun ends")
		s.transport.DialContext = s.Dial
		assert.Equal(t, http.StatusOK, s.send(s.request(2)))
	})
}

// Its connection may live as long as the context of its dial.
func TestDetourOutlivesTheRequestThatDialedIt(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		s.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.Dial(ctx, network, address)
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			return conn, err
		}
		req := s.request(2)
		ctx, cancel := context.WithCancel(req.Context())
		require.Equal(t, http.StatusOK, s.send(req.WithContext(ctx)))
		cancel()
		synctest.Wait()
		assert.Equal(t, http.StatusOK, s.send(s.request(2)))
		assert.Equal(t, 2, s.Dials())
	})
}

func TestDialThatEndsAfterTheTroubleIsClosed(t *testing.T) {
	for _, takes := range []time.Duration{mostPatient / 2, 2 * mostPatient} {
		inTrouble(t, replicas.HTTP2, 2, func(s service) {
			s.DialTime = takes
			h := s.host()
			time.AfterFunc(mostPatient/4, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.gone = true
			})
			begin := time.Now()
			require.Equal(t, http.StatusServiceUnavailable, s.send(s.request(2)))
			assert.Equal(t, min(takes, mostPatient), time.Since(begin).Truncate(100*time.Millisecond))
			time.Sleep(takes)
			synctest.Wait()
			assert.Empty(t, h.conns)
			assert.Equal(t, 1, s.Open(), "the pool's connection")
		})
	}
}

func TestDialDuringWhichIdleDetoursAreClosed(t *testing.T) {
	for _, takes := range []time.Duration{mostPatient / 2, 2 * mostPatient} {
		inTrouble(t, replicas.HTTP2, 2, func(s service) {
			s.DialTime = takes
			time.AfterFunc(mostPatient/4, s.CloseIdleConnections)
			req := s.request(2)
			s.send(req)
			assert.Equal(t, takes < mostPatient, attemptOf(req.Context()).Route().Detoured)
			time.Sleep(2 * takes)
			synctest.Wait()
			assert.Empty(t, s.host().conns, "nobody has taken it since")
		})
	}
}

func TestDetourThatCameTooLateStays(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		s.DialTime = 2 * mostPatient
		assert.Equal(t, http.StatusServiceUnavailable, s.send(s.request(2)))
		time.Sleep(2 * mostPatient)
		assert.Equal(t, http.StatusOK, s.send(s.request(2)))
		assert.Equal(t, 2, s.Dials())
	})
}

func TestProxyThatFails(t *testing.T) {
	for _, c := range []struct {
		fails string // the path of the request that it fails for; NewClientConn asks about /
		err   bool
	}{{"/own", true}, {"/", false}} {
		inTrouble(t, replicas.HTTP2, 2, func(s service) {
			s.transport.Proxy = func(req *http.Request) (*url.URL, error) {
				if req.URL.Path == c.fails {
					return nil, errors.New("no proxy")
				}
				return nil, nil
			}
			req := s.request(2)
			req.URL.Path = "/own"
			resp, err := s.RoundTrip(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, c.err, err != nil)
			assert.Equal(t, !c.err, s.host().barred.Load())
			assert.Equal(t, 1, s.Dials())
		})
	}
}

// A limit is the service's, and not a replica's.
func TestRetryAfterALimitStays(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		for i, number := range []int{1, 2} { // on the pool, and on a detour
			for _, c := range []struct {
				status int
				stay   bool
			}{{http.StatusTooManyRequests, true}, {http.StatusServiceUnavailable, false}, {http.StatusOK, false}} {
				s.Replicas[i].Serve(replicas.Status(c.status))
				req := s.request(number)
				require.Equal(t, c.status, s.send(req))
				assert.Equal(t, c.stay, attemptOf(req.Context()).Route().stay)
			}
			s.Replicas[i].Serve(replicas.Status(http.StatusServiceUnavailable))
		}
	})
}

func TestRetryAfterALimitOfADetourMayTakeItAgain(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 3, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		s.host().pool = record{1}
		s.Replicas[1].Serve(replicas.Status(http.StatusTooManyRequests))
		first := s.request(1)
		require.Equal(t, http.StatusTooManyRequests, s.send(first))
		assert.Equal(t, http.StatusTooManyRequests, s.send(s.follow(attemptOf(first.Context()).Route(), 2)))
		assert.EqualValues(t, 3, s.Replicas[1].Requests.Load())
		assert.Zero(t, s.Replicas[2].Requests.Load())
	})
}

func TestTooManyHostsInTroubleHaveNoDetours(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		for n := range mostHosts - 1 {
			s.hosts[origin{"http", strconv.Itoa(n)}] = &host{}
		}
		req := s.request(1)
		req.URL.Host = "other.example"
		s.Choose = func(int) int { return 0 }
		assert.Equal(t, http.StatusServiceUnavailable, s.send(req))
		assert.Len(t, s.hosts, mostHosts)
		assert.Nil(t, s.hostOf(req, false))
	})
}

func TestFirstAttemptsDialIfThePoolFailsHalfAndFewAreOnTrial(t *testing.T) {
	for _, c := range []struct {
		trying  int
		failing float64
		want    bool
	}{{0, 0.5, true}, {0, 0.49, false}, {mostDialing - 1, 1, true}, {mostDialing, 1, false}} {
		h := &host{dialing: c.trying, pool: record{c.failing}}
		assert.Equal(t, c.want, h.firstMayDial(), c)
		h.conns = []*conn{{proven: true}}
		assert.True(t, h.firstMayDial())
	}
}

func TestResultsOfADetour(t *testing.T) {
	for _, c := range []struct {
		v             verdict
		took          time.Duration
		young         bool // has not served well before
		bad, earns    bool
		counts, stays bool
	}{
		{v: nothing, took: time.Hour, stays: true},
		{v: well, took: 20 * time.Millisecond, earns: true, counts: true, stays: true},
		{v: well, took: time.Hour, bad: true, counts: true, stays: true},
		{v: failed, took: time.Hour, bad: true, counts: true, stays: true},
		{v: nothing, took: time.Hour, young: true, stays: true},
		{v: well, took: 20 * time.Millisecond, young: true, earns: true, stays: true},
		{v: failed, young: true, bad: true},
	} {
		inTrouble(t, replicas.HTTP2, 2, func(s service) {
			require.Equal(t, http.StatusOK, s.send(s.request(2)))
			time.Sleep(time.Second)
			h := s.host()
			d := h.conns[0]
			d.proven = !c.young
			d.results.failing, h.detours.failing = 0.5, 0.5
			latency, savings := h.latency, h.savings
			h.noteDetour(d, c.v, c.took)
			assert.Equal(t, c.bad, d.results.failing > 0.5, "%+v", c)
			assert.Equal(t, c.earns, d.results.failing < 0.5, "%+v", c)
			if c.stays {
				assert.Equal(t, c.counts && c.bad, h.detours.failing > 0.5, "%+v", c)
				assert.Equal(t, c.counts && !c.bad, h.detours.failing < 0.5, "%+v", c)
			}
			assert.Equal(t, c.bad, h.failedAt.Equal(time.Now()), "%+v", c)
			assert.Equal(t, c.v == well && c.bad || !c.stays, h.latency != latency, "%+v", c)
			assert.Equal(t, c.earns, h.savings > savings, "%+v", c)
			assert.Equal(t, !c.young || c.earns, d.proven, "%+v", c)
			assert.Equal(t, c.stays, len(h.conns) == 1, "%+v", c)
		})
	}
}

func TestDetoursThatServeWellPayForDialsUpToALimit(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		h := s.host()
		d := h.conns[0]
		before := h.savings
		h.noteDetour(d, well, 20*time.Millisecond)
		assert.InDelta(t, dialsPerSuccess, h.savings-before, 1e-9)
		for range 1000 {
			h.noteDetour(d, well, 20*time.Millisecond)
		}
		assert.InDelta(t, mostDials, h.savings, 0)
	})
}

func TestDetourThatIsLostIsRemoved(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		require.Len(t, s.host().conns, 1)
		s.Replicas[1].Serve(replicas.Reset)
		_, err := s.RoundTrip(s.request(2))
		require.Error(t, err)
		assert.Empty(t, s.host().conns)
	})
}

// A limit of the pool is a limit, and what an http.Transport refuses is refused.
func TestRequestsThatMayDetour(t *testing.T) {
	for name, change := range map[string]func(t *http.Transport, req *http.Request){
		"":                           func(*http.Transport, *http.Request) {},
		"no connection is kept":      func(t *http.Transport, _ *http.Request) { t.DisableKeepAlives = true },
		"no connection is idle":      func(t *http.Transport, _ *http.Request) { t.MaxIdleConnsPerHost = -1 },
		"connections are counted":    func(t *http.Transport, _ *http.Request) { t.MaxConnsPerHost = 2 },
		"the connection ends":        func(_ *http.Transport, req *http.Request) { req.Close = true },
		"a name that is not ASCII":   func(_ *http.Transport, req *http.Request) { req.URL.Host = "dienst.ö.example" },
		"a scheme that is not known": func(_ *http.Transport, req *http.Request) { req.URL.Scheme = "ftp" },
		"no URL":                     func(_ *http.Transport, req *http.Request) { req.URL = nil },
		"no header":                  func(_ *http.Transport, req *http.Request) { req.Header = nil },
	} {
		transport := new(http.Transport)
		req, err := http.NewRequest(http.MethodGet, "http://service.example/", nil)
		require.NoError(t, err)
		change(transport, req)
		assert.Equal(t, name == "", New(transport, nil).mayDetour(req), name)
	}
}

func TestRequestThatMayNotDetourIsNoTrouble(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		s.Choose = func(int) int { return 0 }
		h, req := s.host(), s.request(2)
		req.Close = true
		failing := h.pool.failing
		require.Equal(t, http.StatusServiceUnavailable, s.send(req))
		assert.False(t, attemptOf(req.Context()).Route().Detoured)
		assert.InDelta(t, failing, h.pool.failing, 0)
		req.URL.Host = "other.example"
		require.Equal(t, http.StatusServiceUnavailable, s.send(req))
		assert.Nil(t, s.hostOf(req, false))
		fresh := New(s.transport, nil)
		resp, err := fresh.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.False(t, fresh.InTrouble())
	})
}

func TestTroubleOfOneHostIsNoneOfAnother(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		req := s.request(1)
		req.URL.Host = "other.example"
		require.Equal(t, http.StatusOK, s.send(req))
		assert.Nil(t, s.hostOf(req, false))
	})
}

func TestHedgeIsTrouble(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		req := s.request(1)
		req.URL.Host = "other.example"
		attemptOf(req.Context()).hedge = true
		require.Equal(t, http.StatusOK, s.send(req))
		assert.NotNil(t, s.hostOf(req, false))
	})
}

func TestTroubleEndsNinetySecondsAfterItsLastFailure(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		time.Sleep(troubled - time.Second)
		assert.NotNil(t, s.host())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Nil(t, s.host())
		assert.False(t, s.InTrouble())
		assert.Zero(t, s.Open())
		time.Sleep(troubled)
		synctest.Wait()
		assert.Zero(t, s.count.Load(), "it ends once")
		assert.False(t, s.hostOf(s.request(1), true).gone, "the next trouble has detours")
	})
}

// An attempt may have found the host before.
func TestHostThatIsWellGivesUpDetoursInUse(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		s.Replicas[1].Serve(replicas.Well(time.Minute))
		h := s.host()
		h.failedAt = time.Now().Add(-troubled)
		first := make(chan int)
		go func() { first <- s.send(s.request(2)) }()
		synctest.Wait()
		require.Len(t, h.conns, 1)
		s.tend(h)
		assert.Empty(t, h.conns)
		assert.Equal(t, http.StatusOK, <-first)
		synctest.Wait()
		assert.Equal(t, 1, s.Open(), "the pool's connection")
	})
}

func TestIdleDetourThatIsLostIsForgotten(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		s.Replicas[1].Kill()
		synctest.Wait()
		h := s.host()
		require.Len(t, h.conns, 1)
		h.closeIdle(false)
		assert.Empty(t, h.conns)
	})
}

func TestDetourInUseThatAnotherRequestTakesIsKept(t *testing.T) {
	inTrouble(t, replicas.HTTP2, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		s.Replicas[1].Serve(replicas.Well(time.Minute))
		taken := make(chan int)
		take := func() { taken <- s.send(s.request(2)) }
		go take()
		synctest.Wait()
		s.CloseIdleConnections()
		go take()
		for range 2 {
			assert.Equal(t, http.StatusOK, <-taken)
		}
		synctest.Wait()
		assert.Len(t, s.host().conns, 1)
		go take()
		synctest.Wait()
		s.CloseIdleConnections()
		assert.Equal(t, http.StatusOK, <-taken)
		synctest.Wait()
		assert.Empty(t, s.host().conns)
	})
}

func TestDetourThatWasInUseIsClosedIfItIsIdle(t *testing.T) {
	for _, c := range []struct {
		closing  bool
		requests int32
		closed   bool
	}{{true, 0, true}, {true, 1, false}, {false, 0, false}} {
		inTrouble(t, replicas.HTTP2, 2, func(s service) {
			require.Equal(t, http.StatusOK, s.send(s.request(2)))
			d := s.host().conns[0]
			s.host().closing.Store(c.closing)
			d.requests.Store(c.requests)
			s.host().closeIdle(false)
			synctest.Wait()
			assert.Equal(t, c.closed, d.Err() != nil)
			assert.Equal(t, c.closed, len(s.host().conns) == 0)
			d.requests.Store(0)
		})
	}
}

func TestConnectionThatIsClosedHasNoPlace(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		d := s.host().conns[0]
		require.NoError(t, d.Close())
		assert.False(t, d.reserve())
		assert.Zero(t, d.requests.Load())
	})
}

func TestConnectionIsTooIdleAfterTheTimeoutOfItsTransport(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		d := s.host().conns[0]
		d.idle.Store(time.Now().Add(-s.transport.IdleConnTimeout + 1).UnixNano())
		assert.True(t, d.usable())
		d.idle.Store(time.Now().Add(-s.transport.IdleConnTimeout).UnixNano())
		assert.False(t, d.usable())
		d.requests.Add(1)
		assert.True(t, d.usable(), "it is in use")
		d.requests.Add(-1)
	})
}

func TestPlaceThatIsGivenBackIsFree(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		h := s.host()
		d := h.conns[0]
		require.True(t, d.reserve())
		h.giveBack(d)
		assert.False(t, d.onTrial())
		assert.True(t, d.usable())
		assert.Zero(t, d.requests.Load())
	})
}

// net/http gives the place of a response without a body back before it delivers the response.
func TestNextRequestBeginsBeforeTheOneBeforeHasItsResponse(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		require.Equal(t, http.StatusOK, s.send(s.request(2)))
		synctest.Wait()
		c := s.host().conns[0]
		arrived, goOn, next := make(chan struct{}), make(chan struct{}), make(chan int)
		s.Replicas[1].Serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				close(arrived)
				<-goOn
				_, _ = io.WriteString(w, "body")
			}
		})
		first, second := s.request(2), s.request(2)
		first.Method = http.MethodHead
		first = first.WithContext(httptrace.WithClientTrace(first.Context(), &httptrace.ClientTrace{
			PutIdleConn: func(error) {
				go func() { next <- s.send(second) }()
				<-arrived
			},
		}))
		require.Equal(t, http.StatusOK, s.send(first))
		assert.EqualValues(t, 1, c.requests.Load())
		close(goOn)
		require.Equal(t, http.StatusOK, <-next)
		synctest.Wait()
		assert.Zero(t, c.requests.Load())
		s.CloseIdleConnections()
		synctest.Wait()
		assert.Error(t, c.Err())
	})
}

func TestRequestForgetsDetoursThatAreClosed(t *testing.T) {
	inTrouble(t, replicas.HTTP1, 2, func(s service) {
		s.Replicas[1].Serve(replicas.Status(http.StatusServiceUnavailable))
		var so Route
		for range 100 {
			req := s.follow(so, 2)
			require.Equal(t, http.StatusServiceUnavailable, s.send(req))
			so = attemptOf(req.Context()).Route()
			time.Sleep(time.Second)
		}
		assert.Greater(t, s.Dials(), 10)
		assert.LessOrEqual(t, len(so.taken), 1)
	})
}

func TestPooledKeepsAHundredIdleConnectionsOfAHost(t *testing.T) {
	assert.Equal(t, 100, Pooled().MaxIdleConnsPerHost)
	assert.Equal(t, 500, Pooled().MaxIdleConns)
}
