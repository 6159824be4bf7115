package outage

// Snapshot is what a Watch counts for a key, for tests.
type Snapshot struct {
	Failures int64 // in a row
	Open     int64 // attempts under way, requests that are held, and places in the line
	Limited  int   // credentials that have a closure
	Keys     int   // of the Watch
	Sound    bool  // the Watch's count of troubles fits its keys
}

// Inspect returns what w counts for a key.
func (w *Watch) Inspect(key string) (s Snapshot) {
	trouble := int64(0)
	for k, f := range w.fates.All() {
		s.Keys++
		f.mu.Lock()
		if k == key {
			s.Failures = f.run.Load()
			s.Open = int64(uint32(f.underWay.Load())) + f.queued.Load() + f.waiting.Load() + f.line.places.Load()
			s.Limited = len(f.closures.limited)
		}
		trouble += min(f.run.Load(), 1) + min(f.queued.Load(), 1)
		f.mu.Unlock()
	}
	s.Sound = w.trouble.Load() == trouble
	return s
}
