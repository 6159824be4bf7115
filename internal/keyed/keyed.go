// Package keyed holds values that requests find by a key, such as their host.
package keyed

import (
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Most is the largest number of values in a Map.
	Most = 4096
	// sweepEvery is the shortest time between two searches of a full Map for idle values. Without
	// this limit, every new key would cost a look at all values.
	sweepEvery = time.Second
)

// Map holds a value for each of a bounded number of keys. The zero Map is empty. A Map may be
// used by many goroutines at once, and must not be copied after first use.
type Map[V any] struct {
	values sync.Map     // maps string to *V; Load takes no lock
	count  atomic.Int32 // of the keys

	mu    sync.Mutex // held while a key is added
	swept time.Time
}

// Find returns key's value, or nil. It takes no lock.
func (m *Map[V]) Find(key string) *V {
	found, _ := m.values.Load(key)
	v, _ := found.(*V)
	return v
}

// FindOrAdd returns key's value, and adds a new one if there is none. A full Map first
// forgets the values that are idle. If it is still full, FindOrAdd returns nil. idle is not called
// while there is room.
func (m *Map[V]) FindOrAdd(key string, newValue func() *V, idle func(*V, time.Time) bool) *V {
	if v := m.Find(key); v != nil {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.Find(key); v != nil {
		return v
	}
	if m.Full() {
		m.sweep(time.Now(), idle)
		if m.Full() {
			return nil
		}
	}
	v := newValue()
	m.values.Store(strings.Clone(key), v) // a host is a part of a URL, which may be long
	m.count.Add(1)
	return v
}

// Full reports whether there is no room for another key. It takes no lock.
func (m *Map[V]) Full() bool { return m.count.Load() >= Most }

// Delete forgets key's value, if there is one.
func (m *Map[V]) Delete(key string) {
	if _, found := m.values.LoadAndDelete(key); found {
		m.count.Add(-1)
	}
}

// sweep forgets the idle values, with mu held.
func (m *Map[V]) sweep(now time.Time, idle func(*V, time.Time) bool) {
	if since := now.Sub(m.swept); since >= 0 && since < sweepEvery {
		return
	}
	m.swept = now
	for key, v := range m.All() {
		if idle(v, now) {
			m.Delete(key)
		}
	}
}

// All returns the keys and their values, in no particular order.
func (m *Map[V]) All() iter.Seq2[string, *V] {
	return func(yield func(string, *V) bool) {
		m.values.Range(func(key, v any) bool { return yield(key.(string), v.(*V)) })
	}
}
