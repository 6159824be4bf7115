package replay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// ErrNoBody means that GetBody returned neither a body nor an error, or returned http.NoBody.
// The request has content, or GetBody would not be called.
var ErrNoBody = errors.New("GetBody returned no body")

// BodyError marks an error from reading a body that has a GetBody.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// A Reopener gives every attempt of one request a body from the request's GetBody.
//
// The bodies that a GetBody returns may share one position: some GetBody functions rewind a
// single reader and return it each time. So the reads of the previous attempt pause before
// GetBody is called for a new attempt. They are cut off before the new attempt reads. When two
// attempts run side by side, GetBody is called for one attempt only after the other attempt
// has closed all its bodies.
type Reopener struct {
	announced

	getBody func() (io.ReadCloser, error)
	body    io.ReadCloser // the first attempt's body, until the attempt begins

	mu       sync.Mutex    // never held while a body or GetBody is used
	attempts []*Reopening  // without those that are over and hold no body
	readers  []*bodyReader // open readers
	newest   generation    // the newest generation of attempts
	sealed   bool          // there will be no further attempt
}

// NewReopener returns a Reopener for a request that has a body and a GetBody.
func NewReopener(body io.ReadCloser, getBody func() (io.ReadCloser, error)) *Reopener {
	return &Reopener{body: body, getBody: getBody}
}

// First begins the first attempt, which reads the request's own body.
func (r *Reopener) First(_ context.Context, atEOF func()) (Reading, error) {
	body := r.body
	r.body = nil // the Reopener may be in use for longer than the body
	return r.begin(body, atEOF), nil
}

// Repeatable returns true. Whether GetBody succeeds is known when it is called.
func (r *Reopener) Repeatable() bool { return true }

// ReadableBeside returns true, because an attempt may have closed its body when another begins.
func (r *Reopener) ReadableBeside() bool { return true }

// begin begins an attempt that reads body.
func (r *Reopener) begin(body io.ReadCloser, atEOF func()) *Reopening {
	o := &Reopening{reopener: r, atEOF: atEOF}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest++
	o.generation = r.newest
	r.append(o)
	o.add(body)
	return o
}

// append adds an attempt, and forgets the attempts that nothing can happen to any more: their
// bodies would stay in memory. The caller holds r.mu.
func (r *Reopener) append(o *Reopening) {
	r.attempts = slices.DeleteFunc(r.attempts, func(old *Reopening) bool {
		done := old.state == over && !old.inUse()
		if done {
			old.first, old.newest = nil, nil // a stopped timer may keep the attempt for a while
		}
		return done
	})
	r.attempts = append(r.attempts, o)
}

// pauseTime is the longest pause of the previous attempt's reads. After pauseTime the reads
// end: the server may wait for them, and other code for the server.
const pauseTime = 250 * time.Millisecond

// Next opens a body for the attempt that follows. The reads of this attempt, and of an attempt
// beside it, pause until they are cut. If GetBody fails, they continue. Next waits for a Read
// that is under way, but no longer than patience or the end of ctx. If GetBody returns the very
// body that is still being read, the error is [ErrInUse]: the Read would take bytes from the new
// attempt.
func (o *Reopening) Next(
	ctx context.Context, patience time.Duration, atEOF func(),
) (Reading, error) {
	r := o.reopener
	err := r.pause(ctx, o.generation, patience)
	var body io.ReadCloser
	if err == nil {
		stuck := r.pass(o.generation)
		body, err = r.open()
		if err == nil && slices.ContainsFunc(stuck, func(other io.ReadCloser) bool { return same(body, other) }) {
			err = ErrInUse
		}
	}
	if err != nil {
		r.resume(o.generation)
		return nil, err
	}
	return r.begin(body, atEOF), nil
}

// pass records that GetBody is called beside the Reads that are still under way, and returns
// the bodies that these Reads may use. The Reads may return bytes from after the rewind, so
// their results are dropped.
func (r *Reopener) pass(g generation) (stuck []io.ReadCloser) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.readers {
		if b.attempt.generation == g && b.attempt.reading > 0 {
			b.attempt.passed = true
			stuck = append(stuck, b.body)
		}
	}
	return stuck
}

func (r *Reopener) open() (io.ReadCloser, error) {
	body, err := r.getBody()
	if err == nil && (body == nil || body == http.NoBody) {
		err = ErrNoBody
	}
	return body, err
}

