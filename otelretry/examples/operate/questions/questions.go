// Package questions holds what a person on call asks about requests, as PromQL.
package questions

import "strings"

// Question is answered by a query. OpenTelemetry's exporter for Prometheus makes the names of its
// metrics out of the names in package otelretry.
type Question struct {
	ID    string
	Title string
	Query string // with $window for the range of rates, and $step for the precision of times
	Unit  string // of a dashboard's panel
	Group string // the row of a dashboard
	Table bool   // the answer is a list, and no graph
}

// In returns the query with a window, such as 5m, and a step, such as 15s.
func (q Question) In(window, step string) string {
	return strings.NewReplacer("$window", window, "$step", step).Replace(q.Query)
}

// The groups, in the order in which a person on call looks at them.
const (
	Failures  = "Failures"
	Retries   = "Retries and budgets"
	Waits     = "Waits"
	Writes    = "Writes"
	Hedges    = "Hedges"
	Downloads = "Downloads"
)

const (
	// A Prometheus may scrape several services that send to one host. The answers are of each of them.
	server = " by (job, server_address, server_port) "

	// failed selects failures: no response, or a status that is worth a retry. A canceled request is
	// no failure, and an attempt that another attempt has beaten is none.
	failed = `error_type=~"408|429|5..|.*[a-zA-Z].*", error_type!~".*(canceled|superseded)Error"`

	attempts = "http_client_request_duration_seconds_count"
	// An attempt without a response has no status. otelhttp gives an attempt with a status no
	// error.type.
	down  = attempts + `{http_response_status_code!~"[1-4]..", error_type!~".*(canceled|superseded)Error"}`
	stops = "retryhttp_client_call_stops_total"

	downShare = "sum" + server + "(rate(" + down + "[$window])) / sum" + server + "(rate(" + attempts + "[$window]))"
	// sometimes is the share of failed attempts from which a host counts as failing.
	sometimes = "0.1"

	waiting = "sum" + server + "(retryhttp_client_call_waiting)"
	held    = "sum" + server + "(retryhttp_client_gate_held)"
	line    = "sum" + server + "(retryhttp_client_gate_in_line)"
)

// grown returns by how much a counter has grown in the window. increase alone would miss the first
// event of a series, which begins with 1. A series is new if it had no value for a whole window: a
// scrape that failed would make all series look new.
func grown(counter string) string {
	return "(" + counter + " unless max_over_time(" + counter + "[$window] offset $window) or increase(" + counter + "[$window]))"
}

