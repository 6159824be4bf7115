package retryhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attempts sends a request with ctx through rt, which gets only 503s, and returns
// how many attempts were made.
func attempts(t *testing.T, rt http.RoundTripper, ctx context.Context) int {
	t.Helper()
	resp, err := rt.RoundTrip(get(t, ctx))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return retryhttp.OutcomeOf(resp).Attempts
}

func TestWithPolicyChangesOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{MaxAttempts: 2, Budget: retryhttp.Unlimited{}})
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 7 })
		assert.Equal(t, 7, attempts(t, rt, ctx))
		assert.Equal(t, 2, attempts(t, rt, t.Context()))
	})
}

func TestWithPolicyEditsTheResolvedPolicy(t *testing.T) {
	rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{})
	var seen retryhttp.Policy
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
		seen = *p
		p.MaxAttempts = 1
	})
	assert.Equal(t, 1, attempts(t, rt, ctx))
	assert.Equal(t, 4, seen.MaxAttempts)
	assert.Equal(t, time.Minute, seen.MaxRetryAfter)
	assert.Equal(t, int64(64<<10), seen.RecordBytes)
	assert.IsType(t, &retryhttp.TokenBucket{}, seen.Budget)
	assert.NotNil(t, seen.Backoff)
	assert.NotNil(t, seen.Classify)
	assert.NotNil(t, seen.Idempotent)
	assert.LessOrEqual(t, seen.Backoff(1, 0), 250*time.Millisecond)
	for _, unset := range []string{
		"MaxElapsed", "AttemptTimeout", "IdempotencyKey", "RetryUnprocessed", "OnRetry", "OnDone", "Logger",
	} {
		assert.True(t, reflect.ValueOf(seen).FieldByName(unset).IsZero(), unset)
	}
}

func TestWithPolicySettingAFieldToZeroMeansItsDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &retryhttp.TokenBucket{Burst: 1}
		policy := retryhttp.Policy{
			MaxAttempts: 9, Budget: own, Classify: func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final },
		}
		rt := retryhttp.New(script.New(script.Status(503)), policy)
		zero := func(p *retryhttp.Policy) { *p = retryhttp.Policy{} }
		assert.Equal(t, 4, attempts(t, rt, retryhttp.WithPolicy(t.Context(), zero)))
		assert.Equal(t, 3, attempts(t, rt, retryhttp.WithPolicy(t.Context(), zero)),
			"the Transport's own bucket had 5 tokens, for all of its requests")
		assert.Equal(t, 1.0, own.Status(get(t, t.Context())).Tokens)
	})
}

func TestWithPolicyNestsOutermostFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{MaxAttempts: 10, Budget: retryhttp.Unlimited{}})
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 2 })
		ctx = retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { p.MaxAttempts *= 3 })
		assert.Equal(t, 6, attempts(t, rt, ctx))

		var seen int
		ctx = retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 0 })
		ctx = retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { seen = p.MaxAttempts })
		assert.Equal(t, 4, attempts(t, rt, ctx))
		assert.Equal(t, 4, seen, "each edit sees a resolved policy")
	})
}

func TestWithPolicyReachesEveryTransportBelow(t *testing.T) {
	edits := 0
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { edits++; p.MaxAttempts = 1 })
	rt := retryhttp.New(retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}), retryhttp.Policy{})
	assert.Equal(t, 1, attempts(t, rt, ctx))
	assert.Equal(t, 2, edits)
}

func TestWithPolicyOfNothing(t *testing.T) {
	assert.Equal(t, t.Context(), retryhttp.WithPolicy(t.Context(), nil))
}

func TestWithPolicyEditThatPanicsClosesTheBody(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	ctx := retryhttp.WithPolicy(t.Context(), func(*retryhttp.Policy) { panic(http.ErrAbortHandler) })
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://server/", body)
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}).RoundTrip(req) })
	assert.Equal(t, int32(1), body.Closes.Load())
}

func TestPolicyBudgetThatIsANilBucketIsTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *retryhttp.TokenBucket
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{Budget: none})
		assert.Equal(t, 4, attempts(t, rt, t.Context()))
		assert.Equal(t, 3, attempts(t, rt, t.Context()))
	})
}

