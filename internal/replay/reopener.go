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

// ErrNoBody is returned where a GetBody returned neither a body nor an error, or
// the empty one: there is content, or nobody would ask.
var ErrNoBody = errors.New("GetBody returned no body")

// BodyError marks an error that came from reading a body that has a GetBody.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// A Reopener gives every attempt of one request a body from its GetBody.
//
// The bodies that a GetBody returns may share one position: some rewind a single
// reader and return it each time. So GetBody is called for a new attempt only
// while nobody reads, and what the previous attempt opened is cut off before the
// new one reads. When two attempts run side by side, GetBody is called for one only
// after the other has closed all its bodies.
type Reopener struct {
	// Late and Length are as in a [Source].
	Late   bool
	Length int64

	getBody func() (io.ReadCloser, error)

	mu       sync.Mutex // never held while a body or GetBody is used
	attempts []*Reopening
	readers  []*bodyReader // open ones
	newest   generation    // of the attempts
	sealed   bool          // there will be no further attempt
}

// NewReopener returns a Reopener for a request that has a GetBody.
func NewReopener(getBody func() (io.ReadCloser, error)) *Reopener {
	return &Reopener{getBody: getBody}
}

// Begin begins an attempt that reads body, as the first one does. If atEOF is not
// nil, it is called when a reader of the attempt has met the end of the body, before
// the reader's Read returns.
func (r *Reopener) Begin(body io.ReadCloser, atEOF func()) *Reopening {
	o := &Reopening{reopener: r, atEOF: atEOF}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest++
	o.generation = r.newest
	r.attempts = append(r.attempts, o)
	o.add(body)
	return o
}

// pauseTime is how long reads of the previous attempt pause at most. After that
// they end: the server may wait for them, and somebody for the server.
const pauseTime = 250 * time.Millisecond

// Reopen opens a body for a new attempt, with atEOF as above. The reads of the previous
// attempt, and of an attempt beside it, pause until they are cut; if GetBody fails, they
// go on. A Read that is under way is waited for, but no longer than patience or the end
// of ctx. If GetBody returns the very body that is still being read, the error is
// [ErrInUse]: the Read would take bytes from the new attempt.
func (r *Reopener) Reopen(
	ctx context.Context, previous *Reopening, patience time.Duration, atEOF func(),
) (*Reopening, error) {
	err := r.pause(ctx, previous.generation, patience)
	var body io.ReadCloser
	if err == nil {
		stuck := r.pass(previous.generation)
		body, err = r.open()
		if err == nil && slices.ContainsFunc(stuck, func(other io.ReadCloser) bool { return same(body, other) }) {
			err = ErrInUse
		}
	}
	if err != nil {
		r.resume(previous.generation)
		return nil, err
	}
	return r.Begin(body, atEOF), nil
}

// pass notes that GetBody is called beside the Reads that are still under way, and
// returns the bodies that may be read. What these Reads bring may come from behind the
// rewind, so nobody gets it.
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

// Seal says that there will be no further attempt. With cut, the last one is over
// too. What a base has not closed by then is closed as soon as nobody needs it.
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

// takeIdle removes the readers that nobody needs any more, once the Reopener is
// sealed, with r.mu held, and returns what is to be closed of them. They are those
// of an attempt that is over; those that have met their end; and those that another
// one superseded unread.
func (r *Reopener) takeIdle() (idle []io.Closer) {
	if !r.sealed {
		return nil
	}
	for _, b := range slices.Clone(r.readers) {
		o := b.attempt
		needed := o.state != over && !b.ended && (b.used || b == o.newest || b == o.first && r.Late)
		if !needed && r.remove(b) {
			idle = append(idle, b.body)
		}
	}
	return idle
}

