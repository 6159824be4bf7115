package otelretry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// instruments are what measurements are recorded with. An instrument that cannot be made is
// present, and does nothing.
type instruments struct {
	attempts metric.Int64Histogram
	retries  metric.Int64Histogram
	delay    metric.Float64Histogram
	held     metric.Float64Histogram
	stops    metric.Int64Counter
	waiting  metric.Int64UpDownCounter
	hedges   metric.Int64Counter
	wins     metric.Int64Counter
	refused  metric.Int64Counter
	detours  metric.Int64Counter
	resumed  metric.Int64Counter
	givenUp  metric.Int64Counter

	// These are not observable gauges. A Gate and a Budget do not list their keys, and a callback
	// could not be unregistered when the Transport is no longer used.
	tokens      metric.Float64Gauge
	sparing     metric.Int64Gauge
	decides     metric.Int64Gauge
	viewTime    metric.Float64Gauge
	gateHeld    metric.Int64Gauge
	inLine      metric.Int64Gauge
	closedUntil metric.Float64Gauge
	hedgeDelay  metric.Float64Gauge
}

var (
	counts = metric.WithExplicitBucketBoundaries(1, 2, 3, 4, 5, 10)

	// Edges lie a little above the multiples of a Gate's default Hold of 5 s, because a percentile is
	// taken between the edges: with edges at 5 and 10, a hold of 5.05 s would show as nearly 10.
	seconds = metric.WithExplicitBucketBoundaries(
		0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5.5, 7.5, 10.5, 15.5, 20, 30, 60, 120)
)

func newInstruments(meter metric.Meter) instruments {
	m := maker{meter}
	return instruments{
		attempts: m.counts("call.attempts", "{attempt}", "Number of attempts made for the request."),
		retries: m.counts("call.retries", "{retry}",
			"Number of attempts after the first that are no hedges. If there were none, 0 is not reported."),
		delay: m.times("call.retry_delay", "Time in which no attempt of a request that was retried was under way."),
		held:  m.times("call.held", "Time that a Gate held the request, of requests that were held."),
		stops: m.counter("call.stops", "{call}",
			"Number of requests, by their last result and by why there was no further attempt."),
		waiting: m.upDown("call.waiting", "{call}", "Number of requests that wait for their next attempt."),
		hedges:  m.counter("call.hedges", "{hedge}", "Number of attempts that were sent beside another."),
		wins:    m.counter("call.hedge_wins", "{hedge}", "Number of requests whose response is a hedge's."),
		refused: m.counter("call.hedges_refused", "{hedge}", "Number of requests of which the Budget refused a hedge."),
		detours: m.counter("call.detours", "{attempt}",
			"Number of attempts that took a connection beside the pool, because a host's other connections fail."),
		resumed: m.counter("body.resumptions", "{resumption}",
			"Number of attempts to continue a response's body that had broken off."),
		givenUp: m.counter("body.given_up", "{body}",
			"Number of response bodies that broke off and were not continued, by the reason."),

		tokens: m.level("budget.tokens", "{token}",
			"Number of retries that the budget held when a request had ended."),
		sparing: m.number("budget.sparing", "{budget}",
			"1 if a success earned only the budget's Ratio when a request had ended, 0 if it earned HealthyRatio."),
		decides: m.number("budget.shared", "{budget}",
			"1 if the balance that a fleet shares decided when a request had ended, 0 if the process decided alone."),
		viewTime: m.level("budget.view_time", "s",
			"Unix time of the process's view of the balance that a fleet shares."),
		gateHeld: m.number("gate.held", "{request}",
			"Number of requests that the Gate held after an attempt, or when a request had ended."),
		inLine: m.number("gate.in_line", "{request}",
			"Number of the held requests that waited for a token of their budget."),
		closedUntil: m.level("gate.closed_until", "s",
			"Unix time until which a Retry-After or a rate limit has closed the server."),
		hedgeDelay: m.level("hedge.delay", "s",
			"Time after which the Hedge sent a second attempt, when a request had ended."),
	}
}

// maker makes instruments of this package, whose names begin with retryhttp.client.
type maker struct{ meter metric.Meter }

const prefix = "retryhttp.client."

func (m maker) counts(name, unit, description string) metric.Int64Histogram {
	instrument, err := m.meter.Int64Histogram(prefix+name, metric.WithUnit(unit), metric.WithDescription(description), counts)
	return made[metric.Int64Histogram](instrument, err, noop.Int64Histogram{})
}

func (m maker) times(name, description string) metric.Float64Histogram {
	instrument, err := m.meter.Float64Histogram(prefix+name, metric.WithUnit("s"), metric.WithDescription(description), seconds)
	return made[metric.Float64Histogram](instrument, err, noop.Float64Histogram{})
}

func (m maker) counter(name, unit, description string) metric.Int64Counter {
	instrument, err := m.meter.Int64Counter(prefix+name, metric.WithUnit(unit), metric.WithDescription(description))
	return made[metric.Int64Counter](instrument, err, noop.Int64Counter{})
}

func (m maker) upDown(name, unit, description string) metric.Int64UpDownCounter {
	instrument, err := m.meter.Int64UpDownCounter(prefix+name, metric.WithUnit(unit), metric.WithDescription(description))
	return made[metric.Int64UpDownCounter](instrument, err, noop.Int64UpDownCounter{})
}

func (m maker) number(name, unit, description string) metric.Int64Gauge {
	instrument, err := m.meter.Int64Gauge(prefix+name, metric.WithUnit(unit), metric.WithDescription(description))
	return made[metric.Int64Gauge](instrument, err, noop.Int64Gauge{})
}

func (m maker) level(name, unit, description string) metric.Float64Gauge {
	instrument, err := m.meter.Float64Gauge(prefix+name, metric.WithUnit(unit), metric.WithDescription(description))
	return made[metric.Float64Gauge](instrument, err, noop.Float64Gauge{})
}

// made returns the instrument, or none if a MeterProvider of somebody else's returned nil.
func made[T any](instrument T, err error, none T) T {
	if err != nil {
		otel.Handle(err)
	}
	if any(instrument) == nil {
		return none
	}
	return instrument
}