func TestPolicyDefaultBudgetIsTheTransportsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503))
		one, other := retryhttp.New(base, retryhttp.Policy{}), retryhttp.New(base, retryhttp.Policy{})
		assert.Equal(t, 4, attempts(t, one, t.Context()))
		assert.Equal(t, 3, attempts(t, one, t.Context()))
		assert.Equal(t, 4, attempts(t, other, t.Context()))
	})
}

// asks is a Policy.RetryAfter for servers that name a wait in a header of their own.
func asks(a retryhttp.Attempt) (time.Duration, bool) {
	d, err := time.ParseDuration(a.Response.Header.Get("Reset"))
	return d, err == nil
}

// heeds is a Policy whose backoff is short, so that a wait is the server's.
func heeds() retryhttp.Policy {
	return retryhttp.Policy{RetryAfter: asks, Backoff: retryhttp.Constant(time.Millisecond), Budget: retryhttp.Unlimited{}}
}

// requireAsked requires a wait as the server has asked for it, with half of it added at most.
func requireAsked(t *testing.T, asked, waited time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, waited, asked)
	require.LessOrEqual(t, waited, asked+asked/2+time.Millisecond)
}

func TestPolicyRetryAfterSaysHowLongTheServerAsks(t *testing.T) {
	for name, c := range map[string]struct {
		header   []string
		asked    time.Duration
		stop     retryhttp.Stop
		attempts int
	}{
		"in a field of its own":         {[]string{"Reset", "5s"}, 5 * time.Second, retryhttp.StopFinal, 2},
		"beside a Retry-After":          {[]string{"Reset", "5s", "Retry-After", "50"}, 5 * time.Second, retryhttp.StopFinal, 2},
		"not at all":                    {[]string{"Retry-After", "50"}, 0, retryhttp.StopFinal, 2},
		"no wait":                       {[]string{"Reset", "0s"}, 0, retryhttp.StopFinal, 2},
		"a time that has passed":        {[]string{"Reset", "-5s"}, 0, retryhttp.StopFinal, 2},
		"for longer than MaxRetryAfter": {[]string{"Reset", "61s"}, 0, retryhttp.StopRetryAfter, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(script.Status(503, c.header...), script.Status(200))
				began := time.Now()
				resp, err := retryhttp.New(base, heeds()).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				requireAsked(t, c.asked, time.Since(began))
				assert.Equal(t, c.stop, retryhttp.OutcomeOf(resp).Stop)
				assert.Len(t, base.Requests(), c.attempts)
			})
		})
	}
}

func TestPolicyRetryAfterThatIsNotAskedCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.RetryAfter = func(retryhttp.Attempt) (time.Duration, bool) { return time.Hour, false }
		p.Gate = &retryhttp.Gate{}
		p.OnRetry = func(retryhttp.Attempt) {
			closed := p.Gate.Status(get(t, t.Context())).Closed
			assert.Zero(t, closed)
		}
		began := time.Now()
		resp, err := retryhttp.New(script.New(script.Status(429), script.Status(200)), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, time.Millisecond, time.Since(began))
	})
}

// The function may be slow, or count. It is not needed for a success.
func TestPolicyRetryAfterIsCalledOnceForAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var about []int
		p := heeds()
		p.Budget = &retryhttp.TokenBucket{}
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			about = append(about, a.Response.StatusCode)
			return asks(a)
		}
		exhausted := []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}
		rt := retryhttp.New(script.New(
			script.Status(429, exhausted...), script.Fail(errors.New("lost")), script.Status(503), script.Status(200),
			script.Status(404), script.Status(200, exhausted...),
		), p)
		for range 3 {
			_, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
		}
		assert.Equal(t, []int{429, 503, 200}, about)
	})
}

func TestPolicyRetryAfterKnowsHowLongASuccessTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			assert.Equal(t, time.Second, a.Elapsed)
			return 0, false
		}
		_, err := download(t, script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return script.Status(200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1")(req)
		}), p)
		require.NoError(t, err)
	})
}

func TestPanicOfPolicyRetryAfterSurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		gate, budget := &retryhttp.Gate{}, &countingBudget{}
		p.Gate, p.Budget = gate, budget
		p.RetryAfter = func(retryhttp.Attempt) (time.Duration, bool) { panic("no") }
		body := &closeCounter{}
		base := script.New(script.Respond(503, body))
		assert.PanicsWithValue(t, "no", func() { _, _ = retryhttp.New(base, p).RoundTrip(requestTo("host")) })
		assert.Equal(t, 1, body.closes)
		assert.Zero(t, retryhttp.InTrouble(gate, "host"))
		assert.Zero(t, budget.withdrawn)
	})
}

// closeCounter is an empty body that counts its closes.
type closeCounter struct{ closes int }

func (*closeCounter) Read([]byte) (int, error) { return 0, io.EOF }
func (b *closeCounter) Close() error           { b.closes++; return nil }

func TestGateHeedsPolicyRetryAfter(t *testing.T) {
	for _, code := range []int{503, 429} {
		synctest.Test(t, func(t *testing.T) {
			p := heeds()
			p.Gate, p.MaxAttempts = &retryhttp.Gate{}, 1
			resp, err := retryhttp.New(script.New(script.Status(code, "Reset", "4s")), p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			want := retryhttp.GateStatus{Closed: 4 * time.Second}
			assert.Equal(t, want, p.Gate.Status(get(t, t.Context())), "%d", code)
		})
	}
}

// A server that asks for a wait is not down, and a retry that it has invited costs a third.
func TestBudgetHeedsPolicyRetryAfter(t *testing.T) {
	for _, code := range []int{503, 429} {
		synctest.Test(t, func(t *testing.T) {
			p := heeds()
			bucket := &retryhttp.TokenBucket{}
			p.Budget = bucket
			req := get(t, t.Context())
			before := bucket.Status(req).Tokens
			p.OnRetry = func(retryhttp.Attempt) {
				paid := map[int]float64{503: 1, 429: 1. / 3}[code]
				assert.InDelta(t, before-paid, bucket.Status(req).Tokens, 1e-9, "%d", code)
			}
			resp, err := retryhttp.New(script.New(script.Status(code, "Reset", "1s"), script.Status(200)), p).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestHedgeHeedsPolicyRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.Hedge = &retryhttp.Hedge{After: 10 * time.Millisecond, Share: 1}
		slowly := func(req *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			return script.Status(503)(req)
		}
		base := script.New(slowly, script.Status(503, "Reset", "6s"), script.Status(200))
		began := time.Now()
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		requireAsked(t, 6*time.Second, time.Since(began)-10*time.Millisecond)
	})
}

func TestResumptionHeedsPolicyRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.Resume = true
		base := script.New(cutAfter(9), script.Status(503, "Reset", "8s"), rest(9))
		began := time.Now()
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, object, got)
		requireAsked(t, 8*time.Second, time.Since(began)-time.Millisecond)
	})
}

// The sources of the vectors: the vendor's documents, its own SDK, or a report of what it sent.
const (
	openaiDocs     = "https://platform.openai.com/docs/guides/rate-limits"
	openaiSeen     = "https://community.openai.com/t/how-to-get-rate-limit-reset-time-for-response-api/1268905"
	openaiSDK      = "https://github.com/openai/openai-go/blob/main/internal/requestconfig/requestconfig.go"
	anthropicDocs  = "https://platform.claude.com/docs/en/api/rate-limits"
	googleDocs     = "https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto"
	rateLimitDraft = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11"
	githubDocs     = "https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api"
	azureSDK       = "https://github.com/Azure/azure-sdk-for-go/blob/main/sdk/azcore/internal/shared/shared.go"
	awsSDK         = "https://github.com/aws/aws-sdk-go-v2/blob/main/aws/retry/retry2026_test.go"
	stripeSDK      = "https://github.com/stripe/stripe-python/pull/621"
	slackDocs      = "https://docs.slack.dev/apis/web-api/rate-limits"
	shopifyDocs    = "https://shopify.dev/docs/api/admin-rest/usage/rate-limits"
	jiraDocs       = "https://jira.atlassian.com/browse/JRACLOUD-69262"
	discordDocs    = "https://github.com/discord/discord-api-docs/blob/main/docs/topics/rate-limits.md"
	twilioDocs     = "https://www.twilio.com/docs/api/errors/20429"
	cloudflareDocs = "https://developers.cloudflare.com/fundamentals/api/reference/limits"
	hubspotDocs    = "https://developers.hubspot.com/docs/api/usage-details"
)

