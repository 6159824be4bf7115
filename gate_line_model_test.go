package retryhttp_test

import (
	"math"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

// lineModel is the line of a gateModel: the steps whose retry the Budget has refused.
type lineModel struct {
	steps            []int        // in line, the oldest first
	places           map[int]bool // in line, or in their backoff
	refused          map[int]int  // how often each was refused
	trouble, refusal time.Duration
	down             bool // a run of failures belongs to the trouble
	recovered        bool // it has ended
	served           float64
	servedAt         time.Duration
}

// How a retry is released.
const (
	bySuccess = iota
	asProbe
	atTheEnd
)

// waiting returns how many steps wait, with a token or without.
func (m *gateModel) waiting() int { return len(m.queue) + len(m.line.steps) }

func (m *gateModel) oldest() int {
	if len(m.queue) > 0 {
		return m.queue[0]
	}
	return m.line.steps[0]
}

// withdraw asks the Budget.
func (m *gateModel) withdraw(i int) bool {
	if m.line.refused[i] < m.steps[i].refused {
		m.line.refused[i]++
		return false
	}
	return true
}

// admit gives a place. For a Hold, everybody has one. After that there are as many as were served
// lately, and one. No steps last for half an hour.
func (m *gateModel) admit(i int) bool {
	l := &m.line
	if m.now-l.refusal >= m.hold && (!l.down || l.recovered) {
		l.trouble, l.down = m.now, false
	}
	if m.run > 0 && !l.down {
		l.down, l.recovered = true, false
	}
	l.refusal = m.now
	if m.now-l.trouble >= m.hold && float64(len(l.places)) >= m.servedLately()+1 {
		return false
	}
	l.places[i] = true
	return true
}

func (m *gateModel) leavePlace(i int) { delete(m.line.places, i) }

func (m *gateModel) servedLately() float64 {
	return m.line.served * math.Exp(-(m.now-m.line.servedAt).Seconds()/m.hold.Seconds())
}

// comesDueInLine is comesDue for a step without a token.
func (m *gateModel) comesDueInLine(i int) {
	l := &m.line
	first := m.waiting() == 0
	m.due[i] = m.now
	if first && m.run > 0 && len(l.places) == 1 && m.begun == m.mark[i] { // it is alone
		m.leavePlace(i)
		m.over[i] = !m.withdraw(i)
		if !m.over[i] {
			m.begin(i)
		}
		return
	}
	l.steps = append(l.steps, i)
	limit := min(m.hold, m.room(i)/4*3)
	if limit <= 0 {
		m.ask(i, atTheEnd)
		return
	}
	m.at(m.now+limit, func() {
		if m.inLine(i) {
			m.ask(i, atTheEnd)
		}
	})
	if first && m.probeDue() <= m.now {
		m.sendProbe()
	}
}

func (m *gateModel) inLine(i int) bool {
	for _, j := range m.line.steps {
		if i == j {
			return true
		}
	}
	return false
}

// ask has a step in line ask the Budget. If it is granted a token, it goes.
func (m *gateModel) ask(i, how int) {
	granted := m.withdraw(i)
	switch {
	case granted:
		m.line.served, m.line.servedAt = m.servedLately()+1, m.now
	case how != atTheEnd:
		return
	}
	m.leavePlace(i)
	switch {
	case granted && how == asProbe:
		m.releaseProbe(i)
	case granted:
		m.leave(i)
		m.freed[i] = how == bySuccess
		m.begin(i)
	default:
		m.leave(i)
		m.over[i] = true
	}
}

// spend lets the oldest go, or ask. A success lets the oldest in line ask. While retries queue behind
// others after an outage, four successes do.
func (m *gateModel) spend() {
	for m.waiting() > 0 {
		i := m.oldest()
		asks := len(m.queue) == 0 && !(m.waiting() >= 8 && m.withoutFirsts())
		if m.credit < 4 && (!asks || m.now < m.behind) {
			break
		}
		m.credit = max(m.credit-4, 0)
		if asks {
			m.ask(i, bySuccess)
			break
		}
		m.leave(i)
		m.leavePlace(i)
		m.freed[i] = true
		m.begin(i)
	}
	m.credit = min(m.credit, 4)
}

// refusing is a Budget that refuses the retry of each path so often.
type refusing struct {
	retryhttp.Unlimited
	mu   sync.Mutex
	left map[string]int
}

func (b *refusing) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left[r.Request.URL.Path]
	b.left[r.Request.URL.Path] = max(left-1, 0)
	return 1, left == 0
}
