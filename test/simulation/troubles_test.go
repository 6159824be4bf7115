package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// outageOf is an outage after a second of traffic, and after a time of health before that.
func (r *report) outageOf(name string, processes int, health, length time.Duration) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		return r.lostAndLoad(sim.Outage{Policy: policy, Processes: processes, WarmUp: health, For: length})
	}}
}

func (r *report) blackHoleOf(name string) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		patient := func() retryhttp.Policy {
			p := policy()
			p.AttemptTimeout = 2 * time.Second
			return p
		}
		return r.lostAndLoad(sim.Outage{
			Policy: patient, Processes: 1, WarmUp: time.Minute, For: 3 * time.Second, Hang: true,
		})
	}}
}

func (r *report) lostAndLoad(o sim.Outage) string {
	o.Rate, o.After, o.Capacity, o.Seeds = r.rate(), 10*time.Second, 1300, r.size(4)
	got := o.Run(r.t)
	return fmt.Sprintf("%.1f %% / %.2f / %.1f", 100*got.Lost.Mean, got.Load.Mean, got.Peak)
}

func (r *report) quotaOf(workers int) trouble {
	name := fmt.Sprintf("a quota, %d workers", workers)
	return trouble{name, func(policy func() retryhttp.Policy) string {
		got := sim.Quota{Policy: policy, Allowed: 20, Workers: workers, Jobs: 1000, Seeds: r.size(8)}.Run(r.t)
		return percent(got.Lost.Mean)
	}}
}

func (r *report) resetOf(takes time.Duration) trouble {
	name := fmt.Sprintf("a connection dies, answers of %.0f s", takes.Seconds())
	return trouble{name, func(policy func() retryhttp.Policy) string {
		got := sim.Reset{Policy: policy, Rate: 50, Takes: takes, WarmUp: time.Minute, Seeds: r.size(8)}.Run(r.t)
		return percent(got.Lost.Mean)
	}}
}

func (r *report) fanoutOf(name string, length time.Duration, part float64) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		got := sim.Fanout{
			Policy: policy, Requests: int(10 * r.rate()), For: length, Part: part, Seeds: r.size(8),
		}.Run(r.t)
		return percent(got.LostOfHit.Mean)
	}}
}

func (r *report) livePathOf(name string, ill float64, length time.Duration) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		got := sim.Paths{
			Policy: policy, Rate: r.rate(), Ill: ill, Flaws: 0.02, WarmUp: time.Minute,
			For: length, After: 8 * time.Second, Seeds: r.size(10),
		}.Run(r.t)
		return percent(got.Well.Lost.Mean)
	}}
}

func (r *report) seldomOf(name string, requests int) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		got := sim.Seldom{Policy: policy, Every: time.Hour, Requests: requests, Part: 0.2, Seeds: r.size(40)}.Run(r.t)
		return percent(got.Lost)
	}}
}
