package outage

// Snapshot is what a Watch counts for a key, for tests.
type Snapshot struct {
	Failures int64 // in a row
	Open     int64 // attempts under way, requests that are held, and places in the line
	Keys     int   // of the Watch
	Sound    bool  // the Watch's count of troubles fits its keys
}

// Inspect returns what w counts for a key.
func (w *Watch) Inspect(key string) (s Snapshot) {
	trouble := int64(0)
	for k, h := range w.keys.All() {
		s.Keys++
		h.mu.Lock()
		if k == key {
			s.Failures = int64(h.failures)
			s.Open = int64(h.underWay+h.queued()+h.line.places) + int64(h.closures.waiting.Load())
		}
		if h.inTrouble() {
			trouble++
		}
		h.mu.Unlock()
	}
	s.Sound = w.trouble.Load() == trouble
	return s
}
