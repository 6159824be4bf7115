// Package otelretry reports the attempts and the requests of a retryhttp.Transport to
// OpenTelemetry.
//
//	client := &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{})}
//
// It uses the global MeterProvider and TracerProvider, unless an option sets others. examples/operate has a
// program with an exporter for Prometheus, a dashboard and alerts.
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
//     not, the first attempt is the parent of its retries. There is no span around them, as the
//     semantic conventions for HTTP ask.
//   - A resend has the attribute http.request.resend_count, from 1, and a link to the previous
//     attempt. The redirects that an http.Client follows are resends too, unless a layer in
//     between replaces Response.Request, as another retryhttp.Transport does.
//   - A request that a Gate has held, or that has waited for a token, says so in the span of its
//     next attempt: the event retryhttp.held has retryhttp.held.duration, in seconds, and
//     retryhttp.held.in_line, the part of it without a token. If there is no next attempt, the
//     event is in the span around the request, without that part. If there is no such span either,
//     no span says it, because the spans of the attempts have ended: call.held and Outcome.Held do.
//   - With Policy.Hedge, two attempts may be under way at once. A hedge is a resend too, and
//     has the attribute retryhttp.hedge, which is true. Without a span around the request, a hedge
//     has no parent, because it overlaps the first attempt: it has the same trace, and the link.
//     If another attempt wins before a span ends, the span gets the attribute
//     retryhttp.superseded, which is true, and no error. A hedge that has lost may end later than
//     the span around the request.
//   - An attempt that took a detour of a retryhttp.Base has the attribute retryhttp.detour, which
//     is true.
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
//	retryhttp.client.call.retry_delay  histogram, s          time without an attempt under way, of requests that were retried
//	retryhttp.client.call.held         histogram, s          time that a Gate held the request; 0 is not reported
//	retryhttp.client.call.stops        counter, {call}       requests, by how they ended
//	retryhttp.client.call.waiting      up-down, {call}       requests that wait between two attempts
//	retryhttp.client.call.hedges       counter, {hedge}      attempts that were sent beside another attempt
//	retryhttp.client.call.hedge_wins   counter, {hedge}      hedges whose response the caller got
//	retryhttp.client.call.hedges_refused counter, {hedge}    requests of which the Budget refused a hedge
//	retryhttp.client.call.detours      counter, {attempt}    attempts that took a detour of a retryhttp.Base
//	retryhttp.client.body.resumptions  counter, {resumption} attempts made to continue a body that had broken off
//	retryhttp.client.body.given_up     counter, {body}       bodies that Policy.Resume did not continue, by the reason
//	retryhttp.client.budget.tokens     gauge, {token}        tokens in the budget when a request had ended
//	retryhttp.client.budget.sparing    gauge, {budget}       1 if a success earned only Ratio, 0 if it earned HealthyRatio
//	retryhttp.client.budget.shared     gauge, {budget}       1 if a fleet's balance decided, 0 if the process was alone
//	retryhttp.client.budget.view_time  gauge, s              Unix time of the process's view of a fleet's balance
//	retryhttp.client.gate.held         gauge, {request}      requests that the Gate held, after each attempt
//	retryhttp.client.gate.in_line      gauge, {request}      the part of gate.held that waited for a token
//	retryhttp.client.gate.closed_until gauge, s              Unix time until which a Retry-After or a limit closed the server
//	retryhttp.client.hedge.delay       gauge, s              Hedge.Delay when a request had ended; not reported if there is none
//
// All metrics have the attribute server.address. They have server.port for http and https, or
// if the URL has a port. [WithServer] changes both. All except the gauges have http.request.method. call.stops has more:
//
//	retryhttp.stop             why no other attempt was made, a retryhttp.Stop, or "panic"
//	http.response.status_code  the status of the last attempt's response, or its class as below
//	error.type                 that status from 400 on, or the type of the last attempt's error
//	retryhttp.ambiguous        true if Outcome.Ambiguous is, otherwise absent
//	retryhttp.repeated         true if such a request was sent more than once, otherwise absent
//
// A status that is not in IANA's registry is counted as the x00 of its class, as RFC 9110 has clients
// take it: a 499 as 400, and a 520 as 500. A status outside of 100 to 599 is a 500. So a server cannot
// fill the SDK's limit of attribute sets with statuses. The spans have the status as it was.
//
// The requests that failed in the end have an error.type. retryhttp.ambiguous marks the writes
// that may have taken effect unnoticed, and retryhttp.repeated the writes that may have taken
// effect twice, unless the server knows their idempotency keys.
//
// A request that panicked has "panic" as its retryhttp.stop and its error.type, whether the base panicked
// or a function of the Policy, and also if it called runtime.Goexit. It is in no other metric of call. If
// Policy.OnDone panics, the request has been recorded before.
//
// body.given_up has retryhttp.reason: "changed" for retryhttp.ErrChanged, "not-resumable" for
// retryhttp.ErrNotResumable, or the Stop that ended the resumptions. A body that its
// caller closes is not counted.
//
// error.type is the full name of the error's Go type, without a pointer. An attempt that got no
// response has one in its span and in otelhttp's metrics, with the same spelling:
//
//	net.OpError, for example                                 the attempt failed
//	github.com/retryhttp/retryhttp/otelretry.canceledError   the caller canceled the request
//	context.deadlineExceededError                            the caller's deadline passed
//	github.com/retryhttp/retryhttp.supersededError           another attempt won; only in the metrics
//
// The gauges show the Policy's Budget, Gate and Hedge, even if retryhttp.WithPolicy has
// replaced them. A gauge has one value for each server. With [WithKey] it has one for each key of a
// server. Otherwise the last value counts if the requests to one server have several keys. It also
// counts if Transports share a MeterProvider, but not a Budget, a Gate or a Hedge. Some gauges are
// seldom above 0: in_line and sparing report a 0 only once, or after another value. So a Transport
// that is no longer used may leave a 1 in sparing for good. Transports that come and go had better
// share a Budget.
//
// budget.shared is also 0 after a process's first request for a key, which ends before the first
// answer, and it stays 0 until the next request.
//
// call.waiting counts backoffs, holds and waits in line. A first attempt that waits is in gate.held
// alone. A retry that has no token after a success whose body broke off counts from its token on.
//
// Exemplars name the span around the request, or else the span of its first attempt.
//
// The metrics of call are recorded once, when the response's header or the error arrives. They
// do not include what Policy.Resume does later. But call.detours is recorded for each attempt, and
// includes the attempts that resume a body. The gauges are recorded again when a Read that
// resumes a body returns.
//
// retry_delay is Outcome.Waited: it includes a hold of the first attempt, and a wait after which no attempt
// came. Of a request that was retried, call.held is a part of it. gate.held is recorded when
// OnRetry is called, and when a request has ended. A held request appears in gate.held when
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
// span. As with retryhttp.New, a nil base is retryhttp.NewBase(nil), and an *http.Transport t is
// retryhttp.NewBase(t).
//
// p.OnRetry and p.OnDone are called after the metrics have been recorded. The functions of p,
// the functions of an edit by retryhttp.WithPolicy, the Budget, the Gate and the Hedge get a
// copy of the caller's request.
//
// An edit never finds OnRetry or OnDone nil. If an edit replaces OnDone, nothing is recorded
// at the end of that request. If it replaces OnRetry, gate.held is recorded only at the end of
// that request.
//
// The gauges of budget need a Budget that has TokenBucket's method Status. budget.shared and
// budget.view_time need a Status that is of a Fleet, as package redisbudget has.
// The gauges of gate need a Gate whose Hold is not negative. hedge.delay needs a Hedge.
func New(base http.RoundTripper, p retryhttp.Policy, opts ...Option) *Transport {
	// By default otelhttp uses the tracer of the span around a request. A span that came from
	// another process has no tracer.
	c := config{http: []otelhttp.Option{otelhttp.WithTracerProvider(otel.GetTracerProvider())}}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	switch b := base.(type) {
	case nil:
		base = retryhttp.NewBase(nil)
	case *http.Transport:
		base = retryhttp.NewBase(b)
	}
	m := c.newMetrics()
	attempts := beforeSpan{otelhttp.NewTransport(withinSpan{base}, c.http...), m}
	t := &Transport{retryhttp.New(attempts, m.observe(p)), base, m}
	m.shared = sharedBy(t.retry)
	return t
}