// remove takes b out, with r.mu held, and reports whether its body is to be closed
// now: it had not been taken out, and no other open reader has the very same body.
func (r *Reopener) remove(b *bodyReader) bool {
	i := slices.Index(r.readers, b)
	if i < 0 {
		return false
	}
	r.readers = slices.Delete(r.readers, i, i+1)
	return !slices.ContainsFunc(r.readers, func(other *bodyReader) bool { return same(b.body, other.body) })
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
	changed chan struct{} // while paused: closed when that ends
	timer   *time.Timer   // ends the attempt when it has been paused for too long
	reading int           // uses of a body, or of GetBody, that are under way
	passed  bool          // by a GetBody that did not wait for them
	quiet   chan struct{} // if not nil: closed when reading comes to 0
	first   *bodyReader
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

// Open opens another body. It serves for [net/http.Request.GetBody]. The next
// attempt may begin meanwhile, or have begun, or another one run beside this one:
// GetBody would rewind what that reads.
func (o *Reopening) Open() (io.ReadCloser, error) {
	r := o.reopener
	r.mu.Lock()
	err := o.await()
	if err == nil && r.inUseBeside(o) {
		err = ErrOver
	}
	if err == nil {
		o.reading++ // or it would be rewound by both
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return o.open()
}

// open is Open after reading was counted up.
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

// add adds a reader of body, with reopener.mu held.
func (o *Reopening) add(body io.ReadCloser) *bodyReader {
	o.newest = &bodyReader{attempt: o, body: body}
	if o.first == nil {
		o.first = o.newest
	}
	o.reopener.readers = append(o.reopener.readers, o.newest)
	return o.newest
}

// Cut ends the attempt: its readers return ErrOver. It may be called on a nil
// Reopening. Once the Reopener is sealed, the bodies that the attempt has open are
// closed, and Cut does not wait for that.
func (o *Reopening) Cut() {
	if o == nil {
		return
	}
	r := o.reopener
	r.mu.Lock()
	o.end()
	idle := r.takeIdle()
	r.mu.Unlock()
	for _, body := range idle {
		closing.Begin(body)
	}
}

// end is Cut with reopener.mu held.
func (o *Reopening) end() { o.change(over) }

// change ends a pause, with reopener.mu held.
func (o *Reopening) change(to state) {
	if o.state == paused {
		o.timer.Stop()
		close(o.changed)
	}
	o.state = to
}

// pause pauses the reads of a generation, and waits for those under way. It fails if
// ctx ends first.
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

// pause pauses the attempt's reads, with reopener.mu held. The channel is closed when
// those under way have returned; it is nil if there are none.
func (o *Reopening) pause() (quiet <-chan struct{}) {
	if o.state == underWay {
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
			o.change(underWay)
		}
	}
}

// await waits while the attempt is paused, with reopener.mu held.
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

// enter begins a Read by b, and leave ends it. A body that was closed is not read:
// another attempt may have it by then.
func (o *Reopening) enter(b *bodyReader) error {
	o.reopener.mu.Lock()
	defer o.reopener.mu.Unlock()
	if err := o.await(); err != nil {
		return err
	}
	if !slices.Contains(o.reopener.readers, b) {
		return ErrOver
	}
	b.used = true
	o.reading++
	return nil
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

// A bodyReader is a body as a base sees it.
type bodyReader struct {
	attempt *Reopening
	body    io.ReadCloser
	given   int64 // how many bytes Read has returned; Read alone uses it

	// written by Read alone, with the Reopener's mu held
	used  bool // somebody has read from it
	ended bool // its end was met
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF // net/http looks for the end once more, when the body may be closed
	}
	n, err := b.read(p)
	b.given += int64(n)
	switch err {
	case nil:
		return n, nil
	case ErrOver:
		return n, b.afterwards()
	case io.EOF:
		b.end()
		return n, io.EOF
	}
	return n, &BodyError{err}
}

// afterwards is as in a [Reader].
func (b *bodyReader) afterwards() error {
	if length := b.attempt.reopener.Length; length > 0 && b.given == length {
		return io.EOF
	}
	return ErrOver
}

func (b *bodyReader) read(p []byte) (int, error) {
	if err := b.attempt.enter(b); err != nil {
		return 0, err
	}
	defer b.attempt.leave()
	n, err := b.body.Read(p)
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

// Close closes the body, once. A body that the next attempt reads as well, for
// GetBody returned the very same again, is closed with that attempt.
func (b *bodyReader) Close() error {
	r := b.attempt.reopener
	r.mu.Lock()
	due := r.remove(b)
	if due {
		b.attempt.reading++ // GetBody waits for Close, too
	}
	r.mu.Unlock()
	if !due {
		return nil
	}
	defer b.attempt.leave()
	return b.body.Close()
}
