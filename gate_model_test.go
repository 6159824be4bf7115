package retryhttp_test

import (
	"context"
	"fmt"
	"math"
	"slices"
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
}

const (
	up      = "200"
	fails   = "503"
	nothing = "429"
)

// gateModel is the rules of a Gate, for one key, in one goroutine, with a list in the
// place of a clock. It has no closures. Its line is modeled in gate_line_model_test.go.
type gateModel struct {
	now    time.Duration
	hold   time.Duration
	steps  []gateStep
	events []modelEvent

	run, underWay, begun, credit int
	since, newest, behind, pause time.Duration
	firstUp, entered             time.Duration
	queue                        []int // of steps, the oldest first
	line                         lineModel
	mark                         map[int]int
	counted, probe, freed, over  map[int]bool
	due                          map[int]time.Duration

	sent map[int][]time.Duration
	held map[int]time.Duration
}

type modelEvent struct {
	at time.Duration
	do func()
}

func (m *gateModel) at(at time.Duration, do func()) {
	m.events = append(m.events, modelEvent{at, do})
}

func (m *gateModel) play() {
	m.pause, m.newest = 250*time.Millisecond, -time.Hour
	for i, s := range m.steps {
		m.at(s.start, func() { m.begin(i) })
		if s.canceled > 0 {
			m.at(s.start+s.canceled, func() { m.cancel(i) })
		}
		if s.deadline > 0 {
			m.at(s.start+s.deadline, func() { m.cancel(i) })
		}
	}
	for len(m.events) > 0 || m.waiting() > 0 {
		next := m.next()
		if m.waiting() > 0 {
			if probe := m.probeDue(); next < 0 || probe < m.events[next].at {
				m.now = max(m.now, probe)
				m.sendProbe()
				continue
			}
		}
		e := m.events[next]
		m.events = slices.Delete(m.events, next, next+1)
		m.now = e.at
		e.do()
	}
}

// next is the event that comes next, or -1.
func (m *gateModel) next() int {
	next := -1
	for i, e := range m.events {
		if next < 0 || e.at < m.events[next].at {
			next = i
		}
	}
	return next
}

