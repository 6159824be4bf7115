package retryhttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// gated makes requests through a Transport with a Gate, in a bubble. The path of a
// request says what its attempts meet, one after the other; the last holds for all that
// follow: "/503,200". "hang" is no answer until the context ends, "broken" an error. The
// query is what a response has in its header.
type gated struct {
	t      *testing.T
	start  time.Time
	gate   *retryhttp.Gate
	budget *countingBudget
	policy retryhttp.Policy
	rt     http.RoundTripper
	header http.Header // of the requests that are made next
	ended  sync.WaitGroup

	mu    sync.Mutex
	order []*visit // as attempts were sent
}

// visit is one request.
type visit struct {
	sent    []time.Duration // its attempts
	outcome retryhttp.Outcome
	status  int
	err     error
	done    time.Duration
}

// newGated has retries wait for 200 ms, and as many as the Gate lets through.
func newGated(t *testing.T, gate *retryhttp.Gate) *gated {
	g := &gated{t: t, start: time.Now(), gate: gate, budget: new(countingBudget)}
	g.policy = retryhttp.Policy{
		Gate: gate, Budget: g.budget, Backoff: retryhttp.Constant(200 * time.Millisecond), MaxAttempts: 2,
	}
	g.rt = retryhttp.New(script.Step(g.answer), g.policy)
	return g
}

type visitKey struct{}

func (g *gated) answer(req *http.Request) (*http.Response, error) {
	v := req.Context().Value(visitKey{}).(*visit)
	g.mu.Lock()
	v.sent = append(v.sent, time.Since(g.start))
	n := len(v.sent) // a hedge may be sent meanwhile
	g.order = append(g.order, v)
	g.mu.Unlock()
	answers := strings.Split(strings.Trim(req.URL.Path, "/"), ",")
	answer, latency, _ := strings.Cut(answers[min(n, len(answers))-1], "@")
	if d, err := time.ParseDuration(latency); err == nil {
		select {
		case <-time.After(d):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	switch answer {
	case "hang":
		<-req.Context().Done()
		return nil, req.Context().Err()
	case "broken":
		return nil, errBroken
	case "permanent":
		return nil, retryhttp.Permanent(errBroken)
	case "panic":
		panic(http.ErrAbortHandler)
	}
	code, err := strconv.Atoi(answer)
	require.NoError(g.t, err)
	resp := script.Response(req, code)
	for name, values := range req.URL.Query() {
		resp.Header[http.CanonicalHeaderKey(name)] = values
	}
	return resp, nil
}

// at makes a request at a time since the start, of a host "host" unless the path begins
// with another: "//other/503".
func (g *gated) at(at time.Duration, path string, edits ...func(*retryhttp.Policy)) *visit {
	return g.with(context.Background(), at, path, edits...)
}

func (g *gated) with(ctx context.Context, at time.Duration, path string, edits ...func(*retryhttp.Policy)) *visit {
	v := new(visit)
	for _, edit := range edits {
		ctx = retryhttp.WithPolicy(ctx, edit)
	}
	if !strings.HasPrefix(path, "//") {
		path = "//host" + path
	}
	u, err := url.Parse("http:" + path)
	require.NoError(g.t, err)
	req := (&http.Request{Method: http.MethodGet, URL: u, Header: g.header}).WithContext(context.WithValue(ctx, visitKey{}, v))
	g.ended.Go(func() {
		time.Sleep(at - time.Since(g.start))
		resp, err := g.rt.RoundTrip(req)
		v.done, v.err = time.Since(g.start), err
		if err != nil {
			v.outcome = errorOf(g.t, err).Outcome
			return
		}
		v.outcome, v.status = retryhttp.OutcomeOf(resp), resp.StatusCode
	})
	return v
}

// once has a request that is not retried.
func once(p *retryhttp.Policy) { p.MaxAttempts = 1 }

// every makes n requests in equal intervals, which are not retried.
func (g *gated) every(first, interval time.Duration, n int, path string) (visits []*visit) {
	for i := range n {
		visits = append(visits, g.at(first+time.Duration(i)*interval, path, once))
	}
	return visits
}

// down makes eight requests fail, the first at 0, the last at 100 ms. So the host is down from 100
// ms on.
func (g *gated) down() {
	g.every(0, 100*time.Millisecond/7, 7, "/503")
	g.at(100*time.Millisecond, "/503", once)
}

// wait waits until all that happens until a time since the start has happened.
func (g *gated) wait(until time.Duration) {
	time.Sleep(until - time.Since(g.start))
	synctest.Wait()
}

// held is how many of the requests to "host" are held now.
func (g *gated) held() int {
	return g.gate.Status(requestTo("host")).Held
}

func inMillis(list ...float64) (durations []time.Duration) {
	for _, ms := range list {
		durations = append(durations, time.Duration(ms*float64(time.Millisecond)))
	}
	return durations
}

type onRecord func(slog.Record)

func (f onRecord) Enabled(context.Context, slog.Level) bool      { return true }
func (f onRecord) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f onRecord) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f onRecord) WithGroup(string) slog.Handler                 { return f }