// recipe is a Policy.RetryAfter.
type recipe = func(retryhttp.Attempt) (time.Duration, bool)

// recipes are the functions of this file and of the Examples, by the vendors that need them. All
// other vendors need none.
var recipes = map[string]recipe{
	"OpenAI":    requestsReset,
	"Anthropic": limitsReset,
	"Google":    retryInfo,
	"draft -11": limitReset,
	"GitHub":    resetOrAMinute,
	"Jira":      resetInMinutes,
	"Discord":   retryAfterInSeconds,
}

// resetOrAMinute is for GitHub. It asks for a minute after a refusal that names no wait, which is
// its secondary limit.
func resetOrAMinute(a retryhttp.Attempt) (time.Duration, bool) {
	if wait, ok := limitReset(a); ok {
		return wait, true
	}
	return time.Minute, a.Response.StatusCode == http.StatusTooManyRequests
}

// resetInMinutes is for Jira, whose X-RateLimit-Reset has no seconds. It may mean the end of its
// minute.
func resetInMinutes(a retryhttp.Attempt) (time.Duration, bool) {
	h := a.Response.Header
	if wait, ok := retryhttp.RetryAfter(h); ok {
		return wait, true
	}
	at, err := time.Parse("2006-01-02T15:04Z07:00", h.Get("X-RateLimit-Reset"))
	return time.Until(at.Add(time.Minute)), err == nil
}

// retryAfterInSeconds is for Discord, whose body has the wait with a fraction, and whose header has
// it rounded up.
func retryAfterInSeconds(a retryhttp.Attempt) (time.Duration, bool) {
	var answer struct {
		RetryAfter json.Number `json:"retry_after"`
	}
	if json.Unmarshal(a.Body, &answer) == nil {
		if wait, ok := inSeconds(answer.RetryAfter.String()); ok {
			return wait, true
		}
	}
	return retryhttp.RetryAfter(a.Response.Header)
}

// vendorCase is a 429, and the wait that it asks for.
type vendorCase struct {
	vendor, name, source string
	header               []string
	body                 string
	want                 time.Duration // notAsked: it asks for none
}

const notAsked = time.Duration(-1)

// RetryInfo in the JSON of an error.
func googleError(delay string) string {
	return `{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [` +
		`{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED"},` +
		`{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "` + delay + `"}]}}`
}

func requestsIn(reset string) []string {
	return []string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", reset}
}

func anthropicIn(limit, reset string) []string {
	return []string{"anthropic-ratelimit-" + limit + "-remaining", "0", "anthropic-ratelimit-" + limit + "-reset", reset}
}

func jiraAt(reset string) []string { return []string{"X-RateLimit-Reset", reset} }

