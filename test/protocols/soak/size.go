package main

import (
	"fmt"
	"runtime"
	"time"
)

// size is how large the process is at a moment.
type size struct {
	at         time.Duration
	heap       float64 // in bytes, of what is reachable
	goroutines float64
}

type sizes []size

// look adds how large the process is after some time, every few seconds.
func (s *sizes) look(after time.Duration) {
	if n := len(*s); n > 0 && after-(*s)[n-1].at < 5*time.Second {
		return
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*s = append(*s, size{after, float64(m.HeapAlloc), float64(runtime.NumGoroutine())})
}

// mean is how large the process is between two moments.
func (s sizes) mean(from, to time.Duration) (m size) {
	n := 0.0
	for _, one := range s {
		if from <= one.at && one.at < to {
			m.heap, m.goroutines, n = m.heap+one.heap, m.goroutines+one.goroutines, n+1
		}
	}
	return size{from, m.heap / n, m.goroutines / n}
}

// quarters are the second and the last quarter of a soak. In the first the process fills what it keeps for a
// minute.
func (s sizes) quarters(length time.Duration) (second, last size) {
	return s.mean(length/4, length/2), s.mean(length/4*3, 2*length)
}

// grown returns an error if the process is larger at the end of a soak of at least 10 minutes. How many
// requests hang at a moment is chance.
func (s sizes) grown(length time.Duration) error {
	if length < 10*time.Minute {
		return nil
	}
	second, last := s.quarters(length)
	if last.heap > 1.2*second.heap || last.goroutines > 1.2*second.goroutines {
		return fmt.Errorf("the process grows: in its second quarter %v, in its last %v", second, last)
	}
	return nil
}

func (s size) String() string {
	return fmt.Sprintf("%.1f MB and %.0f goroutines", s.heap/1e6, s.goroutines)
}

func (s sizes) String() string {
	end := s[len(s)-1].at
	second, last := s.quarters(end)
	return fmt.Sprintf("second quarter: %v; last quarter: %v", second, last)
}
