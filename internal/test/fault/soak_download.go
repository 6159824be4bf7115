package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp"
)

// maxStall is so short that a body may stall several times before the deadline.
const maxStall = 200 * time.Millisecond

// randomDownload returns any Download, and often one that is resumed.
func randomDownload(random *rand.Rand) Download {
	d := Download{
		Policy:   Resuming,
		Partial:  random.IntN(4) == 0,
		Cuts:     random.IntN(4),
		Where:    Where(random.IntN(int(AfterLastByte) + 1)),
		How:      Reset + How(random.IntN(int(Trickle))), // the proxy drops connections enough
		Replaced: random.IntN(4) == 0,
		Resumed:  Honest,
	}
	if random.IntN(2) == 0 {
		d.Policy = DownloadPolicy(random.IntN(int(lastPolicy) + 1))
	}
	if random.IntN(2) == 0 {
		d.Framing = Framing(random.IntN(int(GzipWanted) + 1))
	}
	d.Partial = d.Partial && d.Framing != Gzip // for which net/http would not ask
	if random.IntN(4) == 0 {
		d.Validator = Validator(random.IntN(int(NoRanges) + 1))
	}
	if random.IntN(2) == 0 {
		d.Resumed = Resumptions[random.IntN(len(Resumptions))]
	}
	return d
}

// download makes a request whose body breaks off in many ways.
func (s *soaking) download(ctx context.Context, random *rand.Rand, id string, n uint64) {
	o := NewObject(randomDownload(random), n)
	o.Pause = time.Duration(random.ExpFloat64() * float64(10*time.Millisecond))
	s.server.Order(id, failures(s.orders(random))...)
	s.server.Offer(id, o)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if random.IntN(10) == 0 { // its caller goes at any moment
		time.AfterFunc(time.Duration(random.ExpFloat64()*float64(100*time.Millisecond)), cancel)
	}
	ctx = retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { o.Download.Policy.Set(p, maxStall) })
	d := o.Fetch(ctx, s.rt, s.server.Ledger, s.world.URL(n), id)
	s.noteDownload(id, o, d, s.server.Ledger.Check(id, d.Whole))
	s.server.Offer(id, nil)
	s.server.Order(id)
}

// failures are the faults that do not answer with a success. A success would be another
// object.
func failures(faults []*Fault) (failing []*Fault) {
	for _, f := range faults {
		if f.Effect == Fails || f.Effect == Hangs {
			failing = append(failing, f)
		}
	}
	return failing
}

// noteDownload records a download's result.
func (s *soaking) noteDownload(id string, o *Object, d Delivery, wrong error) {
	wrong = errors.Join(wrong, o.Check(d, s.over.Major), o.CheckAsked(d))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.add(d.Result)
	s.tally.Downloads++
	s.settle(id)
	if o.resumed() {
		s.tally.Resumed++
		if d.Whole {
			s.tally.Completed++
		}
	}
	if wrong != nil {
		s.err = errors.Join(s.err, fmt.Errorf("download %v: %w; %v", o.Download, wrong, d))
	}
}

// resumed reports whether a resumption has come.
func (o *Object) resumed() bool { return slices.ContainsFunc(o.Asked(), isResumption) }