var vendorCases = []vendorCase{
	{"OpenAI", "a second", openaiDocs, requestsIn("1s"), "", time.Second},
	{"OpenAI", "minutes", openaiDocs, requestsIn("6m0s"), "", 6 * time.Minute},
	{"OpenAI", "milliseconds", openaiSeen, requestsIn("12ms"), "", 12 * time.Millisecond},
	{
		"OpenAI", "requests left", openaiDocs,
		[]string{"x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "1s"}, "", notAsked,
	},
	{
		"OpenAI", "Retry-After beside a reset", openaiSDK,
		append(requestsIn("6m0s"), "retry-after", "2"), "", 2 * time.Second,
	},
	{
		"OpenAI", "retry-after-ms", openaiSDK,
		[]string{"retry-after-ms", "1500", "retry-after", "2"}, "", 1500 * time.Millisecond,
	},
	{"OpenAI", "Retry-After with a fraction", openaiSDK, []string{"retry-after", "0.5"}, "", 500 * time.Millisecond},
	{"OpenAI", "negative", "", requestsIn("-1s"), "", 0},
	{"OpenAI", "no unit", "", requestsIn("30"), "", notAsked},
	{"OpenAI", "not a number", "", requestsIn("NaNs"), "", notAsked},
	{"OpenAI", "infinite", "", requestsIn("Infs"), "", notAsked},
	{"OpenAI", "the longest", "", requestsIn("2562047h47m16.854775807s"), "", maxWait},
	{"OpenAI", "longer than a Duration can hold", "", requestsIn("9999999999h"), "", notAsked},

	{
		"Anthropic", "Retry-After", anthropicDocs,
		append(anthropicIn("requests", "2000-01-01T01:00:00Z"), "retry-after", "7"), "", 7 * time.Second,
	},
	{"Anthropic", "a reset", anthropicDocs, anthropicIn("requests", "2000-01-01T00:00:30Z"), "", 30 * time.Second},
	{
		"Anthropic", "a reset in another zone", anthropicDocs,
		anthropicIn("input-tokens", "2000-01-01T02:00:30+02:00"), "", 30 * time.Second,
	},
	{
		"Anthropic", "the longest reset", anthropicDocs,
		append(anthropicIn("requests", "2000-01-01T00:00:20Z"), anthropicIn("output-tokens", "2000-01-01T00:00:05Z")...),
		"", 20 * time.Second,
	},
	{
		"Anthropic", "tokens left", anthropicDocs,
		[]string{"anthropic-ratelimit-input-tokens-remaining", "1000",
			"anthropic-ratelimit-input-tokens-reset", "2000-01-01T00:00:30Z"},
		"", notAsked,
	},
	{
		"Anthropic", "a server whose clock is behind", "",
		append(anthropicIn("requests", "1999-12-31T00:00:30Z"), "Date", "Fri, 31 Dec 1999 00:00:00 GMT"), "", 30 * time.Second,
	},
	{"Anthropic", "past", "", anthropicIn("requests", "1999-12-31T23:59:59Z"), "", 0},
	{"Anthropic", "far away", "", anthropicIn("requests", "9999-12-31T23:59:59Z"), "", maxWait},
	{"Anthropic", "no time", "", anthropicIn("requests", "30"), "", notAsked},
	{"Anthropic", "no zone", "", anthropicIn("requests", "2000-01-01T00:00:30"), "", notAsked},

	{"Google", "seconds", googleDocs, nil, googleError("30s"), 30 * time.Second},
	{"Google", "a fraction", googleDocs, nil, googleError("45.837906172s"), 45837906172},
	{"Google", "beside Retry-After", googleDocs, []string{"Retry-After", "50"}, googleError("30s"), 30 * time.Second},
	{"Google", "no details", googleDocs, []string{"Retry-After", "5"}, `{"error": {"code": 429}}`, 5 * time.Second},
	{"Google", "another detail", "", nil, strings.ReplaceAll(googleError("30s"), "RetryInfo", "Help"), notAsked},
	{"Google", "zero", "", nil, googleError("0s"), 0},
	{"Google", "negative", "", nil, googleError("-30s"), notAsked},
	{"Google", "no unit", "", nil, googleError("30"), notAsked},
	{"Google", "another unit", "", nil, googleError("1m30s"), notAsked},
	{"Google", "not a number", "", nil, googleError("NaNs"), notAsked},
	{"Google", "ten thousand years", "", nil, googleError("315576000000s"), maxWait},
	{
		"Google", "a number instead of a text", "",
		[]string{"Retry-After", "5"}, strings.ReplaceAll(googleError("30s"), `"30s"`, "30"), 5 * time.Second,
	},
	{"Google", "a body that breaks off", "", []string{"Retry-After", "5"}, googleError("30s")[:100], 5 * time.Second},
	{"Google", "null", "", []string{"Retry-After", "5"}, "null", 5 * time.Second},
	{"Google", "details that are null", "", nil, `{"error": {"details": [null, 5]}}`, notAsked},
	{"Google", "an array", "", nil, "[" + googleError("30s") + "]", notAsked},
	{"Google", "no JSON", "", []string{"Retry-After", "5"}, "<html>", 5 * time.Second},

	{"draft -11", "exhausted", rateLimitDraft, []string{"RateLimit", `"dynamic";r=0;t=20`}, "", 20 * time.Second},
	{"draft -11", "slowed down", rateLimitDraft, []string{"RateLimit", `"dynamic";r=9;t=50`}, "", notAsked},
	{
		"draft -11", "beside Retry-After", rateLimitDraft,
		[]string{"Retry-After", "20", "RateLimit", `"dynamic";r=0;t=40`}, "", 20 * time.Second,
	},
	{"draft -11", "from a cache", rateLimitDraft, []string{"RateLimit", `"dynamic";r=0;t=20`, "Age", "5"}, "", notAsked},

	{
		"GitHub", "primary limit", githubDocs,
		[]string{"x-ratelimit-remaining", "0", "x-ratelimit-reset", "1785585630", "Date", "Sat, 01 Aug 2026 12:00:00 GMT"},
		"", 30 * time.Second,
	},
	{
		"GitHub", "secondary limit", githubDocs,
		[]string{"retry-after", "60", "x-ratelimit-remaining", "4000"}, "", time.Minute,
	},
	{
		"GitHub", "secondary limit without a wait", githubDocs,
		[]string{"x-ratelimit-remaining", "4000", "x-ratelimit-reset", "1785585630"}, "", time.Minute,
	},
	{
		"GitHub", "past", "",
		[]string{"x-ratelimit-remaining", "0", "x-ratelimit-reset", "1785585599", "Date", "Sat, 01 Aug 2026 12:00:00 GMT"}, "", 0,
	},
	{"GitHub", "malformed", "", []string{"x-ratelimit-remaining", "0", "x-ratelimit-reset", "soon"}, "", time.Minute},

	{
		"Azure", "milliseconds", azureSDK,
		[]string{"x-ms-retry-after-ms", "1500", "Retry-After", "2"}, "", 1500 * time.Millisecond,
	},
	{
		"Azure", "milliseconds of two names", azureSDK,
		[]string{"x-ms-retry-after-ms", "2000", "retry-after-ms", "1500"}, "", 1500 * time.Millisecond,
	},
	{"Azure", "a date", azureSDK, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:30 GMT"}, "", 30 * time.Second},

	{"AWS", "milliseconds", awsSDK, []string{"x-amz-retry-after", "1500"}, "", 1500 * time.Millisecond},
	{"AWS", "zero", awsSDK, []string{"x-amz-retry-after", "0"}, "", 0},
	{"AWS", "longer than its SDKs wait", awsSDK, []string{"x-amz-retry-after", "10000"}, "", 10 * time.Second},
	{"AWS", "malformed", awsSDK, []string{"x-amz-retry-after", "invalid"}, "", notAsked},

	{
		"Stripe", "beside its verdict", stripeSDK,
		[]string{"Stripe-Should-Retry", "true", "Retry-After", "2"}, "", 2 * time.Second,
	},
	{"Slack", "seconds", slackDocs, []string{"Retry-After", "30"}, "", 30 * time.Second},
	{
		"Shopify", "seconds with a fraction", shopifyDocs,
		[]string{"X-Shopify-Shop-Api-Call-Limit", "40/40", "Retry-After", "2.0"}, "", 2 * time.Second,
	},
	{
		"Cloudflare", "beside its limit", cloudflareDocs,
		[]string{"Ratelimit", `"default";r=0;t=30`, "retry-after", "30"}, "", 30 * time.Second,
	},
	{"Twilio", "no wait", twilioDocs, nil, "", notAsked},
	{
		"HubSpot", "no wait", hubspotDocs,
		nil, `{"status": "error", "errorType": "RATE_LIMIT", "policyName": "DAILY"}`, notAsked,
	},

	{"Jira", "both", jiraDocs, append(jiraAt("2000-01-01T00:01Z"), "Retry-After", "70"), "", 70 * time.Second},
	{"Jira", "a reset without seconds", jiraDocs, jiraAt("2000-01-01T00:01Z"), "", 2 * time.Minute},
	{"Jira", "past", "", jiraAt("1999-12-31T23:00Z"), "", 0},
	{"Jira", "far away", "", jiraAt("9999-12-31T23:59Z"), "", maxWait},
	{"Jira", "malformed", "", jiraAt("tomorrow"), "", notAsked},

	{
		"Discord", "a float in the body", discordDocs,
		[]string{"Retry-After", "65"}, `{"retry_after": 64.57, "global": false}`, 64570 * time.Millisecond,
	},
	{"Discord", "no body", discordDocs, []string{"Retry-After", "65"}, "", 65 * time.Second},
	{"Discord", "negative", "", []string{"Retry-After", "65"}, `{"retry_after": -1.5}`, 65 * time.Second},
	{"Discord", "an exponent", "", []string{"Retry-After", "65"}, `{"retry_after": 6.5e1}`, 65 * time.Second},
	{"Discord", "not a number", "", []string{"Retry-After", "65"}, `{"retry_after": NaN}`, 65 * time.Second},
	{"Discord", "null", "", []string{"Retry-After", "65"}, `{"retry_after": null}`, 65 * time.Second},
	{"Discord", "huge", "", nil, `{"retry_after": 99999999999999999999}`, maxWait},
}

// run requires that the recipe reads the wait, and that no retry comes sooner.
func (c vendorCase) run(t *testing.T) {
	h := fields(c.header...)
	read := recipes[c.vendor]
	if read == nil {
		read = func(a retryhttp.Attempt) (time.Duration, bool) { return retryhttp.RetryAfter(a.Response.Header) }
	}
	asked, ok := read(retryhttp.Attempt{Response: &http.Response{StatusCode: 429, Header: h}, Body: []byte(c.body)})
	assert.Equal(t, c.want != notAsked, ok, c.source)
	if ok {
		assert.Equal(t, c.want, max(asked, 0), c.source)
	}

	p := retryhttp.Policy{
		RetryAfter: recipes[c.vendor], Backoff: retryhttp.Constant(time.Millisecond), Budget: retryhttp.Unlimited{},
		BufferBytes: 1 << 10, MaxRetryAfter: time.Hour,
	}
	refusal := sends(429, c.body, io.EOF, append([]string{"Content-Type", "application/json"}, c.header...)...)
	began := time.Now()
	resp, err := retryhttp.New(script.New(refusal, script.Status(200)), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	if c.want > p.MaxRetryAfter {
		assert.Equal(t, retryhttp.StopRetryAfter, retryhttp.OutcomeOf(resp).Stop)
		assert.Zero(t, time.Since(began))
		return
	}
	assert.Equal(t, 200, resp.StatusCode)
	requireAsked(t, max(c.want, 0), time.Since(began))
}

func TestPolicyRetryAfterReadsWhatVendorsSend(t *testing.T) {
	for _, c := range vendorCases {
		t.Run(c.vendor+"/"+c.name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

// A RateLimit is no Retry-After, so the Gate alone does not wait for the end of a long window.
func TestExhaustedLimitAloneHoldsItsRetryForHold(t *testing.T) {
	for hold, read := range map[time.Duration]recipe{5 * time.Second: nil, 30 * time.Second: limitReset} {
		synctest.Test(t, func(t *testing.T) {
			p := retryhttp.Policy{RetryAfter: read, Backoff: retryhttp.Constant(time.Millisecond)}
			base := script.New(script.Status(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"), script.Status(200))
			began := time.Now()
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			requireAsked(t, hold, time.Since(began))
		})
	}
}

// What a recipe reads is documented, and not made up for the test.
func TestEveryRecipeHasADocumentedCase(t *testing.T) {
	documented := map[string]int{}
	for _, c := range vendorCases {
		if c.source != "" && c.want > 0 {
			documented[c.vendor]++
		}
	}
	for vendor := range recipes {
		assert.Positive(t, documented[vendor], vendor)
	}
}
