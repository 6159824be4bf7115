package retryhttp_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// gateStep is a request of at most two attempts.
type gateStep struct {
	start    time.Duration
	latency  [2]time.Duration
	answer   [2]string
	backoff  time.Duration
	canceled time.Duration // after the start; 0: never
	deadline time.Duration // after the start; 0: none
	refused  int           // how often the Budget refuses the retry

	gateState
}

// gateState is what the model knows of a step.
type gateState struct {
	sent     []time.Duration
	held     time.Duration
	due      time.Duration
	mark     int
	refusals int
	counted  bool // it is under way
	entered  bool // it began in a run
	outdated bool // a success has ended the run in which it began
	probe    bool // it was released as a probe
	freed    bool // it was released
	placed   bool // it is in line, or in its backoff before
	paid     bool // it has a token, and is not sent yet
	over     bool
	gone     time.Duration // when its cancel or its deadline ended it; 0: that did not
}

const (
	up      = "200"
	fails   = "503"
	nothing = "429"
)

// gateModel is the rules of a Gate, for one key, in one goroutine, with a list in the
// place of a clock. It has no closures.
type gateModel struct {
	now    time.Duration
	hold   time.Duration
	steps  []*gateStep
	events []modelEvent // the next one first

	run, underWay, begun, credit int
	since, newest, behind, pause time.Duration
	firstUp, entered             time.Duration
	queue                        []*gateStep // the oldest first
	line                         lineModel
	tokens                       int // granted, and not given back
}

// lineModel is the line of a gateModel: the steps whose retry the Budget has refused.
type lineModel struct {
	steps            []*gateStep // the oldest first
	places           int
	trouble, refusal time.Duration
	down             bool // a run of failures belongs to the trouble
	recovered        bool // it has ended
	served           float64
	servedAt         time.Duration
}

// How a retry in line is released.
const (
	bySuccess = iota
	asProbe
	atTheEnd
)

type modelEvent struct {
	at time.Duration
	do func()
}

func (m *gateModel) at(at time.Duration, do func()) {
	m.events = append(m.events, modelEvent{at, do})
	slices.SortStableFunc(m.events, func(a, b modelEvent) int { return cmp.Compare(a.at, b.at) })
}

func (m *gateModel) play() {
	m.pause, m.newest = 250*ms, -time.Hour
	m.line.trouble, m.line.refusal = -time.Hour, -time.Hour
	for _, s := range m.steps {
		m.at(s.start, func() { m.begin(s) })
		for _, end := range []time.Duration{s.canceled, s.deadline} {
			if end > 0 {
				m.at(s.start+end, func() { m.cancel(s) })
			}
		}
	}
	for len(m.events) > 0 || m.waiting() > 0 {
		if m.waiting() > 0 {
			if probe := m.probeDue(); len(m.events) == 0 || probe < m.events[0].at {
				m.now = max(m.now, probe)
				m.sendProbe()
				continue
			}
		}
		e := m.events[0]
		m.events = m.events[1:]
		m.now = e.at
		e.do()
	}
}

// waiting returns how many steps wait, with a token or without.
func (m *gateModel) waiting() int { return len(m.queue) + len(m.line.steps) }

func (m *gateModel) oldest() *gateStep {
	if len(m.queue) > 0 {
		return m.queue[0]
	}
	return m.line.steps[0]
}

func (m *gateModel) isDown() bool { return m.run >= 8 && m.now-m.since >= 100*ms }

func (m *gateModel) isShortLine() bool { return len(m.queue) == 0 && m.waiting() < 8 }

// isLasting reports whether the line's trouble has lasted for a Hold.
func (m *gateModel) isLasting(at time.Duration) bool { return at-m.line.trouble >= m.hold }

func (m *gateModel) withoutFirsts() bool { return m.now-max(m.since, m.firstUp) >= 400*ms }

// room returns the longest wait after which an attempt of s is in time.
func (m *gateModel) room(s *gateStep) time.Duration {
	if s.deadline == 0 {
		return time.Hour
	}
	return s.start + s.deadline - m.now - 1
}

