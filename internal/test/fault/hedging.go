package fault

import (
	"fmt"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp"
)

// HedgeAfter is how long an attempt takes before it gets a hedge.
const HedgeAfter = 10 * time.Millisecond

// Hedging is a Case whose request is hedged if it may be.
type Hedging struct {
	Case
	Meets Meets
	Major int // of HTTP
}

// Meets is which attempts meet the fault. Late is three times HedgeAfter, when the request
// has been read. Retries meet nothing.
type Meets int

const (
	FirstMeets     Meets = iota // the first attempt meets it at once
	FirstMeetsLate              // the first attempt meets it late
	HedgeMeets                  // the hedge meets it; the first attempt succeeds late
	BothMeet                    // the hedge meets it, and the first attempt late
)

func (m Meets) String() string {
	return [...]string{"first", "first, late", "hedge", "both"}[m]
}

func (h Hedging) String() string { return fmt.Sprintf("%v/%v", h.Case, h.Meets) }

// HedgedMethods are all methods that matter to a hedge, which needs a safe method.
var HedgedMethods = append([]Method{
	{Name: "QUERY", Repeatable: true},
	{Name: "DELETE", Repeatable: true},
	{Name: "PATCH"},
}, Methods...)

// Hedgings crosses faults with the kinds of requests that matter to a hedge.
func Hedgings(faults []*Fault, major int) []Hedging {
	var all []Hedging
	for _, c := range casesOf(faults, HedgedMethods) {
		if c.Limit == Deadline || c.Limit == PerAttempt && c.Fault.Effect != Hangs || !c.matters() {
			continue
		}
		for m := FirstMeets; m <= BothMeet; m++ {
			all = append(all, Hedging{c, m, major})
		}
	}
	return all
}

// matters reports whether a hedge's test needs the kind of body. A write has the body that a hedge
// could read.
func (c Case) matters() bool {
	switch c.Kind.Name {
	case "none":
		return c.Method.safe() || c.Method.Name == "DELETE"
	case "file":
		return c.Method.Name != "DELETE"
	case "bytes.Reader", "recorded stream":
		return c.Method.safe()
	}
	return false
}

func (h Hedging) Policy(p retryhttp.Policy) retryhttp.Policy {
	p.Hedge = &retryhttp.Hedge{Share: 1, After: HedgeAfter}
	return p
}

// Orders are the faults that arrivals meet.
func (h Hedging) Orders() []*Fault {
	switch h.Meets {
	case FirstMeetsLate:
		return []*Fault{late(h.Fault)}
	case HedgeMeets:
		return []*Fault{late(&Fault{Answer: (*Exchange).Succeed}), h.Fault}
	case BothMeet:
		return []*Fault{late(h.Fault), h.Fault}
	}
	return []*Fault{h.Fault}
}

// late is a fault that comes late, when the request has been read.
func late(f *Fault) *Fault {
	after := *f
	after.Answer = func(x *Exchange) {
		x.Receive()
		x.pause(3 * HedgeAfter)
		f.Answer(x)
	}
	return &after
}

// hedged reports whether a slow first attempt gets a hedge. A GetBody that http.NewRequest
// did not make gives a hedge a body only once the first attempt has closed its own, which
// over HTTP/2 net/http does at the end.
func (h Hedging) hedged() bool {
	if !h.Method.safe() {
		return false
	}
	switch h.Kind.Name {
	case "none", "file":
		return true
	case "bytes.Reader":
		return h.Major == 1 && (h.Meets != FirstMeets || !h.Fault.Unread)
	}
	return false
}

// decides reports whether the caller gets what the fault makes of the hedge, although there is
// another attempt beside it.
func (h Hedging) decides() bool {
	switch h.Fault.Effect {
	case Fails, Hangs, Fatal:
		return false
	}
	return true
}

// unhurt reports whether the fault makes no difference to the caller.
func (h Hedging) unhurt() bool {
	switch {
	case h.hedged() && h.Meets == FirstMeets:
		return h.Fault.Effect == Hangs
	case h.hedged() && h.Meets == FirstMeetsLate:
		return true
	case h.hedged() && h.Meets == HedgeMeets:
		return !h.decides()
	}
	return h.Meets == HedgeMeets // which there is not
}

// HangsForEver reports whether the request ends only if its caller goes.
func (h Hedging) HangsForEver() bool { return !h.unhurt() && h.Case.HangsForEver() }

// Judge returns what is wrong with what the caller saw.
func (h Hedging) Judge(r Result) error {
	if err := h.judgeHedges(r.Outcome); err != nil {
		return err
	}
	if h.unhurt() {
		if success := (end{retryhttp.StopFinal, success}); r.end() != success {
			return fmt.Errorf("%v, and not %v", r, success)
		}
		return nil
	}
	return h.Case.Judge(r)
}

func (h Hedging) judgeHedges(o retryhttp.Outcome) error {
	sent := h.hedged() && (h.Meets != FirstMeets || h.Fault.Effect == Hangs)
	won := sent && (h.Meets <= FirstMeetsLate || h.decides())
	want := retryhttp.Outcome{HedgeWon: won}
	if sent {
		want.Hedges = 1
	}
	if o.Hedges != want.Hedges || o.HedgeWon != want.HedgeWon {
		return fmt.Errorf("%d hedges, one won: %t; and not %d and %t", o.Hedges, o.HedgeWon, want.Hedges, want.HedgeWon)
	}
	return nil
}

// safe reports whether the method is no write (RFC 9110, section 9.2.1).
func (m Method) safe() bool { return safe(m.Name) }

func safe(method string) bool { return slices.Contains([]string{"GET", "QUERY"}, method) }
