package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// section is a heading of the report with what stands below it. Each section can be run alone.
type section struct {
	heading string
	write   func(*report)
}

var sections = []section{
	{"# What clients do together to a service in trouble", (*report).introduction},
	{"## In short", (*report).inShort},
	{"## The same figures, and your own", (*report).commands},
	{"## An outage", (*report).outage},
	{"### Few processes and many, short outages and long", (*report).outageLengths},
	{"### The service afterwards", (*report).outageAfter},
	{"### Black holes", (*report).blackHole},
	{"### Workers", (*report).workers},
	{"### Partial failure", (*report).partialFailure},
	{"### A dead path beside a live one", (*report).paths},
	{"### A process that is sent away", (*report).throttle},
	{"### Ten slow payments", (*report).payments},
	{"### Requests that only a Gate loses", (*report).regret},
	{"### Limits", (*report).limits},
	{"## What is lost", (*report).losses},
	{"### Outages, and how long the process has been up", (*report).lostOutages},
	{"### Other troubles", (*report).otherTroubles},
	{"### A thousand requests at once", (*report).fanouts},
	{"## A part of the service is dead", (*report).partial},
	{"### One dead endpoint of ten", (*report).endpoints},
	{"### Services in layers", (*report).tiers},
	{"## Overload", (*report).overloaded},
	{"### A spike where rejections have a cost", (*report).costlySpike},
	{"### The map of escape", (*report).escape},
	{"## A spike that outlasts itself", (*report).collapse},
	{"## One budget for a fleet", (*report).fleetBudget},
	{"## What a budget costs and saves", (*report).budgets},
	{"## A blip", (*report).blip},
	{"## Fleets", (*report).fleets},
	{"## A herd", (*report).herd},
	{"## Contention", (*report).contention},
	{"## Layers", (*report).layers},
	{"## What each mechanism pays for", (*report).mechanisms},
	{"## Hedges", (*report).hedges},
	{"### Hedges in an outage", (*report).hedgesInOutages},
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 -]`)

// anchor is how links name the section.
func (s section) anchor() string {
	title := strings.ToLower(strings.TrimLeft(s.heading, "# "))
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(title, ""), " ", "-")
}

func (r *report) write(sections []section) {
	for _, s := range sections {
		r.anchor = s.anchor()
		r.add(s.heading)
		s.write(r)
	}
}

// named returns the section with an anchor.
func named(t *testing.T, anchor string) section {
	t.Helper()
	var all []string
	for _, s := range sections {
		all = append(all, s.anchor())
	}
	i := slices.Index(all, anchor)
	require.NotEqual(t, -1, i, "no section is named %q; there are %s", anchor, strings.Join(all, ", "))
	return sections[i]
}

// part is what a command of the lab makes of a table.
type part struct{ makes, flags string }

// madeBy adds how to make what the section has.
func (r *report) madeBy(what string, parts []part) {
	line := fmt.Sprintf("`make sim SECTION=%s` makes %s.", r.anchor, what)
	for _, p := range parts {
		r.add(line + "\nThe lab makes " + p.makes + ":")
		r.command(inLab(p.flags))
		line = ""
	}
	if len(parts) == 0 {
		r.add(line)
	}
}

func TestSectionsAreNamedByTheirAnchors(t *testing.T) {
	anchors := map[string]bool{}
	for _, s := range sections {
		assert.False(t, anchors[s.anchor()], s.anchor())
		anchors[s.anchor()] = true
		assert.Equal(t, s.heading, named(t, s.anchor()).heading)
	}
	assert.Equal(t, "few-processes-and-many-short-outages-and-long", section{heading: "### Few processes and many, short outages and long"}.anchor())
}
