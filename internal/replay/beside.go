package replay

import (
	"context"
	"errors"
	"slices"
)

// Beside returns a lease for an attempt that runs beside elder's attempt. The new lease does
// not affect elder, and is not promised the beginning of the body. A stream is recorded only
// up to its limit: an attempt that reads past the limit leaves the other attempt without the
// beginning. Then the elder attempt continues and the new lease is cut, regardless of which
// attempt read past the limit. After the elder attempt is cut, or needs no more of the body,
// the new lease no longer gives way.
//
// The error is [ErrOver] if elder has been cut, and [ErrSpent] if the beginning of the body is
// no longer available. The context and atEOF are as in [Source.Lease].
func (s *Source) Beside(ctx context.Context, elder *Lease, atEOF func()) (*Lease, error) {
	if err := s.origin.rewind(nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case elder.over:
		return nil, ErrOver
	case s.sealed || !s.origin.repeatable():
		return nil, ErrSpent
	}
	return &Lease{source: s, ctx: ctx, atEOF: atEOF, generation: elder.generation, elder: elder}, nil
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

// Beside opens a body for an attempt that runs beside elder's attempt, with atEOF as in
// [Reopener.Begin]. GetBody may rewind the body that elder reads. So Beside calls GetBody only
// if every opened body has been closed, and no Read or Close is under way. Beside does not
// wait for that. While one of the two attempts has a body open, [Reopening.Open] fails for the
// other attempt.
//
// The error is ErrInUse, [ErrOver], or an error from GetBody. It is ErrOver if elder has been
// cut or there will be no further attempt.
func (r *Reopener) Beside(elder *Reopening, atEOF func()) (*Reopening, error) {
	o := &Reopening{reopener: r, atEOF: atEOF, generation: elder.generation}
	if err := r.begin(o, elder); err != nil {
		return nil, err
	}
	if _, err := o.open(); err != nil {
		return nil, err
	}
	return o, nil
}

// begin adds o, which is about to call GetBody, unless that disturbs another attempt.
func (r *Reopener) begin(o, elder *Reopening) error {
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
