package replay

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func as[R Reading](r Reading, err error) (R, error) {
	if err != nil {
		var none R
		return none, err
	}
	return r.(R), nil
}

// requestOf returns a request whose body has no method but Read and Close.
func requestOf(length int64) *http.Request {
	return &http.Request{Body: plainBody{bytes.NewReader([]byte(text)), new(closer)}, ContentLength: length}
}

func TestBodiesKnowWhatTheHeaderAnnounces(t *testing.T) {
	getBody := func() (io.ReadCloser, error) { return requestOf(0).Body, nil }
	for _, late := range []bool{false, true} {
		req := requestOf(12)
		if late {
			req.Header = http.Header{"Expect": {"100-continue"}}
		}
		assert.Equal(t, announced{12, late}, Of(req, 0).(*Source).announced)
		req.GetBody = getBody
		assert.Equal(t, announced{12, late}, Of(req, 0).(*Reopener).announced)
	}
}

// A base that finds a GetBody relies on it.
func TestGetBodyIsSetIfItIsReliable(t *testing.T) {
	size := int64(len(text))
	stream := func(length, limit int64) Bodies { return Of(requestOf(length), limit) }
	inMemory := requestOf(size)
	inMemory.GetBody = func() (io.ReadCloser, error) { return requestOf(0).Body, nil }
	for name, c := range map[string]struct {
		of   Bodies
		want bool
	}{
		"stream that is kept":      {stream(size, size), true},
		"stream that may be spent": {stream(size, size-1), false},
		"stream without a length":  {stream(0, size), false},
		"stream of unknown length": {stream(-1, size), false},
		"stream that is sent once": {stream(size, -1), false},
		"rewinder":                 {New(seekBody{bytes.NewReader([]byte(text)), new(closer)}, -1), true},
		"section":                  {New(fileOf(t, text), -1), true},
		"GetBody":                  {Of(inMemory, -1), true},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := c.of.First(t.Context(), nil)
			require.NoError(t, err)
			var sent http.Request
			require.NoError(t, first.SetBody(&sent))
			assert.Equal(t, text, readAll(t, sent.Body))
			require.Equal(t, c.want, sent.GetBody != nil)
			if c.want {
				again, err := sent.GetBody()
				require.NoError(t, err)
				assert.Equal(t, text, readAll(t, again))
			}
			assert.Equal(t, name == "GetBody", first.UsesGetBody())
		})
	}
}

func TestBodyIsNotSetForAnAttemptThatIsOver(t *testing.T) {
	first, err := Of(requestOf(0), 100).First(t.Context(), nil)
	require.NoError(t, err)
	first.Cut()
	var req http.Request
	assert.Equal(t, ErrOver, first.SetBody(&req))
	assert.True(t, req.Body == nil)
}
