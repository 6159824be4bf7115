package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

// settings are what the flags say. Zero is what each flag is if it is not given.
type settings struct {
	load   retrylab.Load
	only   string
	html   string
	policy policy

	outage      retrylab.Outage
	deadBackend retrylab.DeadBackend
	overload    retrylab.Overload
	spike       retrylab.Spike
	deploy      retrylab.Deploy
	rateLimit   retrylab.RateLimit
	reset       retrylab.Reset
	step        retrylab.LatencyStep
	layers      retrylab.Layers
	replicas    retrylab.Replicas
	flapping    retrylab.Flapping
	burst       retrylab.Burst
	cron        retrylab.Cron
	longOutage  retrylab.LongOutage
	invited     retrylab.Invited
	workers     retrylab.Workers
}

// parse returns what the flags ask for, and the file of the HTML report, or an error of one line or more for
// the user. It writes the usage to usage if it is asked for.
func parse(args []string, usage io.Writer) (c retrylab.Comparison, html string, err error) {
	var s settings
	flags := flag.NewFlagSet("retrylab", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.declare(flags)
	flags.Usage = func() {
		flags.SetOutput(usage)
		fmt.Fprintf(usage, "retrylab runs a retry policy through trouble, in virtual time.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return c, "", err
	}
	if flags.NArg() > 0 {
		return c, "", fmt.Errorf("retrylab: %q is not a flag", flags.Arg(0))
	}
	if err := errors.Join(noZeros(flags), s.noStrays(flags)); err != nil {
		return c, "", err
	}
	c.Experiments, err = s.experiments()
	if err != nil {
		return c, "", err
	}
	c.Policies = []retrylab.Policy{{Name: retrylab.TheirPolicy, New: s.policy.make}}
	return c, s.html, c.Validate()
}

func (s *settings) declare(f *flag.FlagSet) {
	f.Float64Var(&s.load.Rate, "rate", 0, "`requests` per second, of all processes (default 100)")
	f.IntVar(&s.load.Processes, "processes", 0, "`number` of processes that share them (default 1; cron: 200)")
	f.DurationVar(&s.load.Latency, "latency", 0, "mean `time` of an answer (default 10ms)")
	f.DurationVar(&s.load.Deadline, "deadline", 0, "`time` that a request has (default none)")
	f.DurationVar(&s.load.Uptime, "uptime", 0, "`time` that the processes have been up when the trouble begins (default 1m)")
	f.IntVar(&s.load.Seeds, "seeds", 0, "`number` of runs with each policy (default 3)")
	f.StringVar(&s.html, "html", "", "`file` for a page with plots (default none)")
	f.StringVar(&s.only, "experiments", "", "`names` separated by commas, of "+strings.Join(names(), ", ")+" (default all)")

	f.DurationVar(&s.outage.For, "outage", 0, "outage: its `length` (default 3s)")
	f.Float64Var(&s.outage.Part, "part", 0, "outage: the `part` of the attempts that fail (default 1)")
	f.BoolVar(&s.outage.Silent, "silent", false, "outage: no answer, instead of a 503")
	f.Float64Var(&s.outage.Room, "room", 0, "outage: the service takes so many `times` the rate afterwards (default 1.3)")
	f.DurationVar(&s.outage.Slowly, "slowly", 0, "outage: the `time` in which the room grows from half of it")
	f.IntVar(&s.deadBackend.Backends, "backends", 0, "dead-backend, deploy: `number` of backends (default 3 and 4)")
	f.IntVar(&s.deadBackend.Dead, "dead", 0, "dead-backend: `number` of dead backends (default 1)")
	f.Float64Var(&s.overload.Cost, "cost", 0, "overload: the work of a rejection, as a `part` of a success (default 0.3)")
	f.Float64Var(&s.spike.Times, "spike", 0, "spike: so many `times` the rate (default 2.5)")
	f.DurationVar(&s.spike.For, "spike-for", 0, "spike: its `length` (default 10s)")
	f.DurationVar(&s.deploy.Down, "down", 0, "deploy: the `time` that each backend is down (default 2s)")
	f.IntVar(&s.rateLimit.Allowed, "allowed", 0, "rate-limit: `attempts` in each second (default a fifth of the rate)")
	f.IntVar(&s.rateLimit.Workers, "workers", 0, "rate-limit, workers: `number` of workers (default 10)")
	f.BoolVar(&s.rateLimit.Bare, "bare", false, "rate-limit: 429 without a Retry-After")
	f.IntVar(&s.rateLimit.Jobs, "jobs", 0, "rate-limit: `number` of jobs (default 500)")
	f.DurationVar(&s.reset.Takes, "takes", 0, "reset: `time` that each answer takes (default 5s)")
	f.Float64Var(&s.step.Slower, "slower", 0, "latency-step: so many `times` as slow (default 10)")
	f.IntVar(&s.replicas.Replicas, "replicas", 0, "replicas: `number` of replicas (default 3)")
	f.IntVar(&s.replicas.Broken, "broken", 0, "replicas: `number` of broken replicas (default 1)")
	f.BoolVar(&s.replicas.Hang, "hang", false, "replicas: a broken replica does not answer, instead of a 503")
	f.BoolVar(&s.replicas.HTTP2, "http2", false, "replicas: one connection for all requests of a process")
	f.DurationVar(&s.flapping.Every, "every", 0, "flapping: the `period` in which the service is down for a while (default 1s)")
	f.DurationVar(&s.flapping.Down, "flap", 0, "flapping: the `time` that it is down in each period (default 500ms)")
	f.IntVar(&s.burst.Requests, "requests", 0, "burst, cron: `number` of requests, of all processes and of each (default 1000 and 3)")
	f.Float64Var(&s.cron.Takes, "capacity", 0, "cron: `attempts` per second that the service takes (default a tenth of the requests)")
	f.DurationVar(&s.longOutage.For, "long-outage", 0, "long-outage: its `length` (default 30s)")
	f.DurationVar(&s.longOutage.Hold, "long-hold", 0, "long-outage: the longer Gate.Hold, a `time` (default twice the outage)")
	f.IntVar(&s.layers.Services, "services", 0, "layers: `number` of services in a row (default 3)")

	s.policy.declare(f)
}

// optional are flags for which 0 is a value of its own.
var optional = []string{
	"deadline", "slowly", "silent", "experiments", "backoff-base", "backoff-limit", "hedge", "hedge-after", "hedge-min",
	"max-elapsed", "attempt-timeout", "min-per-second", "hold-first", "no-budget", "no-gate", "hang", "http2",
}

// noZeros returns an error for a flag that is given as 0 although the experiments read 0 as the default.
func noZeros(f *flag.FlagSet) (err error) {
	f.Visit(func(given *flag.Flag) {
		value := given.Value.String()
		if err == nil && (value == "0" || value == "0s") && !slices.Contains(optional, given.Name) {
			err = fmt.Errorf("retrylab: -%s is %s, and must be above 0, or negative for none where that makes sense", given.Name, value)
		}
	})
	return err
}

// noStrays returns an error for a flag of experiments that are not run. The usage of such a flag begins with their
// names.
func (s *settings) noStrays(f *flag.FlagSet) (err error) {
	if s.only == "" {
		return nil
	}
	all, run := names(), strings.Split(strings.ReplaceAll(s.only, " ", ""), ",")
	f.Visit(func(given *flag.Flag) {
		of, _, _ := strings.Cut(given.Usage, ": ")
		experiments := strings.Split(of, ", ")
		if err == nil && slices.Contains(all, experiments[0]) && !slices.ContainsFunc(experiments, func(e string) bool { return slices.Contains(run, e) }) {
			err = fmt.Errorf("retrylab: -%s is for %s, which -experiments leaves out", given.Name, of)
		}
	})
	return err
}

func names() []string {
	var all []string
	for _, e := range retrylab.All(retrylab.Load{}) {
		all = append(all, e.Name())
	}
	return all
}

// experiments returns what -experiments names, with their settings.
func (s *settings) experiments() ([]retrylab.Experiment, error) {
	s.deploy.Backends = s.deadBackend.Backends
	s.workers.Workers, s.cron.Requests = s.rateLimit.Workers, s.burst.Requests
	for _, load := range []*retrylab.Load{
		&s.outage.Load, &s.deadBackend.Load, &s.overload.Load, &s.spike.Load, &s.deploy.Load,
		&s.rateLimit.Load, &s.reset.Load, &s.step.Load, &s.layers.Load, &s.replicas.Load,
		&s.flapping.Load, &s.burst.Load, &s.cron.Load, &s.longOutage.Load, &s.invited.Load, &s.workers.Load,
	} {
		*load = s.load
	}
	if s.policy.AttemptTimeout > 0 {
		s.spike.Patience = s.policy.AttemptTimeout
	}
	all := []retrylab.Experiment{
		s.outage, s.deadBackend, s.overload, s.spike, s.deploy, s.rateLimit, s.reset, s.step, s.layers,
		s.replicas, s.flapping, s.burst, s.cron, s.longOutage, s.invited, s.workers,
	}
	if s.only == "" {
		return all, nil
	}
	var chosen []retrylab.Experiment
	for name := range strings.SplitSeq(s.only, ",") {
		i := slices.IndexFunc(all, func(e retrylab.Experiment) bool { return e.Name() == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("retrylab: -experiments names %q; there are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// policy has the fields of a retryhttp.Policy that are numbers.
type policy struct {
	retryhttp.Policy
	base, limit                    time.Duration
	ratio, healthyRatio, perSecond float64
	burst                          int
	window, hold                   time.Duration
	holdFirst, noBudget, noGate    bool
	hedge                          float64
	hedgeAfter, hedgeMin           time.Duration
}

// The default backoff.
const defaultBase, defaultLimit = 250 * time.Millisecond, 30 * time.Second

func (p *policy) declare(f *flag.FlagSet) {
	f.IntVar(&p.MaxAttempts, "max-attempts", 0, "Policy.MaxAttempts: `number`; negative: no bound (default 4)")
	f.DurationVar(&p.MaxElapsed, "max-elapsed", 0, "Policy.MaxElapsed: `time` (default none)")
	f.DurationVar(&p.AttemptTimeout, "attempt-timeout", 0, "Policy.AttemptTimeout, and the patience of spike: `time` (default none, and 3s)")
	f.DurationVar(&p.MaxRetryAfter, "max-retry-after", 0, "Policy.MaxRetryAfter: `time`; negative: the header is ignored (default 1m)")
	f.DurationVar(&p.base, "backoff-base", defaultBase, "Policy.Backoff: FullJitter's base `time`")
	f.DurationVar(&p.limit, "backoff-limit", defaultLimit, "Policy.Backoff: FullJitter's limit `time`")
	f.BoolVar(&p.noBudget, "no-budget", false, "Policy.Budget: Unlimited")
	f.Float64Var(&p.ratio, "budget-ratio", 0, "TokenBucket.Ratio: `retries` per success; negative: none (default 0.1)")
	f.Float64Var(&p.healthyRatio, "budget-healthy-ratio", 0, "TokenBucket.HealthyRatio: `retries` per success (default 0.5, or the ratio if that is set)")
	f.IntVar(&p.burst, "burst", 0, "TokenBucket.Burst: `tokens`; negative: none (default 5)")
	f.DurationVar(&p.window, "budget-window", 0, "TokenBucket.Window: `time`; negative: none (default 20s)")
	f.Float64Var(&p.perSecond, "min-per-second", 0, "TokenBucket.MinPerSecond: `retries` (default none)")
	f.BoolVar(&p.noGate, "no-gate", false, "Gate.Hold: negative, so nothing is held")
	f.DurationVar(&p.hold, "hold", 0, "Gate.Hold: `time`; negative: none (default 5s)")
	f.BoolVar(&p.holdFirst, "hold-first", false, "Gate.HoldFirst: a Retry-After holds first attempts, too")
	f.Float64Var(&p.hedge, "hedge", 0, "Policy.Hedge with this Share: a `part` of the requests (default no hedges)")
	f.DurationVar(&p.hedgeAfter, "hedge-after", 0, "Hedge.After: `time` (default from the latencies)")
	f.DurationVar(&p.hedgeMin, "hedge-min", 0, "Hedge.Min: `time`")
}

// make returns a new Policy with a Budget, a Gate and a Hedge of its own.
func (p *policy) make() retryhttp.Policy {
	made := p.Policy
	if p.base != defaultBase || p.limit != defaultLimit {
		made.Backoff = retryhttp.FullJitter(p.base, p.limit)
	}
	if p.ratio != 0 || p.healthyRatio != 0 || p.burst != 0 || p.window != 0 || p.perSecond != 0 {
		made.Budget = &retryhttp.TokenBucket{
			Ratio: p.ratio, HealthyRatio: p.healthyRatio, Burst: p.burst, Window: p.window, MinPerSecond: p.perSecond,
		}
	}
	if p.noBudget {
		made.Budget = retryhttp.Unlimited{}
	}
	if p.noGate {
		p.hold = -1
	}
	if p.hold != 0 || p.holdFirst {
		made.Gate = &retryhttp.Gate{Hold: p.hold, HoldFirst: p.holdFirst}
	}
	if p.hedge != 0 || p.hedgeAfter != 0 || p.hedgeMin != 0 {
		made.Hedge = &retryhttp.Hedge{Share: p.hedge, After: p.hedgeAfter, Min: p.hedgeMin}
	}
	return made
}
