package replay

import (
	"context"
	"errors"
	"slices"
)

// Beside returns a lease for an attempt that runs beside this attempt. The new lease does not
// affect its elder, l, and is not promised the beginning of the body. A stream is recorded only
// up to its limit: an attempt that reads past the limit leaves the other attempt without the
// beginning. Then the elder attempt continues and the new lease is cut, regardless of which
// attempt read past the limit. After the elder attempt is cut, or needs no more of the body,
// the new lease no longer gives way.
//
// The error is [ErrOver] if l has been cut, and [ErrSpent] if the beginning of the body is no
// longer available.
func (l *Lease) Beside(ctx context.Context, atEOF func()) (Reading, error) {
	s := l.source
	if err := s.origin.rewind(nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.over:
		return nil, ErrOver
	case s.unavailable():
		return nil, ErrSpent
	}
	return &Lease{source: s, ctx: ctx, atEOF: atEOF, generation: l.generation, elder: l}, nil
}

// givesWay reports whether l must not use up the beginning of the body. Then a newer attempt
// has been promised the beginning, or an elder attempt needs it. The caller holds source.mu.
func (l *Lease) givesWay() bool {
	return l.generation < l.source.newest || l.isYounger()
}

// isYounger reports whether l runs beside an elder attempt that needs the body. The caller
// holds source.mu.
func (l *Lease) isYounger() bool {
	return l.elder != nil && (l.elder.needsBody() || l.elder.isYounger())
}

// needsBody reports whether l may read more of the body. An attempt that has closed its
// readers may open another reader, but net/http does that only if the length is known and
// within the limit. The caller holds source.mu.
func (l *Lease) needsBody() bool {
	unread := l.first == nil
	return !l.over && (unread || slices.ContainsFunc(l.source.readers, func(r *Reader) bool {
		return r.lease == l && r.counts()
	}))
}

// cutYounger cuts the leases that have lost the beginning of the body to an elder lease. The
// caller holds mu.
func (s *Source) cutYounger() {
	for _, r := range slices.Clone(s.readers) {
		if r.lease.isYounger() {
			r.lease.cut()
		}
	}
}

// ErrInUse means that GetBody might rewind a body that another attempt has open.
var ErrInUse = errors.New("another attempt has the request body open")

// Beside opens a body for an attempt that runs beside this attempt. GetBody may rewind the body
// that this attempt reads. So Beside calls GetBody only if every opened body has been closed,
// and no Read or Close is under way. Beside does not wait for that. While one of the two
// attempts has a body open, [Reopening.Open] fails for the other attempt.
//
// The error is ErrInUse, [ErrOver], or an error from GetBody. It is ErrOver if this attempt has
// been cut or there will be no further attempt.
func (o *Reopening) Beside(_ context.Context, atEOF func()) (Reading, error) {
	younger := &Reopening{reopener: o.reopener, atEOF: atEOF, generation: o.generation}
	if err := younger.join(o); err != nil {
		return nil, err
	}
	if _, err := younger.open(); err != nil {
		return nil, err
	}
	return younger, nil
}

// join adds o, which is about to call GetBody, unless that disturbs another attempt.
func (o *Reopening) join(elder *Reopening) error {
	r := o.reopener
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.sealed || elder.state == over:
		return ErrOver
	case elder.state == paused || slices.ContainsFunc(r.attempts, (*Reopening).inUse):
		return ErrInUse
	}
	r.append(o)
	o.reading++
	return nil
}

// inUse reports whether the attempt has a body open. The caller holds reopener.mu.
func (o *Reopening) inUse() bool {
	return o.reading > 0 || slices.ContainsFunc(o.reopener.readers, func(b *bodyReader) bool { return b.attempt == o })
}

// inUseBeside reports whether an attempt beside o has a body open. The caller holds mu.
func (r *Reopener) inUseBeside(o *Reopening) bool {
	return slices.ContainsFunc(r.attempts, func(other *Reopening) bool {
		return other != o && other.generation == o.generation && other.inUse()
	})
}
