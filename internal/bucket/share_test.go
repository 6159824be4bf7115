package bucket

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// live lets a host answer for d, with so many successes and failures in each tenth of a second.
func live(table *Table, d time.Duration, ups, downs int, f Failure) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(tenth) {
		for range downs {
			table.Count("a", usual, f)
		}
		for range ups {
			table.Deposit("a", usual)
		}
	}
}

var down, outage = Failure{Down: true}, Failure{Down: true, Outage: true}

// A failure that no retry follows makes a server poor, but only if it says that the host is down.
func TestFailureWithoutARetryCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		live(&table, 10*time.Second, 0, 20, Failure{Invited: true})
		assert.Zero(t, kept(t, &table), "nothing was counted")
		live(&table, 10*time.Second, 8, 12, Failure{Invited: true})
		assert.False(t, poor(&table, "a"))
		live(&table, 10*time.Second, 8, 12, down)
		assert.True(t, poor(&table, "a"))
	})
}

// An outage is no overload. But a server is on trial after it, and is then poor if it is hardly well.
func TestOutagePutsAServerOnTrial(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during Failure
		lasts  time.Duration
		later  time.Duration
		poor   bool
	}{
		{"no outage", Failure{}, 10 * time.Second, 0, false},
		{"an outage", outage, 10 * time.Second, 0, true},
		{"a long outage", outage, longOutage + tenth, 0, true},
		{"a short outage", outage, longOutage, 0, false},
		{"long after an outage", outage, 10 * time.Second, trial, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table Table
				live(&table, time.Second, 20, 0, down)
				live(&table, tt.lasts, 0, 20, tt.during)
				assert.False(t, poor(&table, "a"))
				time.Sleep(tt.later)
				live(&table, 5*time.Second, 11, 9, down)
				assert.Equal(t, tt.poor, poor(&table, "a"))
			})
		})
	}
}

// A server that is hardly better after its relief is partly broken. An outage meanwhile changes nothing.
func TestOutageOfAPoorServerIsNoTrial(t *testing.T) {
	s := share{poor: true}
	now := time.Now()
	s.sufferOutage(now)
	s.sufferOutage(now.Add(longOutage - 1))
	s.sufferOutage(now.Add(longOutage))
	assert.Zero(t, s.trialEnds)
}

// A server that its relief has helped is on trial again. One that is hardly better is partly broken.
func TestReliefThatHelpsIsFollowedByATrial(t *testing.T) {
	for _, helped := range []bool{false, true} {
		now := time.Now()
		s := share{failing: wellBelow, poor: true, poorUntil: now, ups: mostOfATenth}
		if helped {
			s.failing = betterBelow
		}
		s.weigh(now.Add(trial))
		assert.False(t, s.poor)
		assert.Equal(t, helped, !s.trialEnds.IsZero())
	}
}

// A server that is poor for the first time in a long while is on trial afterwards, although it had relief before.
func TestReliefOfLongAgoForbidsNoTrial(t *testing.T) {
	now := time.Now()
	s := share{failing: poorAbove, poorUntil: now, downs: mostOfATenth}
	s.weigh(now.Add(trial))
	assert.True(t, s.poor)
	for s.poor {
		now = now.Add(trial)
		s.ups = mostOfATenth
		s.weigh(now)
	}
	assert.Greater(t, s.failing, betterBelow, "hardly better")
	assert.Equal(t, now.Add(trial), s.trialEnds)
}