// probeDue returns when the next probe is due: never, if it waits for what is under way.
func (m *gateModel) probeDue() time.Duration {
	due := m.newest + m.pause
	if m.run > 0 && m.isShortLine() && !m.isLasting(due) {
		due = m.newest + m.pause*5/2
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

func (m *gateModel) isShortLine() bool { return len(m.queue) == 0 && m.waiting() < 8 }

// isLasting reports whether the line's trouble has lasted for a Hold.
func (m *gateModel) isLasting(at time.Duration) bool { return at-m.line.trouble >= m.hold }

func (m *gateModel) sendProbe() {
	if m.isShortLine() && m.isLasting(m.now) {
		m.newest = m.now
		m.ask(m.line.steps[0], asProbe)
		return
	}
	m.releaseProbe(m.oldest())
}

func (m *gateModel) releaseProbe(i int) {
	m.leave(i)
	m.leavePlace(i)
	m.probe[i], m.freed[i] = true, true
	if m.run == 0 {
		m.newest = m.now
		m.begin(i)
		return
	}
	m.enter(i)
	m.send(i)
}

func (m *gateModel) isDown() bool { return m.run >= 8 && m.now-m.since >= 100*time.Millisecond }

func (m *gateModel) enter(i int) {
	m.underWay++
	m.begun++
	m.entered = m.now
	m.counted[i] = true
}

func (m *gateModel) begin(i int) {
	if m.run > 0 {
		m.enter(i)
	}
	m.send(i)
}

func (m *gateModel) send(i int) {
	n := len(m.sent[i])
	m.sent[i] = append(m.sent[i], m.now)
	m.at(m.now+m.steps[i].latency[n], func() {
		if !m.over[i] {
			m.end(i, m.steps[i].answer[n])
		}
	})
}

func (m *gateModel) end(i int, answer string) {
	switch answer {
	case fails:
		if m.waiting() == 0 && m.now-m.newest >= 10*time.Second {
			m.endRun()
		}
		if m.run++; m.run == 1 {
			m.since = m.now
			m.begun++
			m.pause = min(m.pause, 250*time.Millisecond)
		}
		m.newest = m.now
		if m.probe[i] {
			m.pause = min(2*m.pause, 5*time.Second)
		}
	case up:
		m.success(i)
	case nothing:
		if m.counted[i] {
			m.newest = m.now
		}
	}
	m.mark[i] = m.begun
	if m.counted[i] {
		m.underWay--
		m.counted[i] = false
	}
	if answer == up || len(m.sent[i]) == 2 || m.room(i) < m.steps[i].backoff {
		m.over[i] = true
		return
	}
	comesDue := m.comesDue
	if !m.withdraw(i) {
		if !m.admit(i) {
			m.over[i] = true
			return
		}
		comesDue = m.comesDueInLine
	}
	m.at(m.now+m.steps[i].backoff, func() {
		if !m.over[i] {
			comesDue(i)
		}
	})
}

func (m *gateModel) success(i int) {
	if m.run > 0 {
		m.line.recovered = true
	}
	queued := m.waiting() > 0
	if queued {
		if m.isDown() {
			m.behind = max(m.behind, m.now+min(5*(m.now-m.since), m.hold))
		}
		m.newest = m.now
		m.pause = min(m.pause, 250*time.Millisecond)
		if m.probe[i] {
			m.pause = 125 * time.Millisecond
		}
		if len(m.sent[i]) == 1 {
			m.firstUp = m.now
		}
		m.credit++
		if m.freed[i] && m.withoutFirsts() {
			m.credit += 8
		}
	}
	m.endRun()
	if queued {
		m.spend()
	}
}

func (m *gateModel) withoutFirsts() bool {
	return m.now-max(m.since, m.firstUp) >= 400*time.Millisecond
}

func (m *gateModel) endRun() {
	if m.run > 0 {
		m.run = 0
		m.begun++
		m.underWay = 0
		clear(m.counted) // what began in this run is no longer under way
	}
}

func (m *gateModel) room(i int) time.Duration {
	if m.steps[i].deadline == 0 {
		return time.Hour
	}
	return m.steps[i].start + m.steps[i].deadline - m.now - 1
}

func (m *gateModel) comesDue(i int) {
	limit := min(m.hold, m.room(i)/2)
	alone := m.waiting() == 0 && m.begun == m.mark[i]
	switch {
	case limit <= 0, !m.isDown() && (len(m.queue) == 0 || m.now >= m.behind):
		m.begin(i)
	case alone:
		m.enter(i)
		m.send(i)
	default:
		m.queue = append(m.queue, i)
		m.due[i] = m.now
		m.at(m.now+limit, func() {
			if slices.Contains(m.queue, i) {
				m.leave(i)
				m.begin(i)
			}
		})
	}
}

// leave takes a step out of the queue or the line, if it is there.
func (m *gateModel) leave(i int) {
	is := func(j int) bool { return i == j }
	if !slices.ContainsFunc(m.queue, is) && !slices.ContainsFunc(m.line.steps, is) {
		return
	}
	m.queue, m.line.steps = slices.DeleteFunc(m.queue, is), slices.DeleteFunc(m.line.steps, is)
	m.held[i] = m.now - m.due[i]
	if m.waiting() == 0 {
		m.pause, m.credit = 250*time.Millisecond, 0
	}
}

func (m *gateModel) cancel(i int) {
	if m.over[i] {
		return
	}
	m.over[i] = true
	m.leave(i)
	m.leavePlace(i)
	if m.counted[i] {
		m.newest = m.now
		m.underWay--
	}
}

// compare plays steps with a Gate and with the model.
func compareGate(t *testing.T, hold time.Duration, steps []gateStep) {
	t.Helper()
	m := &gateModel{
		hold: hold, steps: steps, mark: map[int]int{}, counted: map[int]bool{}, probe: map[int]bool{}, over: map[int]bool{},
		freed: map[int]bool{}, due: map[int]time.Duration{},
		sent: map[int][]time.Duration{}, held: map[int]time.Duration{},
		line: lineModel{places: map[int]bool{}, refused: map[int]int{}, trouble: -time.Hour, refusal: -time.Hour},
	}
	m.play()
	synctest.Test(t, func(t *testing.T) {
		g, budget := newGated(t, &retryhttp.Gate{Hold: hold}), &refusing{left: map[string]int{}}
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
			budget.left[path] = s.refused
			visits = append(visits, g.with(ctx, s.start, path, func(p *retryhttp.Policy) {
				p.Backoff, p.Budget = retryhttp.Constant(s.backoff), budget
			}))
		}
		g.ended.Wait()
		for i, v := range visits {
			require.Equal(t, m.sent[i], v.sent, "request %d, %+v", i, steps[i])
			require.Equal(t, m.held[i], v.outcome.Held, "request %d, %+v", i, steps[i])
		}
		assert.Zero(t, retryhttp.InTrouble(g.gate, "host"), "counted in the end")
	})
}

// gateSteps makes requests of random data. No two things happen at the same moment, because either
// could then be the first.
func gateSteps(data []byte) (hold time.Duration, steps []gateStep) {
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
	hold = []time.Duration{5 * time.Second, 300 * time.Millisecond, time.Minute}[next()%3]
	start := time.Duration(0)
	for len(data) > 0 && len(steps) < 150 {
		start += duration(500 * time.Microsecond)
		s := gateStep{
			start:   start,
			latency: [2]time.Duration{duration(200 * time.Microsecond), duration(time.Millisecond)},
			answer:  [2]string{answer(), answer()},
			backoff: duration(2 * time.Millisecond),
		}
		if limits := next(); limits%16 == 0 {
			s.canceled = duration(5 * time.Millisecond)
		} else if limits%16 == 1 {
			s.deadline = duration(20 * time.Millisecond)
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