// All are the questions, in the order in which a person on call asks them.
var All = []Question{
	{
		ID: "failing", Group: Failures, Unit: "percentunit",
		Title: "Hosts that fail now: share of their attempts",
		Query: downShare + " > " + sometimes,
	},
	{
		ID: "since", Group: Failures, Unit: "dateTimeFromNow", Table: true,
		Title: "Hosts that fail now: since when (Unix time)",
		Query: "(max_over_time((0 * (" + downShare + " <= " + sometimes + ") + time())[6h:$step])" +
			" or min_over_time((0 * (" + downShare + ") + time())[6h:$step]))" +
			" and " + downShare + " > " + sometimes,
	},
	{
		ID: "failed", Group: Failures, Unit: "short",
		Title: "Requests that failed after all, by reason",
		Query: "sum by (job, server_address, server_port, retryhttp_stop, error_type) " + grown(stops+"{"+failed+"}") + " > 0",
	},
	{
		ID: "closed", Group: Failures, Unit: "s",
		Title: "Hosts closed by a Retry-After or a rate limit: time left",
		Query: "max" + server + "(retryhttp_client_gate_closed_until_seconds) - time() > 0",
	},
	{
		ID: "attempts", Group: Retries, Unit: "short",
		Title: "Attempts per request",
		Query: "sum" + server + "(rate(retryhttp_client_call_attempts_sum[$window])) / sum" + server +
			"(rate(retryhttp_client_call_attempts_count[$window]))",
	},
	{
		ID: "detours", Group: Retries, Unit: "percentunit",
		Title: "Attempts that took a connection beside the pool: share",
		Query: "sum" + server + "(rate(retryhttp_client_call_detours_total[$window])) / sum" + server +
			"(rate(retryhttp_client_call_attempts_sum[$window])) > 0",
	},
	{
		ID: "spent", Group: Retries, Unit: "short",
		Title: "Budgets that are spent: tokens",
		Query: "min by (job, server_address, server_port, retryhttp_key) (retryhttp_client_budget_tokens) < 1",
	},
	{
		ID: "sparing", Group: Retries, Unit: "percentunit",
		Title: "Budgets in their tenth: share of the processes",
		Query: "avg by (job, server_address, server_port, retryhttp_key) (retryhttp_client_budget_sparing) > 0",
	},
	{
		ID: "away", Group: Retries, Unit: "percentunit",
		Title: "Shared budget away: share of the processes that decide alone",
		Query: "1 - avg" + server + "(retryhttp_client_budget_shared) > 0",
	},
	{
		ID: "view", Group: Retries, Unit: "s",
		Title: "Shared budget: age of the oldest view",
		Query: "time() - min" + server + "(retryhttp_client_budget_view_time_seconds)",
	},
	{
		ID: "waiting", Group: Waits, Unit: "short",
		Title: "Requests that wait",
		Query: waiting + " > 0",
	},
	{
		ID: "backoff", Group: Waits, Unit: "short",
		Title: "Requests in backoff",
		Query: "clamp_min(" + waiting + " - (" + held + " or 0 * " + waiting + "), 0) > 0", // a Gate may hold nothing
	},
	{
		ID: "gate", Group: Waits, Unit: "short",
		Title: "Requests that a Gate holds",
		Query: "clamp_min(" + held + " - " + line + ", 0) > 0",
	},
	{
		ID: "line", Group: Waits, Unit: "short",
		Title: "Requests in line for a token",
		Query: line + " > 0",
	},
	{
		ID: "waited", Group: Waits, Unit: "s",
		Title: "Wait of a retried request, 95th percentile",
		Query: "histogram_quantile(0.95, sum by (le, job, server_address, server_port) (rate(retryhttp_client_call_retry_delay_seconds_bucket[$window]))) >= 0",
	},
	{
		ID: "held", Group: Waits, Unit: "s",
		Title: "Hold of a held request, 95th percentile",
		Query: "histogram_quantile(0.95, sum by (le, job, server_address, server_port) (rate(retryhttp_client_call_held_seconds_bucket[$window]))) >= 0",
	},
	{
		ID: "ambiguous", Group: Writes, Unit: "short",
		Title: "Writes that may have happened though their response is lost",
		Query: "sum by (job, server_address, server_port, http_request_method) " + grown(stops+`{retryhttp_ambiguous="true"}`) + " > 0",
	},
	{
		ID: "twice", Group: Writes, Unit: "short",
		Title: "Writes that may have happened twice",
		Query: "sum by (job, server_address, server_port, http_request_method) " + grown(stops+`{retryhttp_repeated="true"}`) + " > 0",
	},
	{
		ID: "hedged", Group: Hedges, Unit: "percentunit",
		Title: "Cost of hedges: share of all attempts",
		Query: "sum" + server + "(rate(retryhttp_client_call_hedges_total[$window])) / sum" + server +
			"(rate(retryhttp_client_call_attempts_sum[$window]))",
	},
	{
		ID: "won", Group: Hedges, Unit: "percentunit",
		Title: "Win of hedges: share of hedges that had the response",
		Query: "sum" + server + "(rate(retryhttp_client_call_hedge_wins_total[$window])) / sum" + server +
			"(rate(retryhttp_client_call_hedges_total[$window])) >= 0",
	},
	{
		ID: "resumed", Group: Downloads, Unit: "short",
		Title: "Downloads resumed",
		Query: "sum" + server + grown("retryhttp_client_body_resumptions_total") + " > 0",
	},
	{
		ID: "given-up", Group: Downloads, Unit: "short",
		Title: "Downloads given up, by reason",
		Query: "sum by (job, server_address, server_port, retryhttp_reason) " +
			grown(`retryhttp_client_body_given_up_total{retryhttp_reason!="canceled"}`) + " > 0",
	},
}