// Seal records that there will be no further attempt. With cut, the attempts are over too.
// Bodies that a base has not closed by then are closed as soon as they are not needed.
func (r *Reopener) Seal(cut bool) {
	r.mu.Lock()
	r.sealed = true
	if cut {
		for _, attempt := range r.attempts {
			attempt.end()
		}
	}
	idle := r.takeIdle()
	r.mu.Unlock()
	for _, body := range idle {
		closing.Soon(body)
	}
}

// takeIdle removes the readers that are no longer needed, once the Reopener is sealed, and
// returns the bodies to close. It removes the readers of an attempt that is over, readers that
// have met their end, and unread readers that a newer reader superseded. The caller holds
// r.mu.
func (r *Reopener) takeIdle() (idle []io.Closer) {
	if !r.sealed {
		return nil
	}
	for _, b := range slices.Clone(r.readers) {
		o := b.attempt
		needed := o.state != over && !b.ended && (b.used || b == o.newest || b == o.first && r.late)
		if needed {
			continue
		}
		if body := r.remove(b); body != nil {
			idle = append(idle, body)
		}
	}
	return idle
}

// remove removes b, and returns its body if the body must be closed now. It must be closed if b
// was still open, and no other open reader has the very same body. A stopped timer may keep b for a
// while, so b lets go of the body. The caller holds r.mu.
func (r *Reopener) remove(b *bodyReader) io.ReadCloser {
	i := slices.Index(r.readers, b)
	if i < 0 {
		return nil
	}
	r.readers = slices.Delete(r.readers, i, i+1)
	body := b.body
	b.body = nil
	if slices.ContainsFunc(r.readers, func(other *bodyReader) bool { return same(body, other.body) }) {
		return nil
	}
	return body
}

func same(x, y io.ReadCloser) bool {
	return reflect.ValueOf(x).Comparable() && reflect.ValueOf(y).Comparable() && x == y
}

// A Reopening is one attempt's right to read the body.
type Reopening struct {
	reopener   *Reopener
	atEOF      func()
	once       sync.Once
	generation generation

	// guarded by reopener.mu
	state   state
	changed chan struct{} // while paused: closed when the pause ends
	timer   *time.Timer   // ends the attempt if the pause is too long
	reading int           // calls of a body, or of GetBody, that are under way
	passed  bool          // GetBody was called without waiting for these calls
	quiet   chan struct{} // if not nil: closed when reading falls to 0
	first   *bodyReader
	newest  *bodyReader
}

type state int

const (
	running state = iota
	paused
	over
)

// Body returns the body that was opened last.
func (o *Reopening) Body() io.ReadCloser { return o.newest }

// SetBody makes req read the body that was opened last.
func (o *Reopening) SetBody(req *http.Request) error {
	req.Body, req.GetBody = o.Body(), o.Open
	return nil
}

func (o *Reopening) UsesGetBody() bool { return true }

