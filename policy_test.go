package retryhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attempts sends a request with ctx through rt, which gets only 503s, and returns
// how many attempts were made.
func attempts(t *testing.T, rt http.RoundTripper, ctx context.Context) int {
	t.Helper()
	return retryhttp.OutcomeOf(answerTo(t, rt, get(t, ctx))).Attempts
}

func TestWithPolicyEditsTheResolvedPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{})
		var seen retryhttp.Policy
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
			seen = *p
			p.MaxAttempts = 1
		})
		assert.Equal(t, 1, attempts(t, rt, ctx))
		assert.Equal(t, 4, attempts(t, rt, t.Context()), "other requests have the Policy of the Transport")
		assert.IsType(t, &retryhttp.TokenBucket{}, seen.Budget)
		assert.LessOrEqual(t, seen.Backoff(1, 0), 250*time.Millisecond)
		for _, set := range []any{seen.Gate, seen.Classify, seen.RetryAfter, seen.Idempotent} {
			assert.NotNil(t, set)
		}
		seen.Budget, seen.Gate, seen.Backoff, seen.Classify, seen.RetryAfter, seen.Idempotent = nil, nil, nil, nil, nil, nil
		numbers := retryhttp.Policy{MaxAttempts: 4, MaxRetryAfter: time.Minute, RecordBytes: 64 << 10}
		assert.Equal(t, numbers, seen, "all else is off")
	})
}

func TestWithPolicySettingAFieldToZeroMeansItsDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &retryhttp.TokenBucket{Burst: 1}
		policy := retryhttp.Policy{
			MaxAttempts: 9, Budget: own, Classify: func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final },
		}
		rt := retryhttp.New(script.New(script.Status(503)), policy)
		zero := func(none retryhttp.Budget) context.Context {
			return retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
				*p = retryhttp.Policy{Gate: &retryhttp.Gate{Hold: -1}, Budget: none} // no probes
			})
		}
		assert.Equal(t, 4, attempts(t, rt, zero(nil)))
		assert.Equal(t, 3, attempts(t, rt, zero((*retryhttp.TokenBucket)(nil))),
			"the Transport's own bucket had 5 tokens, for all of its requests")
		assert.Equal(t, 1.0, own.Status(get(t, t.Context())).Tokens)
	})
}

func TestWithPolicyNestsOutermostFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{MaxAttempts: 9, Budget: retryhttp.Unlimited{}})
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 0 })
		ctx = retryhttp.WithPolicy(retryhttp.WithPolicy(ctx, nil), func(p *retryhttp.Policy) { p.MaxAttempts++ })
		assert.Equal(t, 5, attempts(t, rt, ctx), "one more than the default: each edit sees a resolved policy")
	})
}

func TestWithPolicyReachesEveryTransportBelow(t *testing.T) {
	edits := 0
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { edits++; p.MaxAttempts = 1 })
	rt := retryhttp.New(retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}), retryhttp.Policy{})
	assert.Equal(t, 1, attempts(t, rt, ctx))
	assert.Equal(t, 2, edits)
}

// asks is a Policy.RetryAfter for servers that name a wait in a header of their own. What it returns beside false
// counts for nothing.
func asks(a retryhttp.Attempt) (time.Duration, bool) {
	if d, err := time.ParseDuration(a.Response.Header.Get("Reset")); err == nil {
		return d, true
	}
	return time.Hour, false
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

// A server that asks for a wait is not down, and a retry that it has invited costs a third.
func TestPolicyRetryAfterSaysHowLongTheServerAsks(t *testing.T) {
	const final = retryhttp.StopFinal
	type testCase struct {
		code     int
		header   []string
		asked    time.Duration
		paid     float64
		stop     retryhttp.Stop
		attempts int
	}
	inBubbles(t, map[string]testCase{
		"beside a Retry-After":          {503, []string{"Reset", "5s", "Retry-After", "50"}, 5 * time.Second, 1, final, 2},
		"an invitation":                 {429, []string{"Reset", "4s"}, 4 * time.Second, 1. / 3, final, 2},
		"not at all":                    {429, []string{"Retry-After", "50"}, 0, 1, final, 2},
		"a time that has passed":        {503, []string{"Reset", "-5s"}, 0, 1, final, 2},
		"for longer than MaxRetryAfter": {503, []string{"Reset", "61s"}, 0, 0, retryhttp.StopRetryAfter, 1},
	}, func(t *testing.T, c testCase) {
		base, bucket := script.New(script.Status(c.code, c.header...), script.Status(200)), &retryhttp.TokenBucket{}
		p := heeds()
		p.Gate, p.Budget = &retryhttp.Gate{}, bucket
		p.OnRetry = func(a retryhttp.Attempt) {
			assert.Equal(t, retryhttp.GateStatus{Closed: c.asked}, p.Gate.Status(a.Request))
			assert.InDelta(t, 5-c.paid, bucket.Status(a.Request).Tokens, 1e-9)
		}
		began := time.Now()
		resp := opened(t, base, p)
		requireAsked(t, c.asked, time.Since(began))
		assert.Equal(t, c.stop, retryhttp.OutcomeOf(resp).Stop)
		assert.Len(t, base.Requests(), c.attempts)
	})
}

// The function may be slow, or count. It is not needed for a success, unless that names a limit.
func TestPolicyRetryAfterIsCalledOnceForAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var about []int
		p := heeds()
		p.Budget = &retryhttp.TokenBucket{}
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			about = append(about, a.Response.StatusCode)
			assert.Equal(t, time.Second, a.Elapsed)
			return asks(a)
		}
		exhausted := []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}
		answers := script.New(
			script.Status(429, exhausted...), script.Fail(errors.New("lost")), script.Status(503), script.Status(200),
			script.Status(404), script.Status(200, exhausted...),
		)
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answers.RoundTrip(req)
		}), p)
		for range 3 {
			answerTo(t, rt, get(t, t.Context()))
		}
		assert.Equal(t, []int{429, 503, 200}, about)
	})
}