// probeDue returns when the next probe is due: never, if it waits for what is under way.
func (m *gateModel) probeDue() time.Duration {
	due := m.newest + m.pause
	if m.run > 0 && m.isShortLine() && !m.isLasting(due) {
		due = m.newest + 625*ms
	}
	if m.underWay == 0 {
		return due
	}
	due = max(due, m.entered+m.hold/5)
	if max(m.now, due)-m.since >= m.hold {
		return math.MaxInt64
	}
	return due
}

func (m *gateModel) sendProbe() {
	if m.isShortLine() && m.isLasting(m.now) {
		m.newest = m.now
		m.ask(m.line.steps[0], asProbe)
		return
	}
	m.releaseProbe(m.oldest())
}

func (m *gateModel) releaseProbe(s *gateStep) {
	m.leave(s)
	s.probe, s.freed = true, true
	if m.run == 0 {
		m.newest = m.now
		m.begin(s)
		return
	}
	m.enter(s)
	m.send(s)
}

func (m *gateModel) enter(s *gateStep) {
	m.underWay++
	m.begun++
	m.entered = m.now
	s.counted, s.entered = true, true
}

func (m *gateModel) begin(s *gateStep) {
	if m.run > 0 {
		m.enter(s)
	}
	m.send(s)
}

func (m *gateModel) send(s *gateStep) {
	n := len(s.sent)
	s.sent, s.paid = append(s.sent, m.now), false
	m.at(m.now+s.latency[n], func() {
		if !s.over {
			m.end(s, s.answer[n])
		}
	})
}

func (m *gateModel) end(s *gateStep, answer string) {
	switch answer {
	case fails:
		m.fail(s)
	case up:
		m.success(s)
	case nothing:
		if s.counted {
			m.newest = m.now
		}
	}
	s.mark = m.begun
	if s.counted {
		m.underWay--
	}
	s.counted, s.entered, s.outdated = false, false, false
	if answer == up || len(s.sent) == 2 || m.room(s) < s.backoff {
		s.over = true
		return
	}
	comesDue := m.comesDue
	if !m.withdraw(s) {
		if !m.admit(s) {
			s.over = true
			return
		}
		comesDue = m.comesDueInLine
	}
	m.at(m.now+s.backoff, func() {
		if !s.over {
			comesDue(s)
		}
	})
}

func (m *gateModel) fail(s *gateStep) {
	if s.outdated {
		return
	}
	if m.waiting() == 0 && m.now-m.newest >= 10*time.Second {
		m.endRun(false)
	}
	if m.run++; m.run == 1 {
		m.since = m.now
		m.begun++
		m.pause = min(m.pause, 250*ms)
	}
	m.newest = m.now
	if s.probe {
		m.pause = min(2*m.pause, 5*time.Second)
	}
}

func (m *gateModel) success(s *gateStep) {
	if m.run > 0 {
		m.line.recovered = true
	}
	queued := m.waiting() > 0
	if queued {
		if m.isDown() {
			m.behind = max(m.behind, m.now+min(5*(m.now-m.since), m.hold))
		}
		m.newest = m.now
		m.pause = min(m.pause, 250*ms)
		if s.probe {
			m.pause = 125 * ms
		}
		if len(s.sent) == 1 {
			m.firstUp = m.now
		}
		m.credit++
		if s.freed && m.withoutFirsts() {
			m.credit += 8
		}
	}
	m.endRun(true)
	if queued {
		m.spend()
	}
}

// endRun ends a run of failures. What began in it is no longer under way. After a success, its failure no longer counts.
func (m *gateModel) endRun(bySuccess bool) {
	if m.run > 0 {
		m.run, m.underWay = 0, 0
		m.begun++
		for _, s := range m.steps {
			s.counted, s.outdated = false, s.outdated || bySuccess && s.entered
		}
	}
}