// Open opens another body. It can serve as [net/http.Request.GetBody]. Open fails if the next
// attempt has begun, or if an attempt beside this attempt has a body open. GetBody would
// rewind the body of the other attempt.
func (o *Reopening) Open() (io.ReadCloser, error) {
	r := o.reopener
	r.mu.Lock()
	err := o.await()
	if err == nil && r.inUseBeside(o) {
		err = ErrOver
	}
	if err == nil {
		o.reading++ // keeps an attempt beside this one from calling GetBody too
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return o.open()
}

// open opens a body. The caller has incremented reading, and open decrements it.
func (o *Reopening) open() (io.ReadCloser, error) {
	defer o.leave()
	r := o.reopener
	body, err := r.open()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.state == over {
		closing.Begin(body)
		return nil, ErrOver
	}
	return o.add(body), nil
}

// add adds a reader of body. The caller holds reopener.mu.
func (o *Reopening) add(body io.ReadCloser) *bodyReader {
	o.newest = &bodyReader{attempt: o, body: body}
	if o.first == nil {
		o.first = o.newest
	}
	o.reopener.readers = append(o.reopener.readers, o.newest)
	return o.newest
}

// Cut ends the attempt: its readers return ErrOver. Once the Reopener is sealed, Cut also closes
// the bodies that the attempt has open, without waiting for them.
func (o *Reopening) Cut() {
	r := o.reopener
	r.mu.Lock()
	o.end()
	idle := r.takeIdle()
	r.mu.Unlock()
	for _, body := range idle {
		closing.Begin(body)
	}
}

// end ends the attempt, like Cut. The caller holds reopener.mu.
func (o *Reopening) end() { o.change(over) }

// change changes the state, and ends a pause. The caller holds reopener.mu.
func (o *Reopening) change(to state) {
	if o.state == paused {
		o.timer.Stop()
		close(o.changed)
	}
	o.state = to
}

// pause pauses the reads of a generation, and waits for the reads that are under way. It fails
// if ctx ends first.
func (r *Reopener) pause(ctx context.Context, g generation, patience time.Duration) error {
	var busy []<-chan struct{}
	r.mu.Lock()
	for _, o := range r.attempts {
		if o.generation != g {
			continue
		}
		if quiet := o.pause(); quiet != nil {
			busy = append(busy, quiet)
		}
	}
	r.mu.Unlock()
	if busy == nil {
		return nil
	}
	timer := time.NewTimer(min(patience, pauseTime))
	defer timer.Stop()
	for _, quiet := range busy {
		select {
		case <-quiet:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pause pauses the attempt's reads. The channel is closed when the reads under way have
// returned; it is nil if there are none. The caller holds reopener.mu.
func (o *Reopening) pause() (quiet <-chan struct{}) {
	if o.state == running {
		o.state, o.changed = paused, make(chan struct{})
		o.timer = time.AfterFunc(pauseTime, o.Cut)
	}
	if o.reading == 0 {
		return nil
	}
	o.quiet = make(chan struct{})
	return o.quiet
}

func (r *Reopener) resume(g generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.attempts {
		if o.generation == g && o.state == paused {
			o.change(running)
		}
	}
}

// await waits while the attempt is paused. The caller holds reopener.mu.
func (o *Reopening) await() error {
	for o.state == paused {
		changed := o.changed
		o.reopener.mu.Unlock()
		<-changed
		o.reopener.mu.Lock()
	}
	if o.state == over {
		return ErrOver
	}
	return nil
}

// enter begins a Read by b, and leave ends it. A closed body is not read, because another
// attempt may have it by then.
func (o *Reopening) enter(b *bodyReader) (io.Reader, error) {
	o.reopener.mu.Lock()
	defer o.reopener.mu.Unlock()
	if err := o.await(); err != nil {
		return nil, err
	}
	if !slices.Contains(o.reopener.readers, b) {
		return nil, ErrOver
	}
	b.used = true
	o.reading++
	return b.body, nil
}

func (o *Reopening) wasPassed() bool {
	o.reopener.mu.Lock()
	defer o.reopener.mu.Unlock()
	return o.passed
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

// A bodyReader is a body as the base sees it.
type bodyReader struct {
	attempt *Reopening
	body    io.ReadCloser // nil once it is closed; guarded by the Reopener's mu
	given   int64         // bytes that Read has returned; used by Read alone

	// written by Read alone, with the Reopener's mu held
	used  bool // a Read has reached the body
	ended bool // the end of the body was met
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF // net/http looks for the end again, when the body may already be closed
	}
	n, err := b.read(p)
	b.given += int64(n)
	switch err {
	case nil:
		return n, nil
	case ErrOver:
		return n, b.attempt.reopener.afterwards(b.given)
	case io.EOF:
		b.end()
		return n, io.EOF
	}
	return n, &BodyError{err}
}

func (b *bodyReader) read(p []byte) (int, error) {
	body, err := b.attempt.enter(b)
	if err != nil {
		return 0, err
	}
	defer b.attempt.leave()
	n, err := body.Read(p)
	if b.attempt.wasPassed() {
		return 0, ErrOver
	}
	return n, err
}

func (b *bodyReader) end() {
	if b.attempt.atEOF != nil {
		b.attempt.once.Do(b.attempt.atEOF)
	}
	r := b.attempt.reopener
	r.mu.Lock()
	b.ended = true
	idle := r.takeIdle()
	r.mu.Unlock()
	for _, body := range idle {
		_ = body.Close()
	}
}

// Close closes the body, once. If GetBody returned the very same body to the next attempt, the
// body is closed with that attempt.
func (b *bodyReader) Close() error {
	r := b.attempt.reopener
	r.mu.Lock()
	body := r.remove(b)
	if body != nil {
		b.attempt.reading++ // a call of GetBody waits for Close, too
	}
	r.mu.Unlock()
	if body == nil {
		return nil
	}
	defer b.attempt.leave()
	return body.Close()
}
