package retrylab

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp"
)

// change is a change to a policy that may suit an experiment better. An experiment tries its changes one by one, and says
// which of them helps.
type change struct {
	says string // as in "with Gate.Hold 30s"
	edit func(retryhttp.Policy) retryhttp.Policy
}

func hold(d time.Duration) change {
	return change{"Gate.Hold " + d.String(), func(p retryhttp.Policy) retryhttp.Policy {
		p.Gate = likeGate(p.Gate)
		p.Gate.Hold = d
		return p
	}}
}

var holdFirst = change{"Gate.HoldFirst", func(p retryhttp.Policy) retryhttp.Policy {
	p.Gate = likeGate(p.Gate)
	p.Gate.HoldFirst = true
	return p
}}

// asksFor is a wait for a 429 that names none.
func asksFor(d time.Duration) change {
	return change{"a RetryAfter of " + d.String() + " for a bare 429", func(p retryhttp.Policy) retryhttp.Policy {
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			if wait, ok := retryhttp.RetryAfter(a.Response.Header); ok || a.Response.StatusCode != http.StatusTooManyRequests {
				return wait, ok
			}
			return d, true
		}
		return p
	}}
}

func attemptTimeout(d time.Duration) change {
	return change{"AttemptTimeout " + d.String(), func(p retryhttp.Policy) retryhttp.Policy {
		p.AttemptTimeout = d
		return p
	}}
}

func backoff(base, limit time.Duration) change {
	return change{fmt.Sprintf("Backoff FullJitter(%v, %v)", base, limit), func(p retryhttp.Policy) retryhttp.Policy {
		p.Backoff = retryhttp.FullJitter(base, limit)
		return p
	}}
}

// persistence is more attempts with longer waits between them.
func persistence(attempts int, base, limit time.Duration) change {
	longer := backoff(base, limit)
	return change{fmt.Sprintf("MaxAttempts %d and %s", attempts, longer.says), func(p retryhttp.Policy) retryhttp.Policy {
		p.MaxAttempts = attempts
		return longer.edit(p)
	}}
}

func ratio(r float64) change {
	return bucket(fmt.Sprintf("TokenBucket.Ratio %g", r), func(b *retryhttp.TokenBucket) { b.Ratio, b.HealthyRatio = r, 0 })
}

func bursts(n int) change {
	return bucket(fmt.Sprintf("TokenBucket.Burst %d", n), func(b *retryhttp.TokenBucket) { b.Burst = n })
}

// bucket changes a TokenBucket, and leaves any other Budget as it is.
func bucket(says string, edit func(*retryhttp.TokenBucket)) change {
	return change{says, func(p retryhttp.Policy) retryhttp.Policy {
		old, ok := p.Budget.(*retryhttp.TokenBucket)
		if p.Budget != nil && !ok {
			return p
		}
		made := new(retryhttp.TokenBucket)
		if old != nil {
			made.Ratio, made.HealthyRatio, made.Burst, made.Window = old.Ratio, old.HealthyRatio, old.Burst, old.Window
			made.MinPerSecond, made.Key = old.MinPerSecond, old.Key
		}
		edit(made)
		p.Budget = made
		return p
	}}
}

// likeGate returns a new Gate like g.
func likeGate(g *retryhttp.Gate) *retryhttp.Gate {
	if g == nil {
		return new(retryhttp.Gate)
	}
	return &retryhttp.Gate{Hold: g.Hold, HoldFirst: g.HoldFirst, Key: g.Key}
}

// better says by which figure an experiment's rows are compared.
type better struct {
	column Column
	sign   float64 // 1: more is better; -1: less is
}

func more(c Column) better  { return better{c, 1} }
func fewer(c Column) better { return better{c, -1} }

// A change helps if it is better by this much, and by more than chance.
const helps = 0.02

// triedChange is a change with the row that it has come to.
type triedChange struct {
	says string
	Row
}

// advice says which of the changes suits the experiment better than mine.
func (b better) advice(mine Row, changes []triedChange) string {
	if len(changes) == 0 {
		return ""
	}
	best, gain := -1, helps
	var tried []string
	for i, c := range changes {
		now, then := b.column.Of(c.Row), b.column.Of(mine)
		by, chance := b.sign*(now.Mean-then.Mean), 2*math.Hypot(now.Error, then.Error)
		if by >= gain && by > chance {
			best, gain = i, by
		}
		tried = append(tried, c.says)
	}
	if best < 0 {
		return fmt.Sprintf("What to change: nothing that was tried makes %s better by 2 points (%s).",
			b.column.Name, strings.Join(tried, "; "))
	}
	row := changes[best].Row
	return fmt.Sprintf("What to change: with %s, %s is %s in place of %s, for %s attempts per request in place of %s.",
		changes[best].says, b.column.Name, b.column.Text(row), b.column.Text(mine), colLoad.Text(row), colLoad.Text(mine))
}
