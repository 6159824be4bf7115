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
	apart   string // what it is about, if it stands among the whole tables and the report only names it
}

// sections are all of them, in the order in which they are written.
var sections = slices.Concat(shown, []section{{heading: "## Further experiments", write: (*report).further}}, apart)

var shown = []section{
	{heading: "# What clients do together to a service in trouble", write: (*report).introduction},
	{heading: "## In short", write: (*report).inShort},
	{heading: "## Where the default is worse", write: (*report).worse},
	{heading: "## The same figures, and your own", write: (*report).commands},
	{heading: "## An outage", write: (*report).outage},
	{heading: "### Few processes and many, short outages and long", write: (*report).outageLengths},
	{heading: "### The service afterwards", write: (*report).outageAfter},
	{heading: "### Black holes", write: (*report).blackHole},
	{heading: "### Partial failure", write: (*report).partialFailure},
	{heading: "### Limits", write: (*report).limits},
	{heading: "## What is lost", write: (*report).losses},
	{heading: "### Outages, and how long the process has been up", write: (*report).lostOutages},
	{heading: "### Other troubles", write: (*report).otherTroubles},
	{heading: "## A part of the service is dead", write: (*report).partial},
	{heading: "### Services in layers", write: (*report).tiers},
	{heading: "## Overload", write: (*report).overloaded},
	{heading: "### The map of escape", write: (*report).escape},
	{heading: "## A spike that outlasts itself", write: (*report).collapse},
	{heading: "## One budget for a fleet", write: (*report).fleetBudget},
	{heading: "## A herd", write: (*report).herd},
	{heading: "## What each mechanism pays for", write: (*report).mechanisms},
	{heading: "## Hedges", write: (*report).hedges},
	{heading: "### Hedges in an outage", write: (*report).hedgesInOutages},
}

var apart = []section{
	{heading: "## Workers", write: (*report).workers, apart: "workers who send one request after the other, through an outage"},
	{heading: "## A dead path beside a live one", write: (*report).paths, apart: "two paths of one host, with a Key for each and without"},
	{heading: "## A process that is sent away", write: (*report).throttle, apart: "a `Retry-After` of two seconds, with HoldFirst and without"},
	{heading: "## Ten slow payments", write: (*report).payments, apart: "few requests of two seconds each"},
	{heading: "## Requests that only a Gate loses", write: (*report).regret, apart: "each request with a Gate and without, at the same times"},
	{heading: "## A thousand requests at once", write: (*report).fanouts, apart: "a burst by one process as the service goes down"},
	{heading: "## One dead endpoint of ten", write: (*report).endpoints, apart: "live endpoints that share a budget with a dead one"},
	{heading: "## A spike where rejections have a cost", write: (*report).costlySpike, apart: "the goodput after a spike, by the cost of a rejection"},
	{heading: "## What a budget costs and saves", write: (*report).budgets, apart: "load and success by the part of the attempts that fails"},
	{heading: "## A blip", write: (*report).blip, apart: "an outage of 100 or 300 ms"},
	{heading: "## Fleets", write: (*report).fleets, apart: "the same load from 10 processes to 10,000"},
	{heading: "## Contention", write: (*report).contention, apart: "backoffs of clients that write one row"},
	{heading: "## Layers", write: (*report).layers, apart: "a Transport in each of three services in a row"},
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 -]`)

// anchor is how links name the section.
func (s section) anchor() string {
	title := strings.ToLower(strings.TrimLeft(s.heading, "# "))
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(title, ""), " ", "-")
}

// address is where the whole table is, or the section that is apart.
func (s section) address() string { return "simulation-tables.md#" + s.anchor() }

// ofTables is the heading of the section's table among all tables.
func (s section) ofTables() string { return "## " + strings.TrimLeft(s.heading, "# ") }

// further names the sections that are apart.
func (r *report) further() {
	var list strings.Builder
	for _, s := range apart {
		fmt.Fprintf(&list, "- [%s](%s): %s.\n", strings.TrimLeft(s.heading, "# "), s.address(), s.apart)
	}
	r.add("Those of the policy's parts, and of smaller worlds, stand with their text among the tables.")
	r.add(list.String())
}

func (r *report) write(sections []section) {
	for _, s := range sections {
		r.now = s
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

func TestSectionsAreNamedByTheirAnchors(t *testing.T) {
	anchors := map[string]bool{}
	for _, s := range sections {
		assert.False(t, anchors[s.anchor()], s.anchor())
		anchors[s.anchor()] = true
		assert.Equal(t, s.heading, named(t, s.anchor()).heading)
	}
	assert.Equal(t, "few-processes-and-many-short-outages-and-long", section{heading: "### Few processes and many, short outages and long"}.anchor())
}
