package otelretry

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/retryhttp/retryhttp"
)

// These attributes of metrics are this package's own.
const (
	stopKey      = attribute.Key("retryhttp.stop") // why there was no further attempt
	ambiguousKey = attribute.Key("retryhttp.ambiguous")
)

type metrics struct {
	attempts metric.Int64Histogram
	retries  metric.Int64Histogram
	delay    metric.Float64Histogram
	held     metric.Float64Histogram
	stops    metric.Int64Counter
	hedges   metric.Int64Counter
	wins     metric.Int64Counter
	resumed  metric.Int64Counter
	tokens   metric.Float64Gauge
	waiting  metric.Int64Gauge
	due      metric.Float64Gauge
	budget   balance          // nil if the Budget does not report its tokens
	gate     *retryhttp.Gate  // nil if the Gate holds nothing
	hedge    *retryhttp.Hedge // nil if the Policy has none
}

// balance is implemented by TokenBucket, and may be implemented by any other Budget.
type balance interface {
	Tokens(*http.Request) float64
}

// newMetrics makes the instruments. An instrument that cannot be made is present, and does
// nothing.
func newMetrics(m metric.Meter) *metrics {
	seconds := []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}
	attempts, err1 := m.Int64Histogram("retryhttp.client.call.attempts",
		metric.WithUnit("{attempt}"),
		metric.WithDescription("Number of attempts made for the request."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 4, 5, 10))
	retries, err2 := m.Int64Histogram("retryhttp.client.call.retries",
		metric.WithUnit("{retry}"),
		metric.WithDescription("Number of attempts after the first that are no hedges. If there were none, 0 is not reported."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 4, 5, 10))
	delay, err3 := m.Float64Histogram("retryhttp.client.call.retry_delay",
		metric.WithUnit("s"),
		metric.WithDescription("Time between the attempts of a request that was retried."),
		metric.WithExplicitBucketBoundaries(seconds...))
	held, err4 := m.Float64Histogram("retryhttp.client.call.held",
		metric.WithUnit("s"),
		metric.WithDescription("Time that a Gate held the request, of requests that were held."),
		metric.WithExplicitBucketBoundaries(seconds...))
	stops, err5 := m.Int64Counter("retryhttp.client.call.stops",
		metric.WithUnit("{call}"),
		metric.WithDescription("Number of requests, by their last result and by why there was no further attempt."))
	hedges, err6 := m.Int64Counter("retryhttp.client.call.hedges",
		metric.WithUnit("{hedge}"),
		metric.WithDescription("Number of attempts that were sent beside another."))
	wins, err7 := m.Int64Counter("retryhttp.client.call.hedge_wins",
		metric.WithUnit("{hedge}"),
		metric.WithDescription("Number of requests whose response is a hedge's."))
	resumed, err8 := m.Int64Counter("retryhttp.client.body.resumptions",
		metric.WithUnit("{resumption}"),
		metric.WithDescription("Number of attempts to continue a response's body that had broken off."))
	tokens, err9 := m.Float64Gauge("retryhttp.client.budget.tokens",
		metric.WithUnit("{token}"),
		metric.WithDescription("Number of retries that the budget held when a request had ended."))
	// This is not an observable gauge. A Gate does not list its keys, and a callback could not
	// be unregistered when the Transport is no longer used.
	waiting, err10 := m.Int64Gauge("retryhttp.client.gate.held",
		metric.WithUnit("{request}"),
		metric.WithDescription("Number of requests that the Gate held after an attempt, or when a request had ended."))
	due, err11 := m.Float64Gauge("retryhttp.client.hedge.delay",
		metric.WithUnit("s"),
		metric.WithDescription("Time after which the Hedge sent a second attempt, when a request had ended."))
	for _, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11} {
		if err != nil {
			otel.Handle(err)
		}
	}
	return &metrics{
		attempts: attempts, retries: retries, delay: delay, held: held, stops: stops,
		hedges: hedges, wins: wins, resumed: resumed, tokens: tokens, waiting: waiting, due: due,
	}
}

// observe returns p with hooks that record before they call p's own hooks.
//
// One of the two hooks follows each attempt. While a host is down, its requests do not end:
// without OnRetry, the gauge of the Gate would not show that they are held.
func (m *metrics) observe(p retryhttp.Policy) retryhttp.Policy {
	onRetry, onDone := p.OnRetry, p.OnDone
	p.OnRetry = func(a retryhttp.Attempt) {
		if req := a.Request; m.gate != nil && req.URL != nil {
			m.recordHeld(req, metric.WithAttributes(serverOf(req)...))
		}
		if onRetry != nil {
			onRetry(a)
		}
	}
	p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
		m.recordEnd(a, o)
		if onDone != nil {
			onDone(a, o)
		}
	}
	return p
}

// share makes the gauges show what the requests of t share: its Budget, its Gate and its
// Hedge.
func (m *metrics) share(t *retryhttp.Transport) {
	p := policyOf(t)
	m.budget, _ = p.Budget.(balance)
	if p.Gate.Hold >= 0 {
		m.gate = p.Gate
	}
	m.hedge = p.Hedge
}