// The sources of the vectors: the vendor's documents, or its own SDK.
const (
	openaiDocs     = "https://platform.openai.com/docs/guides/rate-limits"
	openaiSDK      = "https://github.com/openai/openai-go/blob/main/internal/requestconfig/requestconfig.go"
	anthropicDocs  = "https://platform.claude.com/docs/en/api/rate-limits"
	googleDocs     = "https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto"
	rateLimitDraft = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11"
	githubDocs     = "https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api"
	jiraDocs       = "https://jira.atlassian.com/browse/JRACLOUD-69262"
	discordDocs    = "https://github.com/discord/discord-api-docs/blob/main/docs/topics/rate-limits.md"
)

// recipe is a Policy.RetryAfter.
type recipe = func(retryhttp.Attempt) (time.Duration, bool)

// recipes are the functions of this file and of the Examples, by the vendors that need them.
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
	{"OpenAI", "minutes", openaiDocs, requestsIn("6m0s"), "", 6 * time.Minute},
	{
		"OpenAI", "requests left", openaiDocs,
		[]string{"x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "1s"}, "", notAsked,
	},
	{
		"OpenAI", "Retry-After beside a reset", openaiSDK,
		append(requestsIn("6m0s"), "retry-after-ms", "1500", "retry-after", "2"), "", 1500 * time.Millisecond,
	},
	{"OpenAI", "negative", "", requestsIn("-1s"), "", 0},
	{"OpenAI", "no unit", "", requestsIn("30"), "", notAsked},
	{"OpenAI", "longer than a Duration can hold", "", requestsIn("9999999999h"), "", notAsked},

	{
		"Anthropic", "Retry-After", anthropicDocs,
		append(anthropicIn("requests", "2000-01-01T01:00:00Z"), "retry-after", "7"), "", 7 * time.Second,
	},
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

	{"Google", "a fraction", googleDocs, nil, googleError("45.837906172s"), 45837906172},
	{"Google", "beside Retry-After", googleDocs, []string{"Retry-After", "50"}, googleError("30s"), 30 * time.Second},
	{"Google", "no details", googleDocs, []string{"Retry-After", "5"}, `{"error": {"code": 429}}`, 5 * time.Second},
	{"Google", "another detail", "", nil, strings.ReplaceAll(googleError("30s"), "RetryInfo", "Help"), notAsked},
	{"Google", "negative", "", nil, googleError("-30s"), notAsked},
	{"Google", "no unit", "", nil, googleError("30"), notAsked},
	{"Google", "ten thousand years", "", nil, googleError("315576000000s"), maxWait},
	{"Google", "details that are null", "", nil, `{"error": {"details": [null, 5]}}`, notAsked},
	{"Google", "no JSON", "", []string{"Retry-After", "5"}, "<html>", 5 * time.Second},

	{"draft -11", "exhausted", rateLimitDraft, []string{"RateLimit", `"dynamic";r=0;t=20`}, "", 20 * time.Second},
	{"draft -11", "slowed down", rateLimitDraft, []string{"RateLimit", `"dynamic";r=9;t=50`}, "", notAsked},
	{
		"draft -11", "beside Retry-After", rateLimitDraft,
		[]string{"Retry-After", "20", "RateLimit", `"dynamic";r=0;t=40`}, "", 20 * time.Second,
	},

	{
		"GitHub", "primary limit", githubDocs,
		[]string{"x-ratelimit-remaining", "0", "x-ratelimit-reset", "1785585630", "Date", "Sat, 01 Aug 2026 12:00:00 GMT"},
		"", 30 * time.Second,
	},
	{
		"GitHub", "secondary limit without a wait", githubDocs,
		[]string{"x-ratelimit-remaining", "4000", "x-ratelimit-reset", "1785585630"}, "", time.Minute,
	},

	{"Jira", "both", jiraDocs, append(jiraAt("2000-01-01T00:01Z"), "Retry-After", "70"), "", 70 * time.Second},
	{"Jira", "a reset without seconds", jiraDocs, jiraAt("2000-01-01T00:01Z"), "", 2 * time.Minute},
	{"Jira", "malformed", "", jiraAt("tomorrow"), "", notAsked},

	{
		"Discord", "a float in the body", discordDocs,
		[]string{"Retry-After", "65"}, `{"retry_after": 64.57, "global": false}`, 64570 * time.Millisecond,
	},
	{"Discord", "negative", "", []string{"Retry-After", "65"}, `{"retry_after": -1.5}`, 65 * time.Second},
	{"Discord", "no number", "", []string{"Retry-After", "65"}, `{"retry_after": null}`, 65 * time.Second},
}

// run requires that the recipe reads the wait, and that no retry comes sooner.
func (c vendorCase) run(t *testing.T) {
	h := fields(c.header...)
	asked, ok := recipes[c.vendor](retryhttp.Attempt{Response: &http.Response{StatusCode: 429, Header: h}, Body: []byte(c.body)})
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
	resp := answerTo(t, retryhttp.New(script.New(refusal, script.Status(200)), p), get(t, t.Context()))
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
			resp := opened(t, base, p)
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

// fields builds a header from names and values in turn. As in a header from a
// connection, names are canonical, and a repeated name has several lines.
func fields(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}
