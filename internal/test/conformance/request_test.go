package conformance_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

type requestSpec struct {
	Method    string     `json:"method"`
	Headers   fieldLines `json:"headers"`
	Body      string     `json:"body"`
	BodyBytes int        `json:"body_bytes"`
}

// requestContent is a request's content, and all bodies that were made of it.
type requestContent struct {
	content string
	closes  []int // of each body
}

type countedBody struct {
	io.Reader
	of    *requestContent
	index int
}

func (b countedBody) Close() error {
	b.of.closes[b.index]++
	return nil
}

type countedSeeker struct {
	countedBody
	io.Seeker
}

func (b *requestContent) open(r io.Reader) countedBody {
	b.closes = append(b.closes, 0)
	return countedBody{r, b, len(b.closes) - 1}
}

var errUnreadable = errors.New("the disk is gone")

func (s *requestSpec) build(t *testing.T, ctx context.Context) (*http.Request, *requestContent) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/path", nil)
	require.NoError(t, err)
	req.Method, req.Header = s.Method, s.Headers.toSend()
	b := &requestContent{content: strings.Repeat("0123456789", s.BodyBytes/10+1)[:s.BodyBytes]}
	whole := func() io.Reader { return strings.NewReader(b.content) }
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader(b.content[:s.BodyBytes/2]), iotest.ErrReader(errUnreadable))
	}
	anew := func() (io.ReadCloser, error) { return b.open(whole()), nil }
	switch s.Body {
	case "":
	case "once":
		req.Body = b.open(whole())
	case "once-fails":
		req.Body = b.open(broken())
	case "rewindable":
		r := strings.NewReader(b.content)
		req.Body = countedSeeker{b.open(r), r}
	case "anew":
		req.Body, req.GetBody = b.open(whole()), anew
	case "anew-fails-once":
		req.Body, req.GetBody = b.open(broken()), anew
	case "anew-fails":
		req.Body, req.GetBody = b.open(whole()), func() (io.ReadCloser, error) { return nil, errUnreadable }
	default:
		require.Fail(t, "no such kind of body", s.Body)
	}
	return req, b
}