// policyOf returns t's Policy, whose Budget and Gate may be t's own. An edit of the policy
// sees the Policy after the defaults have been filled in. So policyOf makes a request with an
// edit and a context that has already ended.
func policyOf(t *retryhttp.Transport) (policy retryhttp.Policy) {
	ctx, cancel := context.WithCancel(retryhttp.WithPolicy(context.Background(), func(p *retryhttp.Policy) {
		policy = *p
		*p = retryhttp.Policy{} // so that no hook is called
	}))
	cancel()
	_, _ = t.RoundTrip((&http.Request{}).WithContext(ctx)) //nolint:bodyclose // there is none
	return policy
}

// recordShared records the state that requests share, as req has left it.
func (m *metrics) recordShared(req *http.Request, attrs []attribute.KeyValue) {
	if req.URL == nil { // a Key may look at the URL
		return
	}
	server := metric.WithAttributes(attrs...)
	if m.budget != nil {
		m.tokens.Record(req.Context(), m.budget.Tokens(req), server)
	}
	if m.gate != nil {
		m.recordHeld(req, server)
	}
	if m.hedge == nil {
		return
	}
	if delay, ok := m.hedge.Delay(req); ok {
		m.due.Record(req.Context(), delay.Seconds(), server)
	}
}

// recordResumption records an attempt to continue the body of req's response. The other
// measurements of the request were recorded when the header of that response arrived.
func (m *metrics) recordResumption(req *http.Request) {
	m.resumed.Add(req.Context(), 1, metric.WithAttributes(append(serverOf(req), methodOf(req))...))
}

func (m *metrics) recordEnd(a retryhttp.Attempt, o retryhttp.Outcome) {
	req := a.Request
	ctx := req.Context()
	attrs := serverOf(req)
	m.recordShared(req, attrs)
	attrs = append(attrs, methodOf(req))
	call := metric.WithAttributeSet(attribute.NewSet(attrs...))
	m.attempts.Record(ctx, int64(o.Attempts), call)
	if retries := o.Attempts - 1 - o.Hedges; retries > 0 {
		m.retries.Record(ctx, int64(retries), call)
		m.delay.Record(ctx, o.Waited.Seconds(), call)
	}
	if o.Hedges > 0 {
		m.hedges.Add(ctx, int64(o.Hedges), call)
	}
	if o.HedgeWon {
		m.wins.Add(ctx, 1, call)
	}
	if o.Held > 0 { // also before a first attempt
		m.held.Record(ctx, o.Held.Seconds(), call)
	}
	m.stops.Add(ctx, 1, metric.WithAttributes(append(attrs, endOf(a, o)...)...))
}

// endOf returns the attributes of how a request ended: a is its last attempt.
func endOf(a retryhttp.Attempt, o retryhttp.Outcome) []attribute.KeyValue {
	attrs := []attribute.KeyValue{stopKey.String(string(o.Stop))}
	switch {
	case a.Err != nil:
		attrs = append(attrs, errorType(a.Err))
	case a.Response != nil:
		attrs = append(attrs, semconv.HTTPResponseStatusCode(a.Response.StatusCode))
	}
	if o.Ambiguous {
		attrs = append(attrs, ambiguousKey.Bool(true))
	}
	return attrs
}

// recordHeld records how many requests with req's key are held. Another goroutine may record a
// newer number before an older number. So a number above 0 is read again after it has been
// recorded: the gauge returns to 0 when no request is held.
func (m *metrics) recordHeld(req *http.Request, server metric.RecordOption) {
	for recorded := -1; recorded != 0; {
		now := m.gate.Held(req)
		if now == recorded {
			return
		}
		m.waiting.Record(req.Context(), int64(now), server)
		recorded = now
	}
}

// serverOf returns the attributes server.address and server.port.
func serverOf(req *http.Request) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 6)
	if req.URL == nil {
		return attrs
	}
	// A caller may have put userinfo into the host.
	u := url.URL{Host: req.URL.Host[strings.LastIndexByte(req.URL.Host, '@')+1:]}
	attrs = append(attrs, semconv.ServerAddress(u.Hostname()))
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
		return append(attrs, semconv.ServerPort(port))
	case req.URL.Scheme == "https":
		return append(attrs, semconv.ServerPort(443))
	case req.URL.Scheme == "http":
		return append(attrs, semconv.ServerPort(80))
	}
	return attrs
}

// knownMethods are the methods of the semantic conventions. If other methods were reported, a
// caller that chooses methods could make time series without end.
var knownMethods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", "QUERY"}

func methodOf(req *http.Request) attribute.KeyValue {
	switch {
	case req.Method == "":
		return semconv.HTTPRequestMethodGet
	case slices.Contains(knownMethods, req.Method):
		return semconv.HTTPRequestMethodKey.String(req.Method)
	}
	return semconv.HTTPRequestMethodOther
}
