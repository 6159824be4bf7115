package conformance_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// scriptedServer answers attempts as a case's results say, and records the requests.
type scriptedServer struct {
	script *script.Transport
	starts []time.Time
	ends   []time.Time
}

type resultSpec struct {
	Status             int        `json:"status"`
	Headers            fieldLines `json:"headers"`
	Trailers           fieldLines `json:"trailers"`
	Error              string     `json:"error"`
	TookMs             int64      `json:"took_ms"`
	OutlastsTheRequest bool       `json:"outlasts_the_request"`
}

func newScriptedServer(t *testing.T, results []resultSpec, content string) *scriptedServer {
	s := &scriptedServer{}
	var steps []script.Step
	for _, r := range results {
		steps = append(steps, func(req *http.Request) (*http.Response, error) {
			s.starts = append(s.starts, time.Now())
			defer func() { s.ends = append(s.ends, time.Now()) }()
			return r.answer(t, req, content)
		})
	}
	s.script = script.New(steps...)
	return s
}

// answer reads the body, if it answers with a status, and waits as long as the result says.
func (r *resultSpec) answer(t *testing.T, req *http.Request, content string) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if req.Body != nil && r.Status != 0 {
		got, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		assert.Equal(t, content, string(got), "each attempt sends the whole body")
	}
	if err := r.take(req.Context()); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errorOfKind(t, r.Error)
	}
	resp := script.Response(req, r.Status)
	resp.Header, resp.Trailer = r.Headers.received(), r.Trailers.received()
	return resp, nil
}

func (r *resultSpec) take(ctx context.Context) error {
	if r.TookMs == 0 || r.OutlastsTheRequest {
		ctx = context.WithoutCancel(ctx)
	}
	return pause.For(ctx, millis(r.TookMs))
}

// waits are the times from an attempt's end to the next one's start.
func (s *scriptedServer) waits() []time.Duration {
	var list []time.Duration
	for i := 1; i < len(s.starts); i++ {
		list = append(list, s.starts[i].Sub(s.ends[i-1]))
	}
	return list
}

// keys are the values of Idempotency-Key that the attempts carried.
func (s *scriptedServer) keys() []string {
	var list []string
	for _, req := range s.script.Requests() {
		key := ""
		for name, values := range req.Header {
			if strings.EqualFold(name, "Idempotency-Key") {
				key += strings.Join(values, ", ")
			}
		}
		list = append(list, key)
	}
	return list
}

// keyMaker numbers the keys that it makes, so that a second key differs from the
// first.
func keyMaker(prefix string) func(*http.Request) string {
	made := 0
	return func(*http.Request) string {
		if prefix == "" {
			return ""
		}
		made++
		return prefix + "-" + string(rune('0'+made))
	}
}
