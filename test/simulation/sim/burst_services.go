package sim

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// refusing makes a service whose host refuses connections for a while, and that then answers in 50 ms.
func refusing(d time.Duration) func() engine.Server {
	return func() engine.Server {
		start := time.Now()
		return func(req *http.Request) (*http.Response, error) {
			if time.Since(start) < d {
				time.Sleep(time.Millisecond)
				return nil, refused()
			}
			return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
		}
	}
}

// silent makes a service that answers no attempt which comes within d.
func silent(d time.Duration) func() engine.Server {
	return func() engine.Server {
		start := time.Now()
		return func(req *http.Request) (*http.Response, error) {
			if time.Since(start) < d {
				return engine.AnswerAfter(time.Minute, req, http.StatusOK)
			}
			return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
		}
	}
}

// coldStarting makes a service whose first answer after so long without a request is a 502.
func coldStarting(idle time.Duration) func() engine.Server {
	return func() engine.Server {
		var last time.Time
		return func(req *http.Request) (*http.Response, error) {
			cold := time.Since(last) >= idle
			last = time.Now()
			if cold {
				return engine.Answer(req, http.StatusBadGateway)
			}
			return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
		}
	}
}

// sometimesCold makes a service whose first answer after a pause is a 502 in so many of ten cases.
func sometimesCold(ofTen int) func() engine.Server {
	return func() engine.Server {
		var last time.Time
		pauses := 0
		return func(req *http.Request) (*http.Response, error) {
			cold := false
			if time.Since(last) >= 10*time.Second {
				pauses++
				cold = pauses*ofTen%10 < ofTen
			}
			last = time.Now()
			if cold {
				return engine.Answer(req, http.StatusBadGateway)
			}
			return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
		}
	}
}

// waking makes a service that wakes when it is asked after half a minute without a request. It answers with a 503 for d.
func waking(d time.Duration) func() engine.Server {
	return func() engine.Server {
		var last, woken time.Time
		return func(req *http.Request) (*http.Response, error) {
			now := time.Now()
			if now.Sub(last) >= 30*time.Second {
				woken = now
			}
			if last = now; now.Sub(woken) < d {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
		}
	}
}

// outageBefore makes a service that is down for d, and that is then like the one that is made by service.
func outageBefore(d time.Duration, service func() engine.Server) func() engine.Server {
	return func() engine.Server {
		start, then := time.Now(), service()
		return func(req *http.Request) (*http.Response, error) {
			if time.Since(start) < d {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return then(req)
		}
	}
}

// refused is the error of a connection that the host has refused.
func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// hanging makes a service that is down for a while. In that time, an attempt gets no answer for a minute: a
// poll, or the attempt with a number, from 1 on.
func hanging(d time.Duration, number int64) func() engine.Server {
	return func() engine.Server {
		start, attempts := time.Now(), new(atomic.Int64)
		return func(req *http.Request) (*http.Response, error) {
			down := time.Since(start) < d
			if req.URL.Path == pollPath || attempts.Add(1) == number && down {
				if _, err := engine.AnswerAfter(time.Minute, req, http.StatusOK); err != nil {
					return nil, err
				}
				return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ETIMEDOUT}
			}
			if down {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
		}
	}
}

// A reserve is what a service can serve at once. The service rejects what it cannot serve, at a tenth of the
// cost of a success.
type reserve struct {
	perSecond, most float64

	mu   sync.Mutex
	left float64
	at   time.Time
}

func (s *reserve) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.left = min(s.left+s.perSecond*now.Sub(s.at).Seconds(), s.most)
	s.at = now
	if s.left < 1 {
		s.left -= 0.1
		return false
	}
	s.left--
	return true
}

// crowded makes a service that serves 100 requests a second, and 50 at once.
func crowded() engine.Server {
	s := &reserve{perSecond: 100, most: 50, left: 50, at: time.Now()}
	return func(req *http.Request) (*http.Response, error) {
		if !s.take() {
			return engine.AnswerAfter(2*time.Millisecond, req, http.StatusServiceUnavailable)
		}
		return engine.AnswerAfter(50*time.Millisecond, req, http.StatusOK)
	}
}
