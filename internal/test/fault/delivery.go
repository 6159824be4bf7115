package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/retryhttp/retryhttp"
)

// Delivery is what the caller of a [Download] has got.
type Delivery struct {
	Result
	Bytes   []byte
	Version int // that the response's header states; 0 is none
}

// Fetch downloads o, with an account in l.
func (o *Object) Fetch(ctx context.Context, rt http.RoundTripper, l *Ledger, url, id string) Delivery {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+id, nil)
	if err != nil {
		return Delivery{Result: Result{Err: err}}
	}
	if o.Download.Framing == GzipWanted {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if o.Download.Partial {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", PartBegin, PartEnd-1))
	}
	l.Expect(id, Want{Method: http.MethodGet, Repeatable: true})
	resp, err := rt.RoundTrip(req)
	var d Delivery
	if err != nil {
		d.Err = err
		if e, ok := errors.AsType[*retryhttp.Error](err); ok {
			d.Outcome = e.Outcome
		}
		return d
	}
	d.Status, d.Outcome = resp.StatusCode, retryhttp.OutcomeOf(resp)
	for i := range o.versions {
		if o.versions[i].tag == resp.Header.Get(VersionField) {
			d.Version = i + 1
		}
	}
	// A failure may have a body that never ends. All of it, until the deadline, is hundreds of megabytes.
	d.Bytes, d.BodyErr = io.ReadAll(io.LimitReader(resp.Body, 2*ObjectSize))
	n, again := resp.Body.Read(make([]byte, 1))
	if n > 0 || again == nil {
		d.BodyErr = errors.Join(d.BodyErr,
			fmt.Errorf("after %d bytes, the body gave %d more and the error %v", len(d.Bytes), n, again))
	}
	d.BodyErr = errors.Join(d.BodyErr, resp.Body.Close())
	d.Whole = d.Version > 0 && d.BodyErr == nil && bytes.Equal(d.Bytes, o.wanted(d.Version))
	return d
}

// good reports whether the response has the Object, or a part of it.
func (d *Delivery) good() bool {
	return d.Status == http.StatusOK || d.Status == http.StatusPartialContent
}

// wanted returns the bytes that the caller wants of a version.
func (o *Object) wanted(version int) []byte {
	content, from, to := o.bounds(version)
	return content[from:to]
}

// bounds returns a version as it is sent to the caller, and which part of the version the caller
// wants.
func (o *Object) bounds(version int) (content []byte, from, to int) {
	if version == 0 {
		return nil, 0, 0
	}
	content = o.versions[version-1].plain
	if o.Download.Framing == GzipWanted {
		content = o.versions[version-1].gzip
	}
	if o.Download.Partial {
		return content, PartBegin, PartEnd
	}
	return content, 0, len(content)
}

func (d *Delivery) Shape() DownloadShape {
	switch {
	case d.Err != nil || d.BodyErr != nil:
		return Broken
	case d.Whole:
		return Whole
	}
	return CutShort
}

// Check is the ledger of bytes. It returns what is wrong with a Delivery, whatever has happened to
// it. The bytes must belong to the version that the header states. If there is no error, the bytes
// must be complete, unless no client can see that a body was cut.
func (o *Object) Check(d Delivery, major int) error {
	switch want := o.wanted(d.Version); {
	case d.Version == 0: // not a response of o's
		if d.good() && len(d.Bytes) > 0 {
			return fmt.Errorf("%d bytes of no version", len(d.Bytes))
		}
	case !bytes.HasPrefix(want, d.Bytes):
		return fmt.Errorf("%d bytes, and not of version %d alone", len(d.Bytes), d.Version)
	case d.Shape() == CutShort && !o.Download.maySeemWhole(major):
		return fmt.Errorf("%d bytes of %d, and no error", len(d.Bytes), len(want))
	}
	return nil
}

// Compare returns what is wrong with a Delivery, and with the requests for it, in a test in which
// nothing else goes wrong.
func (o *Object) Compare(d Delivery, major int) error {
	end, asked := o.Download.End(major), len(o.Asked())
	err := errors.Join(o.Check(d, major), o.CheckAsked(d))
	if d.Shape() != end.Shape {
		err = errors.Join(err, fmt.Errorf("it is %v, and should be %v", d.Shape(), end.Shape))
	}
	if asked != end.Requests {
		err = errors.Join(err, fmt.Errorf("it took %d requests, and should take %d", asked, end.Requests))
	}
	if d.Err == nil && d.Version != end.Version {
		err = errors.Join(err, fmt.Errorf("it is of version %d, and should be of version %d", d.Version, end.Version))
	}
	return err
}

func (d Delivery) String() string {
	return fmt.Sprintf("status %d, error %v, %v: %d bytes of version %d, error of the body %v, %+v",
		d.Status, d.Err, d.Shape(), len(d.Bytes), d.Version, d.BodyErr, d.Outcome)
}

// CheckAsked returns what is wrong with the requests that have come for a Delivery.
func (o *Object) CheckAsked(d Delivery) error {
	for _, h := range o.Asked() {
		if err := o.checkAsked(h, d.Version); err != nil {
			return fmt.Errorf("%w: %v", err, h)
		}
	}
	return nil
}

func (o *Object) checkAsked(h http.Header, version int) error {
	if !isResumption(h) {
		if h.Get("If-Match") != "" || h.Get("If-Unmodified-Since") != "" || (h.Get("Range") != "") != o.Download.Partial {
			return errors.New("a request for no other part has conditions")
		}
		return nil
	}
	begin, end, _ := strings.Cut(strings.TrimPrefix(h.Get("Range"), "bytes="), "-")
	_, from, to := o.bounds(version)
	switch first, _ := strconv.Atoi(begin); {
	case version == 0:
		return errors.New("the download of nothing is resumed")
	case first < from || end != strconv.Itoa(to-1):
		return errors.New("bytes are requested that are not wanted")
	}
	encoding, match := "identity", "If-Match"
	if o.Download.Framing == GzipWanted {
		encoding = "gzip"
	}
	current := o.validate(make(http.Header), encoding == "gzip", &o.versions[version-1])
	if o.Download.Validator == OldDate {
		match = "If-Unmodified-Since"
	}
	switch {
	case h.Get("If-Range") != current || h.Get(match) != current:
		return errors.New("another version is requested")
	case h.Get("Accept-Encoding") != encoding:
		return errors.New("another encoding is requested")
	}
	return nil
}
