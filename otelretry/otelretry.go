// Package otelretry reports the attempts and the requests of a retryhttp.Transport to
// OpenTelemetry.
//
//	client := &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{})}
//
// # Traces
//
// Each attempt has its own client span, which otelhttp makes. otelhttp also sends the span's
// context to the server, if otel.SetTextMapPropagator, or otelhttp.WithPropagators in
// [WithHTTP], configures how. otelhttp reports the URL of an attempt without its user, but
// with its query. The description of a span's error is the text of a *retryhttp.Error: it
// quotes no header, query or userinfo. The spans of one request read as one operation:
//
//   - If the request is made within a span, all of its attempts are children of that span. If
//     not, the first attempt is the parent of the others. There is no span around them, as the
//     semantic conventions for HTTP ask.
//   - A resend has the attribute http.request.resend_count, from 1, and a link to the previous
//     attempt. The redirects that an http.Client follows are resends too, unless a layer in
//     between replaces Response.Request, as another retryhttp.Transport does.
//   - With Policy.Hedge, two attempts may be under way at once. A hedge is a resend too, and
//     has the attribute retryhttp.hedge, which is true. If another attempt wins before a span
//     ends, the span gets the attribute retryhttp.superseded, which is true, and no error. A
//     hedge that has lost may end later than the span around the request.
//   - A body that breaks off or stalls ends its attempt's span with that error. With
//     Policy.Resume, the attempts that continue the body are resends, too. The body's Read
//     sends them, so they may begin after the span around the request has ended.
//
// Resends by net/http itself are part of the attempt's span. A resend by a Transport above
// this Transport is a new operation, for the metrics too.
//
// # Metrics
//
// otelhttp measures each attempt. The metrics of requests are named after the metrics of
// gRPC's proposal A96, where retries, retry_delay and hedges have their counterparts:
//
//	retryhttp.client.call.attempts     histogram, {attempt}  attempts made
//	retryhttp.client.call.retries      histogram, {retry}    attempts after the first, except hedges; 0 is not reported
//	retryhttp.client.call.retry_delay  histogram, s          time between attempts, of requests that were retried
//	retryhttp.client.call.held         histogram, s          time that a Gate held the request; 0 is not reported
//	retryhttp.client.call.stops        counter, {call}       requests, by how they ended
//	retryhttp.client.call.hedges       counter, {hedge}      attempts that were sent beside another attempt
//	retryhttp.client.call.hedge_wins   counter, {hedge}      hedges whose response the caller got
//	retryhttp.client.body.resumptions  counter, {resumption} attempts made to continue a body that had broken off
//	retryhttp.client.budget.tokens     gauge, {token}        tokens in the budget when a request had ended
//	retryhttp.client.gate.held         gauge, {request}      requests that the Gate held, after each attempt
//	retryhttp.client.hedge.delay       gauge, s              Hedge.Delay when a request had ended; not reported if there is none
//
// All metrics have the attribute server.address. They have server.port for http and https, or
// if the URL has a port. All except the gauges have http.request.method. call.stops has more:
//
//	retryhttp.stop             why no other attempt was made, a retryhttp.Stop
//	http.response.status_code  the status of the last attempt's response
//	error.type                 the type of the last attempt's error, if there is no status
//	retryhttp.ambiguous        true if Outcome.Ambiguous is, otherwise absent
//
// So the requests that failed in the end have an error.type, or a status that means failure.
// retryhttp.ambiguous marks the writes that may have taken effect unnoticed.
//
// error.type is the full name of the error's Go type, without a pointer. An attempt that got no
// response has one in its span and in otelhttp's metrics, with the same spelling:
//
//	net.OpError, for example                        the attempt failed
//	github.com/retryhttp/retryhttp.supersededError  another attempt won; only in the metrics
//
// The gauges show the Policy's Budget, Gate and Hedge, even if retryhttp.WithPolicy has
// replaced them. A gauge has one value for each server. The last value counts if the requests
// to one server have several keys. It also counts if Transports share a MeterProvider, but not
// a Budget, a Gate or a Hedge.
//
// The metrics of call are recorded once, when the response's header or the error arrives. They
// do not include what Policy.Resume does later. The gauges are recorded again when a Read that
// resumes a body returns.
//
// call.held is part of retry_delay, except for a first attempt. gate.held is recorded before
// each retry's wait, and when a request has ended. A held request appears in gate.held when
// the next attempt ends. gate.held returns to 0 when the last held request, or the last held
// resumption, ends.
package otelretry

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/retryhttp/retryhttp"
)

// ScopeName is the name of the instrumentation scope of this package's metrics. The version of
// the scope is the module's version in the program, and is empty if the build does not record it.
const ScopeName = "github.com/retryhttp/retryhttp/otelretry"

// Transport is a retryhttp.Transport with telemetry, made by [New]. It is safe for concurrent
// use.
type Transport struct {
	retry *retryhttp.Transport
	base  http.RoundTripper

	metrics *metrics
}

// New returns a Transport that retries as retryhttp.New(base, p) does. Its spans and metrics
// go to the global providers, unless an option says otherwise.
//
// Each span wraps one call of base, so a base that signs or authenticates is included in the
// span. A nil base is a pooled transport of its own, as with retryhttp.New.
//
// p.OnRetry and p.OnDone are called after the metrics have been recorded. The functions of p,
// the functions of an edit by retryhttp.WithPolicy, the Budget, the Gate and the Hedge get a
// copy of the caller's request.
//
// An edit never finds OnRetry or OnDone nil. If an edit replaces OnDone, nothing is recorded
// at the end of that request. If it replaces OnRetry, gate.held is recorded only at the end of
// that request.
//
// budget.tokens needs a Budget that has TokenBucket's method Tokens. gate.held needs a Gate
// whose Hold is not negative. hedge.delay needs a Hedge.
func New(base http.RoundTripper, p retryhttp.Policy, opts ...Option) *Transport {
	// By default otelhttp uses the tracer of the span around a request. A span that came from
	// another process has no tracer.
	c := config{http: []otelhttp.Option{otelhttp.WithTracerProvider(otel.GetTracerProvider())}}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if base == nil {
		base = newPools()
	}
	m := c.newMetrics()
	attempts := beforeSpan{otelhttp.NewTransport(withinSpan{base}, c.http...), m}
	t := &Transport{retryhttp.New(attempts, m.observe(p)), base, m}
	m.share(t.retry)
	return t
}

// RoundTrip does what the RoundTrip of retryhttp.Transport does. If the response is a
// redirect, its Request is a copy of req, even if retryhttp would return req itself.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil {
		t = new(Transport) // retryhttp returns an error for it
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

// CloseIdleConnections closes the base's idle connections, if it has any.
// http.Client.CloseIdleConnections calls it; otelhttp's transport does not forward the call.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Option configures the telemetry of a Transport.
type Option func(*config)

type config struct {
	meter metric.MeterProvider
	http  []otelhttp.Option
}

// WithMeterProvider sends the metrics of requests and of attempts to mp. A nil mp changes
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

// WithHTTP passes options to otelhttp, which makes the spans of attempts: its
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
	return newMetrics(mp.Meter(ScopeName,
		metric.WithInstrumentationVersion(version()),
		metric.WithSchemaURL(semconv.SchemaURL)))
}
