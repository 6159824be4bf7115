package respbody

import (
	"io"
	"net/http"
)

// Watch wraps the bodies of a request that uploads, so that b notices when req's body has been
// sent. The body is sent when the original body is closed or read to its end. It is also sent when
// a body that the base opened by GetBody was read and has ended. A base may send only what GetBody
// returns, and never look at the original body.
func (b *Body) Watch(req *http.Request) {
	if !uploads(req) {
		return
	}
	b.sending = true
	req.Body = &upload{ReadCloser: req.Body, response: b, first: true}
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		return &upload{ReadCloser: body, response: b}, nil
	}
}

// uploads reports whether req has a body that may still be sent when the response comes. A body in
// memory that fits into the initial window of HTTP/2 counts as sent together with its header.
// Watching such a body, too, would make a small request take a third longer: net/http sends the
// header separately unless the body has one of these types.
func uploads(req *http.Request) bool {
	if req.Body == nil || req.Body == http.NoBody {
		return false
	}
	sentAtOnce := 0 < req.ContentLength && req.ContentLength < 64<<10 && isInMemory(req.Body)
	return !sentAtOnce
}

// upload is a request's body.
type upload struct {
	io.ReadCloser
	response *Body
	first    bool        // this is the body that the request came with
	state    uploadState // guarded by response.mu
}

type uploadState int

const (
	unread uploadState = iota
	inUse
	sent
)

// become moves u to a later state. The final state is the constant sent.
func (u *upload) become(next uploadState) {
	b := u.response
	b.note(func() {
		if u.state >= next {
			return
		}
		if u.state == inUse {
			b.using--
		}
		if next == inUse {
			b.using++
		} else if u.first || u.state == inUse {
			b.sending = false
		}
		u.state = next
	})
}

func (u *upload) Read(p []byte) (int, error) {
	u.become(inUse)
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.become(sent)
	}
	return n, err
}

func (u *upload) Close() error {
	defer u.become(sent)
	return u.ReadCloser.Close()
}
