package benchmarks

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// naive retries everything, and looks at nothing.
var naive = peer{
	name: "naive",
	build: func(base http.RoundTripper, s settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			for n := 1; ; n++ {
				resp, err := base.RoundTrip(req)
				if n == s.attempts || err == nil && resp.StatusCode < 500 {
					return resp, err
				}
				time.Sleep(s.wait)
			}
		})}
	},
}

func TestProbesSeeThroughANaiveLoop(t *testing.T) {
	var yes []string
	for _, pr := range probes {
		if pr.run(t, naive).yes {
			yes = append(yes, pr.name)
		}
	}
	assert.Equal(t, []string{
		"a failed response that stalls does not hold up the retry",
		"the last response is kept",
		"the caller's request is left as it was",
		"a 101 can be written to",
		"a refused connection is tried again",
	}, yes)
}

// mangling sends half of the body when it sends it again.
var mangling = peer{
	name: "mangling",
	build: func(base http.RoundTripper, _ settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			resp.Body.Close()
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			again := req.Clone(req.Context())
			again.Body = io.NopCloser(io.LimitReader(body, req.ContentLength/2))
			again.ContentLength = -1
			return base.RoundTrip(again)
		})}
	},
}

// cutting ends bodies that broke off as if they were whole.
var cutting = peer{
	name: "cutting",
	build: func(base http.RoundTripper, _ settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			came, _ := io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(strings.NewReader(string(came)))
			return resp, nil
		})}
	},
}

func TestHalfABodyIsNoticed(t *testing.T) {
	assert.Equal(t, verdict{}, shortBodyBreaksOff(t, cutting))
	assert.Equal(t, verdict{}, downloadBreaksOff(t, cutting))
}

func TestHalfAnUploadIsNoticed(t *testing.T) {
	body, err := newPayload(t.TempDir(), 1<<20)
	require.NoError(t, err)

	h, err := hold(mangling, body.getBody(), body.sum)
	require.NoError(t, err)
	assert.Equal(t, "sent 2 times, **wrong**", h.outcome)

	e, err := hurry(mangling, body.getBody(), body.sum, 2)
	require.NoError(t, err)
	assert.Equal(t, early{tries: 2, delivered: 2, whole: 0}, e)
}

func TestAnUploadThatIsHeldInMemoryIsNoticed(t *testing.T) {
	const size = 4 << 20
	body, err := newPayload(t.TempDir(), size)
	require.NoError(t, err)
	hoarding := peer{name: "hoarding", build: func(base http.RoundTripper, _ settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			kept, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			again := req.Clone(req.Context())
			again.Body = io.NopCloser(strings.NewReader(string(kept)))
			return base.RoundTrip(again)
		})}
	}}

	h, err := hold(hoarding, body.stream(), body.sum)
	require.NoError(t, err)
	assert.Greater(t, h.peak, 0.9*size)
	assert.Greater(t, h.allocated, 0.9*size)
	assert.Equal(t, sentOnce, h.outcome)
}

func TestComparisonIsWithTheFloorOfTheSameRound(t *testing.T) {
	turns := make(map[string]int)
	var sink []byte
	of := func(name string, bytes int) contender {
		return contender{name: name, run: func(n int) error {
			turns[name]++
			for range n {
				sink = make([]byte, bytes)
			}
			return nil
		}}
	}

	results, err := compare(3, 1000, []contender{of("floor", 64), of("more", 1024), of("same", 64)})

	require.NoError(t, err)
	assert.NotEmpty(t, sink)
	assert.Equal(t, map[string]int{"floor": 7, "more": 7, "same": 7}, turns, "one to warm up, and two in each of three rounds")
	assert.InDelta(t, 1, results[floor].ratio, 0)
	assert.InDelta(t, 1, results[floor].cpuRatio, 0)
	assert.InDelta(t, 960, results[1].above.bytes, 10)
	assert.InDelta(t, 0, results[1].above.allocs, 0.1)
	assert.InDelta(t, 0, results[2].above.bytes, 10)
}

func TestADownloadOfAnotherLengthIsNoticed(t *testing.T) {
	for body, want := range map[string]string{"as long": "", "short": "unexpected EOF", "much longer": "1 bytes"} {
		d := &downloading{url: nowhere, rt: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp := answer(req, http.StatusOK, io.NopCloser(strings.NewReader(body)))
			resp.ContentLength = int64(len("as long"))
			return resp, nil
		})}
		err := d.run(1)
		if want == "" {
			require.NoError(t, err)
			assert.Nil(t, d.body, "the next turn starts anew")
			continue
		}
		assert.ErrorContains(t, err, want)
	}
}

func TestEveryPeerHasAVersion(t *testing.T) {
	found, err := versions()
	require.NoError(t, err)
	for _, p := range peers[1:] {
		assert.NotEmpty(t, found[p.module], p.module)
	}
}