// RoundTrip does what the RoundTrip of retryhttp.Transport does. If the response is a
// redirect, its Request is a copy of req, even if retryhttp would return req itself.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil {
		t = new(Transport) // retryhttp returns an error for it
	}
	op := begin(req, t.metrics)
	defer op.leave()
	resp, err := t.retry.RoundTrip(&op.request)
	op.counted.Store(true)
	if err == nil {
		op.end(resp, req)
		if mayResume(&op.request, resp) {
			resp.Body = &resumable{ReadCloser: resp.Body, op: op, metrics: t.metrics}
		}
	}
	return resp, err
}

// CloseIdleConnections closes the base's idle connections, if it has any.
// http.Client.CloseIdleConnections calls it; otelhttp's transport does not forward the call.
func (t *Transport) CloseIdleConnections() {
	if t == nil {
		return
	}
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Option configures the telemetry of a Transport.
type Option func(*config)

type config struct {
	meter  metric.MeterProvider
	key    func(*http.Request) string
	server func(*http.Request) string
	http   []otelhttp.Option
}

// WithKey adds the attribute retryhttp.key to the gauges of the Budget, the Gate and the Hedge.
// key is usually their Key, if they have one. The first 100 keys of the Transport keep their names,
// which must be no secrets, and all others are called _OTHER. Bytes that are not UTF-8 are replaced,
// because exporters reject them. A nil key changes nothing.
func WithKey(key func(*http.Request) string) Option {
	return func(c *config) {
		if key != nil {
			c.key = key
		}
	}
}

// WithServer names the servers in this package's metrics. server.address is what name returns for a
// request, and there is no server.port. If name returns "", there is no server.address either. A
// program that sends to hosts of its customers' choice names them by few names: the SDK counts requests
// beyond its limit of attribute sets, 2,000 by default, together and without their attributes.
//
// name is called several times for a request, and for several requests at once. A nil name changes
// nothing. The metric of otelhttp keeps the host. The Example has a View for it.
func WithServer(name func(*http.Request) string) Option {
	return func(c *config) {
		if name != nil {
			c.server = name
		}
	}
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
		metric.WithSchemaURL(semconv.SchemaURL)), c.key, c.server)
}
