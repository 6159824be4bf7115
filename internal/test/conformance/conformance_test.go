package conformance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

const (
	root       = "../../.."
	vectorsDir = root + "/testdata/conformance"
)

var files = map[string]func(*testing.T){
	"retry-after.json": testRetryAfterVectors,
	"ratelimit.json":   testRateLimitVectors,
	"classify.json":    testClassifyVectors,
	"methods.json":     testMethodVectors,
	"backoff.json":     testBackoffVectors,
	"budget.json":      testBudgetVectors,
	"decisions.json":   testDecisionVectors,
	"gate.json":        testGateVectors,
}

func TestConformance(t *testing.T) {
	for name, run := range files {
		t.Run(strings.TrimSuffix(name, ".json"), run)
	}
}

func TestConformanceFilesAreSound(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(vectorsDir, "*.json"))
	require.NoError(t, err)
	assert.Len(t, paths, len(files))
	readme, err := os.ReadFile(filepath.Join(vectorsDir, "README.md"))
	require.NoError(t, err)
	word, total := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`), 0
	for _, path := range paths {
		assert.Contains(t, files, filepath.Base(path), "a file that nothing runs")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var file suite[map[string]any]
		require.NoError(t, json.Unmarshal(data, &file))
		assert.NotEmpty(t, file.About, path)
		names, inputs := map[any]bool{}, map[string]any{} // names by the input of their case
		for _, c := range file.Cases {
			name := c["name"]
			assert.False(t, names[name], "%s: the name %q is not unique", path, name)
			assert.Regexp(t, word, name, path)
			names[name] = true
			for _, field := range []string{"name", "because", "expect"} {
				delete(c, field)
			}
			input, err := json.Marshal(c)
			require.NoError(t, err)
			if twin, ok := inputs[string(input)]; ok {
				assert.Fail(t, "one case twice", "%s: %q and %q", path, twin, name)
			}
			inputs[string(input)] = name
		}
		total += len(file.Cases)
		row := fmt.Sprintf("| [%[1]s](%[1]s) | %[2]d |", filepath.Base(path), len(file.Cases))
		assert.True(t, strings.Contains(string(readme), row), "the README there has no row %q", row)
	}
	design, err := os.ReadFile(root + "/docs/design.md")
	require.NoError(t, err)
	count := fmt.Sprintf("%d cases in JSON", total)
	assert.True(t, strings.Contains(string(design), count), "docs/design.md does not say %q", count)
}

// suite is one file. Some fields are only in files whose cases draw at random or
// compare fractions.
type suite[C any] struct {
	About    string  `json:"about"`
	Draws    int     `json:"draws"`
	GapShare float64 `json:"gap_share"`
	Exact    float64 `json:"exact"`
	Cases    []C     `json:"cases"`
}

type vector struct {
	Name    string `json:"name"`
	Because string `json:"because"`
}

// vectors reads a file, and fails if the file has an unknown field.
func vectors[C any](t *testing.T, name string) suite[C] {
	t.Helper()
	f, err := os.Open(filepath.Join(vectorsDir, name))
	require.NoError(t, err)
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	var file suite[C]
	require.NoError(t, dec.Decode(&file))
	_, err = dec.Token()
	require.ErrorIs(t, err, io.EOF)
	require.NotEmpty(t, file.Cases)
	return file
}

// fieldLines are a header's lines, in order. A line without a value stands for a
// header entry in memory that has no lines.
type fieldLines [][]string

// received is the header as a parser makes it, with names in canonical case.
func (lines fieldLines) received() http.Header {
	h := make(http.Header)
	for _, line := range lines {
		h.Add(line[0], line[1])
	}
	return h
}

// toSend is the header as a caller makes it by hand.
func (lines fieldLines) toSend() http.Header {
	h := make(http.Header)
	for _, line := range lines {
		h[line[0]] = append(h[line[0]], line[1:]...)
	}
	return h
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// beyondAnyCap is a delay that counts as endless.
const beyondAnyCap = 9223372036 * time.Second

func testRetryAfterVectors(t *testing.T) {
	type retryAfterCase struct {
		vector
		Clock   time.Time  `json:"clock"`
		Headers fieldLines `json:"headers"`
		Expect  struct {
			DelayMs      *float64 `json:"delay_ms"`
			None         bool     `json:"none"`
			BeyondAnyCap bool     `json:"beyond_any_cap"`
		} `json:"expect"`
	}
	for _, c := range vectors[retryAfterCase](t, "retry-after.json").Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(c.Clock))
				got, ok := retryhttp.RetryAfter(c.Headers.received())
				switch want := c.Expect; {
				case want.DelayMs != nil:
					assert.True(t, ok, "none was understood")
					assert.Equal(t, time.Duration(math.Round(*want.DelayMs*1e6)), got, c.Because)
				case want.BeyondAnyCap:
					assert.True(t, ok, "none was understood")
					assert.GreaterOrEqual(t, got, beyondAnyCap, c.Because)
				case want.None:
					assert.False(t, ok, "%v; %s", got, c.Because)
				default:
					assert.Fail(t, "the case expects nothing")
				}
			})
		})
	}
}

func testMethodVectors(t *testing.T) {
	type methodCase struct {
		vector
		Method     *string    `json:"method"`
		Headers    fieldLines `json:"headers"`
		Idempotent *bool      `json:"idempotent"`
	}
	for _, c := range vectors[methodCase](t, "methods.json").Cases {
		t.Run(c.Name, func(t *testing.T) {
			require.NotNil(t, c.Method)
			require.NotNil(t, c.Idempotent)
			req := &http.Request{Method: *c.Method, Header: c.Headers.toSend()}
			assert.Equal(t, *c.Idempotent, retryhttp.Idempotent(req), c.Because)
		})
	}
}

func testBudgetVectors(t *testing.T) {
	file := vectors[budgetCase](t, "budget.json")
	require.Positive(t, file.Exact)
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, file.Exact) })
		})
	}
}