func (m *gateModel) comesDue(s *gateStep) {
	limit := min(m.hold, m.room(s)/2)
	alone := m.waiting() == 0 && m.begun == s.mark
	switch {
	case limit <= 0, !m.isDown() && (len(m.queue) == 0 || m.now >= m.behind):
		m.begin(s)
	case alone:
		m.enter(s)
		m.send(s)
	default:
		m.queue = append(m.queue, s)
		s.due = m.now
		m.at(m.now+limit, func() {
			if slices.Contains(m.queue, s) {
				m.leave(s)
				m.begin(s)
			}
		})
	}
}

// comesDueInLine is comesDue for a step without a token.
func (m *gateModel) comesDueInLine(s *gateStep) {
	first := m.waiting() == 0
	s.due = m.now
	short := m.line.refusal == m.line.trouble && m.run >= 4 && m.now-m.since < m.hold
	if first && m.run > 0 && m.line.places == 1 && m.begun == s.mark && !short { // it is alone
		m.leave(s)
		s.over = !m.withdraw(s)
		if !s.over {
			m.begin(s)
		}
		return
	}
	m.line.steps = append(m.line.steps, s)
	limit := min(m.hold, m.room(s)/4*3)
	if limit <= 0 {
		m.ask(s, atTheEnd)
		return
	}
	m.at(m.now+limit, func() {
		if slices.Contains(m.line.steps, s) {
			m.ask(s, atTheEnd)
		}
	})
	if first && m.probeDue() <= m.now {
		m.sendProbe()
	}
}

// leave takes a step out of the queue or the line, if it is there, and gives its place up.
func (m *gateModel) leave(s *gateStep) {
	if s.placed {
		s.placed = false
		m.line.places--
	}
	if !slices.Contains(m.queue, s) && !slices.Contains(m.line.steps, s) {
		return
	}
	is := func(other *gateStep) bool { return other == s }
	m.queue, m.line.steps = slices.DeleteFunc(m.queue, is), slices.DeleteFunc(m.line.steps, is)
	s.held = m.now - s.due
	if m.waiting() == 0 {
		m.pause, m.credit = 250*ms, 0
	}
}

func (m *gateModel) cancel(s *gateStep) {
	if s.over {
		return
	}
	s.over, s.gone = true, m.now
	m.leave(s)
	if s.paid {
		m.tokens--
	}
	if s.counted {
		m.newest = m.now
		m.underWay--
	}
}

// withdraw asks the Budget.
func (m *gateModel) withdraw(s *gateStep) bool {
	if s.refusals < s.refused {
		s.refusals++
		return false
	}
	m.tokens++
	s.paid = true
	return true
}

// admit gives a place. For a Hold, everybody has one. After that there are as many as were served
// lately, and one. No steps last for half an hour.
func (m *gateModel) admit(s *gateStep) bool {
	l := &m.line
	if m.now-l.refusal >= m.hold && (!l.down || l.recovered) {
		l.trouble, l.down = m.now, false
	}
	if m.run > 0 && !l.down {
		l.down, l.recovered = true, false
	}
	l.refusal = m.now
	if m.isLasting(m.now) && float64(l.places) >= m.servedLately()+1 {
		return false
	}
	l.places++
	s.placed = true
	return true
}

func (m *gateModel) servedLately() float64 {
	return m.line.served * math.Exp(-(m.now-m.line.servedAt).Seconds()/m.hold.Seconds())
}

// ask has a step in line ask the Budget. If it is granted a token, it goes.
func (m *gateModel) ask(s *gateStep, how int) {
	granted := m.withdraw(s)
	switch {
	case granted:
		m.line.served, m.line.servedAt = m.servedLately()+1, m.now
	case how != atTheEnd:
		return
	}
	switch {
	case granted && how == asProbe:
		m.releaseProbe(s)
	case granted:
		m.leave(s)
		s.freed = how == bySuccess
		m.begin(s)
	default:
		m.leave(s)
		s.over = true
	}
}

// spend lets the oldest go, or ask. A success lets the oldest in line ask. While retries queue behind
// others after an outage, four successes do.
func (m *gateModel) spend() {
	for m.waiting() > 0 {
		s := m.oldest()
		asks := len(m.queue) == 0 && !(m.waiting() >= 8 && m.withoutFirsts())
		if m.credit < 4 && (!asks || m.now < m.behind) {
			break
		}
		m.credit = max(m.credit-4, 0)
		if asks {
			m.ask(s, bySuccess)
			break
		}
		m.leave(s)
		s.freed = true
		m.begin(s)
	}
	m.credit = min(m.credit, 4)
}

