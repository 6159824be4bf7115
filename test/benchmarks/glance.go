package benchmarks

import (
	"fmt"
	"slices"
	"strings"
)

// glance is the summary, some lines of which the README has too.
func (r *report) glance() string {
	shown := retriers()
	head := []string{""}
	for _, p := range shown {
		head = append(head, p.name)
	}
	lines := []struct {
		title string
		cell  func(name string) string
	}{
		{
			"one of three replicas is broken: requests that succeed after a 503, and a hang, over HTTP/2",
			func(name string) string {
				got := of(r.replicas, name)
				return percent(got[http2With503]) + ", " + percent(got[http2WithHang])
			},
		},
		{
			fmt.Sprintf("of %d things that this library sets out to do, does, some with an option", len(probes)),
			func(name string) string { return fmt.Sprint(good(of(r.probes, name))) },
		},
		{
			"a body that breaks off arrives whole: 2 KiB of JSON; a download of 4 MiB",
			func(name string) string { return brokenBodies(of(r.probes, name)) },
		},
		{"GET that succeeds: CPU time, × bare", func(name string) string { return cpuRatio(r.costs.get, name) }},
		{"GET that succeeds: allocations above bare", func(name string) string { return allocations(r.costs.get, name) }},
		{"POST of 64 KiB that succeeds: CPU time, × bare", func(name string) string { return cpuRatio(r.costs.post, name) }},
		{"GET that fails twice: CPU time, × a loop", func(name string) string { return cpuRatio(r.costs.retries, name) }},
		{
			fmt.Sprintf("PUT of a %s file: held in memory", size(float64(r.sizes.Upload))),
			func(name string) string { return heldInMemory(of(r.held, name)[fileKind]) },
		},
		{
			fmt.Sprintf("of %d uploads that a server fails early: arrive whole in the end, and damaged with a 200",
				len(earlyKinds)*r.sizes.Tries),
			func(name string) string { return arrived(of(r.early, name)) },
		},
		{
			"attempts per request in an outage, with four attempts allowed and default budgets",
			func(name string) string { return fmt.Sprintf("%.2f", of(r.amplify, name)[0].attempts) },
		},
	}
	var rows [][]string
	for _, l := range lines {
		cells := []string{l.title}
		for _, p := range shown {
			cells = append(cells, l.cell(p.name))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

const fileKind = 1 // in heldKinds

// of is what the peer came to, or nothing if it was not measured.
func of[T any](rows []row[[]T], name string) []T {
	for _, r := range rows {
		if r.name == name {
			return r.got
		}
	}
	return nil
}

func named(results []result, name string) result {
	return results[slices.IndexFunc(results, func(r result) bool { return r.name == name })]
}

func cpuRatio(results []result, name string) string {
	return fmt.Sprintf("%.1f", named(results, name).cpuRatio)
}

func allocations(results []result, name string) string {
	return count(named(results, name).above.allocs)
}

func good(verdicts []verdict) (n int) {
	for _, v := range verdicts {
		if v.good() {
			n++
		}
	}
	return n
}

// brokenBodies is what became of a short body and of a download.
func brokenBodies(verdicts []verdict) string {
	cells := make([]string, 2)
	for i := range verdicts {
		switch probes[i].name {
		case brokenJSON:
			cells[0] = brief(verdicts[i])
		case brokenDownload:
			cells[1] = brief(verdicts[i])
		}
	}
	return strings.Join(cells, "; ")
}

// brief is a verdict without the name of its option.
func brief(v verdict) string {
	text := "no"
	switch {
	case v.yes:
		text = "yes"
	case v.option != "":
		text = "option"
	}
	if v.note != "" {
		text += ", " + v.note
	}
	return text
}

func heldInMemory(h held) string {
	text := size(max(h.peak, 0))
	if h.outcome != wholeAgain {
		text += ", not sent again"
	}
	return text
}

func arrived(tries []early) string {
	whole, wrong := 0, 0
	for _, e := range tries {
		whole += e.whole
		wrong += e.delivered - e.whole
	}
	return fmt.Sprintf("%d, %d", whole, wrong)
}
