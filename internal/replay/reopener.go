package replay

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// ErrNoBody is returned where a GetBody returned neither a body nor an error.
var ErrNoBody = errors.New("GetBody returned neither a body nor an error")

// BodyError marks an error that came from reading a body that has a GetBody.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// A Reopener gives every attempt of one request a body from its GetBody.
//
// The bodies that a GetBody returns may share one position: some rewind a single
// reader and return it each time. So GetBody is called for a new attempt only
// while nobody reads, and what the previous attempt opened is cut off before the
// new one reads.
type Reopener struct {
	getBody func() (io.ReadCloser, error)

	mu      sync.Mutex // never held while a body or GetBody is used
	readers []*bodyReader
	sealed  bool // there will be no further attempt
}

// NewReopener returns a Reopener whose first attempt reads body.
func NewReopener(body io.ReadCloser, getBody func() (io.ReadCloser, error)) (*Reopener, *Reopening) {
	r := &Reopener{getBody: getBody}
	first := &Reopening{reopener: r}
	first.add(body)
	return r, first
}

// readTime is how long a Read of the previous attempt may delay the next GetBody.
const readTime = 250 * time.Millisecond

// Reopen opens a body for a new attempt. The previous attempt's reads pause until
// it is cut; if GetBody fails, they go on. A Read that is under way is waited for,
// up to 250 ms or the end of ctx.
func (r *Reopener) Reopen(ctx context.Context, previous *Reopening) (*Reopening, error) {
	err := previous.hold(ctx)
	var body io.ReadCloser
	if err == nil {
		body, err = r.open()
	}
	if err != nil {
		previous.resume()
		return nil, err
	}
	next := &Reopening{reopener: r}
	next.add(body)
	return next, nil
}

func (r *Reopener) open() (io.ReadCloser, error) {
	body, err := r.getBody()
	if err == nil && body == nil {
		err = ErrNoBody
	}
	return body, err
}

// Seal says that there will be no further attempt. With cut, the last one is over
// too. What a base has not closed by then is closed as soon as nobody needs it.
func (r *Reopener) Seal(cut bool) {
	r.mu.Lock()
	r.sealed = true
	if cut {
		for _, reader := range r.readers {
			reader.attempt.end()
		}
	}
	idle := r.takeIdle()
	r.mu.Unlock()
	for _, reader := range idle {
		closing.Soon(reader.body)
	}
}

// takeIdle removes and returns the readers that nobody needs any more, once the
// Reopener is sealed, with r.mu held. They are those of an attempt that is over;
// those that have met their end; and those that another one superseded unread.
func (r *Reopener) takeIdle() (idle []*bodyReader) {
	if !r.sealed {
		return nil
	}
	r.readers = slices.DeleteFunc(r.readers, func(b *bodyReader) bool {
		needed := b.attempt.state != over && !b.ended && (b.used || b == b.attempt.newest)
		if !needed {
			idle = append(idle, b)
		}
		return !needed
	})
	return idle
}

// A Reopening is one attempt's right to read the body.
type Reopening struct {
	reopener *Reopener

	// guarded by reopener.mu
	state   state
	changed chan struct{} // while paused: closed when that ends
	reading int
	quiet   chan struct{} // if not nil: closed when reading comes to 0
	newest  *bodyReader
}

type state int

const (
	underWay state = iota
	paused
	over
)

// Body returns the newest body that was opened.
func (o *Reopening) Body() io.ReadCloser { return o.newest }

// Open opens another body. It serves for [net/http.Request.GetBody].
func (o *Reopening) Open() (io.ReadCloser, error) {
	body, err := o.reopener.open()
	if err != nil {
		return nil, err
	}
	return o.add(body), nil
}

func (o *Reopening) add(body io.ReadCloser) *bodyReader {
	r := o.reopener
	r.mu.Lock()
	defer r.mu.Unlock()
	o.newest = &bodyReader{attempt: o, body: body}
	r.readers = append(r.readers, o.newest)
	return o.newest
}

// Cut ends the attempt: its readers return ErrOver. It may be called on a nil
// Reopening.
func (o *Reopening) Cut() {
	if o == nil {
		return
	}
	o.reopener.mu.Lock()
	defer o.reopener.mu.Unlock()
	o.end()
}

// end is Cut with reopener.mu held.
func (o *Reopening) end() {
	if o.state == paused {
		close(o.changed)
	}
	o.state = over
}

// hold pauses the attempt's reads. It fails if ctx ends first.
func (o *Reopening) hold(ctx context.Context) error {
	r := o.reopener
	r.mu.Lock()
	if o.state == underWay {
		o.state, o.changed = paused, make(chan struct{})
	}
	var quiet chan struct{}
	if o.reading > 0 {
		quiet = make(chan struct{})
		o.quiet = quiet
	}
	r.mu.Unlock()
	if quiet == nil {
		return nil
	}
	timer := time.NewTimer(readTime)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (o *Reopening) resume() {
	r := o.reopener
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.state == paused {
		close(o.changed)
		o.state = underWay
	}
}

// enter begins a Read by b, and leave ends it.
func (o *Reopening) enter(b *bodyReader) error {
	r := o.reopener
	r.mu.Lock()
	defer r.mu.Unlock()
	for o.state == paused {
		changed := o.changed
		r.mu.Unlock()
		<-changed
		r.mu.Lock()
	}
	if o.state == over {
		return ErrOver
	}
	b.used = true
	o.reading++
	return nil
}

func (o *Reopening) leave() {
	r := o.reopener
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.reading--; o.reading == 0 && o.quiet != nil {
		close(o.quiet)
		o.quiet = nil
	}
}

// A bodyReader is a body as a base sees it.
type bodyReader struct {
	attempt *Reopening
	body    io.ReadCloser

	// written by Read alone, with the Reopener's mu held
	used  bool // somebody has read from it
	ended bool // its end was met
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF // net/http looks for the end once more, when the body may be closed
	}
	n, err := b.read(p)
	switch err {
	case nil, ErrOver:
		return n, err
	case io.EOF:
		b.end()
		return n, err
	}
	return n, &BodyError{err}
}

func (b *bodyReader) read(p []byte) (int, error) {
	if err := b.attempt.enter(b); err != nil {
		return 0, err
	}
	defer b.attempt.leave()
	return b.body.Read(p)
}

func (b *bodyReader) end() {
	r := b.attempt.reopener
	r.mu.Lock()
	b.ended = true
	idle := r.takeIdle()
	r.mu.Unlock()
	for _, reader := range idle {
		_ = reader.body.Close()
	}
}

// Close closes the body, once.
func (b *bodyReader) Close() error {
	r := b.attempt.reopener
	r.mu.Lock()
	open := slices.Contains(r.readers, b)
	r.readers = slices.DeleteFunc(r.readers, func(other *bodyReader) bool { return other == b })
	r.mu.Unlock()
	if !open {
		return nil
	}
	return b.body.Close()
}