// compareGate plays steps with a Gate and with the model.
func compareGate(t *testing.T, hold time.Duration, steps []*gateStep) {
	t.Helper()
	m := &gateModel{hold: hold, steps: steps}
	m.play()
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, &retryhttp.Gate{Hold: hold, HoldFirst: true})
		var mu sync.Mutex
		refuses := map[string]int{} // how often the Budget refuses the retry of a path
		budget := &counted{Budget: &asking{asked: func(req *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			refuses[req.URL.Path]--
			return refuses[req.URL.Path] < 0
		}}}
		var visits []*visit
		for _, s := range steps {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if s.deadline > 0 {
				ctx, cancel = context.WithDeadline(ctx, g.start.Add(s.start+s.deadline))
				defer cancel()
			}
			if s.canceled > 0 {
				time.AfterFunc(s.start+s.canceled, cancel)
			}
			path := fmt.Sprintf("/%s@%v,%s@%v", s.answer[0], s.latency[0], s.answer[1], s.latency[1])
			refuses[path] = s.refused
			visits = append(visits, g.with(ctx, s.start, path, func(p *retryhttp.Policy) {
				p.Backoff, p.Budget = retryhttp.Constant(s.backoff), budget
			}))
		}
		g.ended.Wait()
		for i, v := range visits {
			require.Equal(t, steps[i].sent, v.sent, "request %d, %+v", i, steps[i])
			require.Equal(t, steps[i].held, v.outcome.Held, "request %d, %+v", i, steps[i])
			if len(v.sent) == 2 {
				require.Equal(t, v.sent[1]-v.sent[0]-steps[i].latency[0], v.outcome.Waited, "it contains Held, request %d", i)
			}
			if gone := steps[i].gone; gone > 0 {
				require.Equal(t, gone, v.done, "request %d ends at once", i)
				require.Equal(t, retryhttp.StopCanceled, v.outcome.Stop, "request %d", i)
			}
		}
		assert.EqualValues(t, m.tokens, budget.granted.Load()-budget.refunded.Load(), "tokens")
		assert.Zero(t, retryhttp.InTrouble(g.gate, "host"), "counted in the end")
	})
}

// gateSteps makes requests of random data. No two things happen at the same moment, because either
// could then be the first.
func gateSteps(data []byte) (hold time.Duration, steps []*gateStep) {
	next := func() (b byte) {
		if len(data) > 0 {
			b, data = data[0], data[1:]
		}
		return b
	}
	odd := time.Duration(0)
	duration := func(unit time.Duration) time.Duration {
		odd += 7919
		return time.Duration(next())*unit + odd%(997*time.Microsecond) + 1
	}
	answer := func() string {
		return []string{fails, fails, fails, fails, up, up, nothing, fails}[next()%8]
	}
	hold = []time.Duration{5 * time.Second, 300 * ms, time.Minute}[next()%3]
	start := time.Duration(0)
	for len(data) > 0 && len(steps) < 150 {
		start += duration(500 * time.Microsecond)
		s := &gateStep{
			start:   start,
			latency: [2]time.Duration{duration(200 * time.Microsecond), duration(ms)},
			answer:  [2]string{answer(), answer()},
			backoff: duration(2 * ms),
		}
		if limits := next(); limits%16 == 0 {
			s.canceled = duration(5 * ms)
		} else if limits%16 == 1 {
			s.deadline = duration(20 * ms)
		}
		if refused := next(); refused%4 == 0 {
			s.refused = 1 + int(refused/4)%5
		}
		steps = append(steps, s)
	}
	return hold, steps
}

func FuzzGate(f *testing.F) {
	addRandom(f, 20, 100, 2100)
	f.Fuzz(func(t *testing.T, data []byte) {
		hold, steps := gateSteps(data)
		compareGate(t, hold, steps)
	})
}
