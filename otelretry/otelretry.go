// Package otelretry reports to OpenTelemetry what a retryhttp.Transport does.
//
//	client := &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{})}
//
// # Traces
//
// Each attempt has a client span of its own, by otelhttp. otelhttp also sends the
// span's context to the server, once otel.SetTextMapPropagator, or
// otelhttp.WithPropagators in [WithHTTP], says how. It reports the URL of an attempt
// without its user, but with its query. The description of a span's error is the text
// of a *retryhttp.Error: it quotes no header, query or userinfo. The spans of one
// request read as one operation:
//
//   - If the request is made within a span, all of its attempts are that span's
//     children. If not, the first attempt is the parent of the others. There is no
//     span around them, as the semantic conventions for HTTP ask.
//   - A resend has the attribute http.request.resend_count, from 1, and a link to
//     the attempt before. The redirects that an http.Client follows are resends too,
//     if nothing in between replaces a Response.Request, as another retryhttp.Transport
//     does.
//   - With Policy.Hedge, two attempts may be under way at once. A hedge is a resend too,
//     and has the attribute retryhttp.hedge, which is true. If another attempt wins before
//     a span ends, the span gets the attribute retryhttp.superseded, which is true, and no
//     error. A hedge that has lost may end later than the span around the request.
//   - A body that breaks off or stalls ends its attempt's span in that error. With
//     Policy.Resume, the attempts that continue the body are resends, too. They are sent
//     from within its Read, and so they may begin after the span around the request has
//     ended.
//
// What net/http resends by itself is part of the attempt's span. What a Transport above
// this one sends again is a new operation, for the metrics too.
//
// # Metrics
//
// otelhttp measures each attempt. There an attempt that is canceled because another has won
// counts as an error. The metrics of requests are named after the metrics of gRPC's proposal
// A96, where retries, retry_delay and hedges have their counterparts:
//
//	retryhttp.client.call.attempts     histogram, {attempt}  attempts made
//	retryhttp.client.call.retries      histogram, {retry}    attempts after the first that are no hedges; 0 is not reported
//	retryhttp.client.call.retry_delay  histogram, s          time between attempts, of requests that were retried
//	retryhttp.client.call.held         histogram, s          time that a Gate held the request; 0 is not reported
//	retryhttp.client.call.stops        counter, {call}       requests, by why no other attempt was made: retryhttp.stop
//	retryhttp.client.call.hedges       counter, {hedge}      attempts that were sent beside another
//	retryhttp.client.call.hedge_wins   counter, {hedge}      hedges whose response the caller got
//	retryhttp.client.body.resumptions  counter, {resumption} attempts made to continue a body that had broken off
//	retryhttp.client.budget.tokens     gauge, {token}        what the budget held when a request had ended
//	retryhttp.client.gate.held         gauge, {request}      requests that the Gate held, after each attempt
//	retryhttp.client.hedge.delay       gauge, s              Hedge.Delay when a request had ended; nothing if there is none
//
// All have http.request.method, server.address and, for http and https or where the
// URL has one, server.port; the gauges have no method. retryhttp.stop is a
// [retryhttp.Stop]. The gauges show the Policy's Budget, Gate and Hedge, even if
// retryhttp.WithPolicy has put others in their place. A gauge has one value for each
// server. The last value counts if the requests to one server have several keys. It also
// counts if Transports share a MeterProvider, but not a Budget, a Gate or a Hedge.
//
// The metrics of call are recorded once, at the response's header or the error. What
// Policy.Resume does after that is not part of them. The gauges are recorded again when a
// Read that resumes a body returns.
//
// call.held is part of retry_delay, except for a first attempt. gate.held is recorded
// before each retry's wait, and when a request has ended. A request that is held shows
// in it with the next attempt that ends. The end of the last held request, or of the last
// held resumption, brings it back to 0.
package otelretry

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/pooled"
)

// ScopeName is the name of the instrumentation scope of this package's metrics.
const ScopeName = "github.com/retryhttp/retryhttp/otelretry"

// Transport is a retryhttp.Transport with telemetry. It is made by [New], and is
// safe for concurrent use.
type Transport struct {
	retry *retryhttp.Transport
	base  http.RoundTripper

	metrics *metrics
}

// New returns a Transport that retries as retryhttp.New(base, p) does. Its spans
// and metrics go to the global providers, unless an option says otherwise.
//
// base is what each span is around: what signs or authenticates an attempt may be
// part of it. A nil base is a pooled transport of its own, as with retryhttp.New.
//
// p.OnRetry and p.OnDone are called after the metrics have been recorded. The functions of
// p, the functions of an edit by retryhttp.WithPolicy, the Budget, the Gate and the Hedge
// get a copy of the caller's request. An edit never finds OnRetry or OnDone nil. If it
// replaces OnDone, it ends the metrics of that request. If it replaces OnRetry, gate.held is
// recorded at the end of that request only. budget.tokens is there for a Budget that has
// TokenBucket's method Tokens, gate.held for a Gate whose Hold is not negative, and
// hedge.delay for a Hedge.
func New(base http.RoundTripper, p retryhttp.Policy, opts ...Option) *Transport {
	// otelhttp would take the tracer of the span around a request, and one that came
	// from another process has none.
	c := config{http: []otelhttp.Option{otelhttp.WithTracerProvider(otel.GetTracerProvider())}}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if base == nil {
		base = pooled.Transport()
	}
	m := c.newMetrics()
	attempts := beforeSpan{otelhttp.NewTransport(withinSpan{base}, c.http...), m}
	t := &Transport{retryhttp.New(attempts, m.observe(p)), base, m}
	m.share(t.retry)
	return t
}

// RoundTrip does what the RoundTrip of retryhttp.Transport does. The response's Request is
// a copy of req if the response is a redirect, even if retryhttp would return req itself.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil {
		t = new(Transport) // which retryhttp refuses
	}
	op := begin(req)
	resp, err := t.retry.RoundTrip(&op.request)
	if err == nil {
		op.end(resp, req)
		if mayResume(&op.request, resp) {
			resp.Body = &resumable{resp.Body, op, t.metrics}
		}
	}
	return resp, err
}

// CloseIdleConnections closes the base's idle connections, if it has any. It is what
// makes http.Client.CloseIdleConnections work; otelhttp's transport does not hand
// it on.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Option changes where telemetry goes to.
type Option func(*config)

type config struct {
	meter metric.MeterProvider
	http  []otelhttp.Option
}

// WithMeterProvider has the metrics of requests and of attempts go to mp. Nil changes
// nothing.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *config) {
		if mp == nil {
			return
		}
		c.meter = mp
		c.http = append(c.http, otelhttp.WithMeterProvider(mp))
	}
}

// WithHTTP hands options on to otelhttp, which makes the spans of attempts: its
// WithTracerProvider, WithPropagators, WithFilter or WithSpanNameFormatter.
func WithHTTP(opts ...otelhttp.Option) Option {
	return func(c *config) {
		for _, o := range opts {
			if o != nil {
				c.http = append(c.http, o)
			}
		}
	}
}

func (c *config) newMetrics() *metrics {
	mp := c.meter
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	return newMetrics(mp.Meter(ScopeName))
}
