package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/retryhttp/retryhttp"
)

// Method is a request's method, and says whether the request may be repeated.
type Method struct {
	Name       string
	Key        string // an idempotency key
	Repeatable bool
}

// Methods are the methods that the faults are crossed with.
var Methods = []Method{
	{Name: "GET", Repeatable: true},
	{Name: "PUT", Repeatable: true},
	{Name: "POST"},
	{Name: "POST", Key: "c0ffee", Repeatable: true},
}

func (m Method) String() string {
	if m.Key != "" {
		return m.Name + " with a key"
	}
	return m.Name
}

// Limit is what bounds a request in time.
type Limit int

const (
	Unlimited  Limit = iota // nothing, except that the caller goes when the request hangs
	PerAttempt              // Policy.AttemptTimeout
	Deadline                // the deadline of its context
)

var limitNames = [...]string{"default", "attempt timeout", "deadline"}

func (l Limit) String() string { return limitNames[l] }

// Case is a request, and a fault that its first attempt meets.
type Case struct {
	Fault  *Fault
	Method Method
	Kind   Kind
	Limit  Limit
}

func (c Case) String() string {
	return fmt.Sprintf("%s/%v/%s/%v", c.Fault.Name, c.Method, c.Kind.Name, c.Limit)
}

// Cases crosses faults with all methods, kinds of bodies and limits.
func Cases(faults []*Fault) []Case { return casesOf(faults, Methods) }

func casesOf(faults []*Fault, methods []Method) []Case {
	var cases []Case
	for _, f := range faults {
		for _, m := range methods {
			for _, k := range Kinds {
				if (m.Name == "GET" && k.Size > 0) || (f.NeedsBody && k.Size == 0) {
					continue
				}
				for l := range Limit(len(limitNames)) {
					cases = append(cases, Case{f, m, k, l})
				}
			}
		}
	}
	return cases
}

// HangsForEver reports whether the request ends only if its caller goes, or meets a deadline on order.
func (c Case) HangsForEver() bool {
	if c.Limit == Unlimited {
		return c.Fault.Effect.Hangs()
	}
	return c.Fault.Effect == SpoilHangs // an attempt's timeout does not cut a response's body
}

// Result is what a request's caller saw.
type Result struct {
	Upload  *Upload
	Status  int   // of the response; 0 is none
	Err     error // in the place of a response
	BodyErr error // of reading the response
	Whole   bool  // it is the server's good answer, from the first byte to the last
	Outcome retryhttp.Outcome
}

// Succeeded is whether the caller has reason to think that all is well.
func (r Result) Succeeded() bool { return r.Whole }

func (r Result) String() string {
	return fmt.Sprintf("status %d, error %v, error of the body %v, whole %t, %+v",
		r.Status, r.Err, r.BodyErr, r.Whole, r.Outcome)
}

// Send makes the n-th request, called id, to the server at url, with an account
// in l, and reads the response.
func Send(ctx context.Context, rt http.RoundTripper, l *Ledger, url, id string, n uint64, m Method, k Kind) Result {
	req, err := http.NewRequestWithContext(ctx, m.Name, url+"/"+id, nil)
	if err != nil {
		return Result{Err: err}
	}
	if m.Key != "" {
		req.Header.Set("Idempotency-Key", m.Key)
	}
	upload, err := NewUpload(req, k, n)
	r := Result{Upload: upload, Err: err}
	if err != nil {
		return r
	}
	l.Expect(id, Want{Method: m.Name, Body: upload.Content, Trailer: upload.Trailer(), Repeatable: m.Repeatable})
	resp, err := rt.RoundTrip(req)
	if err != nil {
		r.Err = err
		if e, ok := errors.AsType[*retryhttp.Error](err); ok {
			r.Outcome = e.Outcome
		}
		return r
	}
	r.Status, r.Outcome = resp.StatusCode, retryhttp.OutcomeOf(resp)
	if r.Status != http.StatusOK {
		_, r.BodyErr = resp.Body.Read(make([]byte, 1)) // it may never end, but must be open
		_ = resp.Body.Close()
		return r
	}
	got, err := io.ReadAll(resp.Body)
	r.BodyErr = errors.Join(err, resp.Body.Close())
	r.Whole = r.BodyErr == nil && bytes.Equal(got, answerTo(id))
	return r
}

// Judge returns what is wrong with what the caller saw, if only the first attempt met the fault.
func (c Case) Judge(r Result) error {
	ends := c.ends()
	switch {
	case !slices.Contains(ends, r.end()):
		return fmt.Errorf("%v, and not one of %v", r, ends)
	case errors.Is(r.BodyErr, http.ErrBodyReadAfterClose):
		return fmt.Errorf("%v: the response came closed", r)
	}
	return nil
}

type end struct {
	stop  retryhttp.Stop
	shape shape
}

type shape string

const (
	success shape = "a success"
	spoiled shape = "half a success"
	failure shape = "a response that is not a success"
	anError shape = "an error"
)

func (r Result) end() end {
	switch {
	case r.Err != nil:
		return end{r.Outcome.Stop, anError}
	case r.Whole:
		return end{r.Outcome.Stop, success}
	case r.Status == http.StatusOK:
		return end{r.Outcome.Stop, spoiled}
	}
	return end{r.Outcome.Stop, failure}
}

func (c Case) ends() []end {
	switch c.Fault.Effect {
	case Harmless:
		return []end{{retryhttp.StopFinal, success}}
	case Fatal:
		return []end{{retryhttp.StopFinal, anError}}
	case Spoils, SpoilHangs:
		return []end{{retryhttp.StopFinal, spoiled}}
	case Hangs:
		if c.Limit != PerAttempt {
			return []end{{retryhttp.StopCanceled, anError}}
		}
	}
	var ends []end
	if c.Method.Repeatable || c.Fault.Reused { // net/http may resend it if nothing was sent
		ends = append(ends, end{retryhttp.StopFinal, success})
	}
	if !c.Method.Repeatable {
		ends = append(ends, end{retryhttp.StopNotIdempotent, failure}, end{retryhttp.StopNotIdempotent, anError})
	}
	if c.Method.Repeatable && c.Kind.Spendable { // depending on how much was read
		ends = append(ends, end{retryhttp.StopBody, failure}, end{retryhttp.StopBody, anError})
	}
	return ends
}
