package retryhttp_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// flaky is a base whose file of size bytes breaks off after each piece, and after the last piece
// again and again. The bytes are not made: Read says only how many there are.
type flaky struct {
	size   int64
	pieces []int64
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	first := int64(0)
	resp := script.Response(req, 200, "Etag", `"v1"`)
	if asked := req.Header.Get("Range"); asked != "" {
		begin, _, _ := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
		var err error
		if first, err = strconv.ParseInt(begin, 10, 64); err != nil {
			return nil, err
		}
		resp = script.Response(req, 206, "Etag", `"v1"`, "Content-Range", rangeOf(first, f.size))
	}
	resp.ContentLength = f.size - first
	body := &claims{left: min(f.pieces[0], resp.ContentLength), end: errLost}
	if body.left == resp.ContentLength {
		body.end = io.EOF
	}
	if len(f.pieces) > 1 {
		f.pieces = f.pieces[1:]
	}
	resp.Body = body
	return resp, nil
}

// claims is a body that claims to have written bytes.
type claims struct {
	left int64
	end  error
}

func (c *claims) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.end
	}
	n := min(int64(len(p)), c.left)
	c.left -= n
	return int(n), nil
}

func (*claims) Close() error { return nil }

// lengthOf downloads what base has, and counts it.
func lengthOf(t *testing.T, base http.RoundTripper, p retryhttp.Policy, during func()) (int64, error) {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	defer resp.Body.Close()
	buf := make([]byte, 4<<20)
	for length := int64(0); ; {
		n, err := resp.Body.Read(buf)
		length += int64(n)
		during()
		if err == io.EOF {
			return length, nil
		}
		if err != nil {
			return length, err
		}
	}
}

func TestDefaultBudgetLetsLongDownloadsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 30
		budget := &retryhttp.TokenBucket{} // as of a Transport that they share
		for range 100 {
			n, err := lengthOf(t, &flaky{size, []int64{100 << 20}}, retryhttp.Policy{Resume: true, Budget: budget}, func() {})
			require.NoError(t, err)
			require.EqualValues(t, size, n)
		}
	})
}

// A download that breaks off again and again holds one token, until it has made progress.
func TestFlakyDownloadLeavesTheTokensToOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &retryhttp.TokenBucket{}
		p := retryhttp.Policy{Resume: true, Budget: budget, Backoff: retryhttp.Constant(time.Second)}
		p.OnRetry = func(retryhttp.Attempt) {
			assert.GreaterOrEqual(t, budget.Status(get(t, t.Context())).Tokens, 4.0)
		}
		_, err := lengthOf(t, &flaky{300 << 20, []int64{1 << 20}}, p, func() {
			assert.GreaterOrEqual(t, budget.Status(get(t, t.Context())).Tokens, 4.0)
		})
		require.NoError(t, err)
		assert.Equal(t, 5.0, budget.Status(get(t, t.Context())).Tokens)
	})
}

// A token comes back once, and only to a budget that it was taken from.
func TestResumptionThatBringsAMebibyteGivesItsTokenBack(t *testing.T) {
	const enough = 1 << 20
	for name, tc := range map[string]struct {
		pieces                         []int64
		whole                          bool
		withdrawn, refunded, deposited int
	}{
		"the first answer took none":         {[]int64{enough, 16<<20 - enough}, true, 1, 1, 2},
		"an unbroken download took none":     {[]int64{16 << 20}, true, 0, 0, 1},
		"a byte less":                        {[]int64{16<<20 - enough + 1, enough - 1}, true, 1, 0, 2},
		"just enough":                        {[]int64{16<<20 - enough, enough}, true, 1, 1, 2},
		"at each break":                      {[]int64{1, enough, enough, 13<<20 - 1, enough}, true, 4, 4, 2},
		"not for the attempts without bytes": {[]int64{enough, 0, 0, 15 << 20}, true, 3, 1, 2},
		"not for all together":               {[]int64{1, enough / 2, enough / 2, enough / 2}, false, 3, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &countingBudget{}
			p := resumes
			p.Budget = budget
			n, err := lengthOf(t, &flaky{16 << 20, tc.pieces}, p, func() {
				assert.LessOrEqual(t, budget.refunded, budget.withdrawn)
			})
			if tc.whole {
				assert.NoError(t, err)
				assert.EqualValues(t, 16<<20, n)
			} else {
				assert.ErrorIs(t, err, errLost)
			}
			assert.Equal(t, tc.withdrawn, budget.withdrawn)
			assert.Equal(t, tc.refunded, budget.refunded)
			assert.Equal(t, tc.deposited, budget.deposit)
		})
	}
}

// A caller that stops before the end gets the token back, too.
func TestResumptionGivesItsTokenBackThoughItIsClosedEarly(t *testing.T) {
	budget := &countingBudget{}
	p := resumes
	p.Budget = budget
	resp, err := retryhttp.New(large(100, 4<<20), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, resp.Body, 2<<20)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 1, budget.withdrawn)
	assert.Equal(t, 1, budget.refunded)
}

// The failure that ends a download counts, though no resumption follows it.
func TestBreakThatIsNotResumedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &counted{Budget: new(retryhttp.TokenBucket)}
		_, err := download(t, cutAfter(10), retryhttp.Policy{
			Budget: budget, Resume: true, Backoff: retryhttp.Constant(time.Second), MaxElapsed: 100 * ms,
		})
		var failed *retryhttp.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, retryhttp.StopDeadline, failed.Stop)
		assert.EqualValues(t, 1, budget.failures.Load())
	})
}
