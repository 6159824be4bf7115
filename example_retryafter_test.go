package retryhttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// retryInfo reads the wait that Google's APIs put into the details of an error, such as "30s".
func retryInfo(a retryhttp.Attempt) (time.Duration, bool) {
	var answer struct {
		Error struct {
			Details []struct {
				Type  string `json:"@type"`
				Delay string `json:"retryDelay"`
			}
		}
	}
	if json.Unmarshal(a.Body, &answer) == nil {
		for _, detail := range answer.Error.Details {
			number, unit := strings.CutSuffix(detail.Delay, "s")
			if wait, ok := inSeconds(number); ok && unit && detail.Type == "type.googleapis.com/google.rpc.RetryInfo" {
				return wait, true
			}
		}
	}
	return retryhttp.RetryAfter(a.Response.Header)
}

// inSeconds reads a number as RetryAfter does in a header: without a sign, however large, and never
// rounded down.
func inSeconds(number string) (time.Duration, bool) {
	return retryhttp.RetryAfter(http.Header{"Retry-After": {number}})
}

// Google's APIs name the wait in the body of an error. BufferBytes makes the body a part of the
// attempt.
func ExamplePolicy_retryAfterInABody() {
	server := refusingOnce(`{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}
	]}}`, "Content-Type", "application/json; charset=UTF-8")
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff:     retryhttp.Constant(0), // a wait is added to what RetryAfter asks for
		BufferBytes: 64 << 10,
		RetryAfter:  retryInfo,
	})}
	began := time.Now()
	show(client.Get(server.URL))
	fmt.Println("as asked:", time.Since(began) >= 50*time.Millisecond)
	// Output:
	// 200 OK at attempt 2
	// as asked: true
}

// requestsReset reads x-ratelimit-reset-requests, such as 1s or 6m0s, if no request is left. It is the
// time until the limit is full again, and one request may fit earlier. So Retry-After comes first.
func requestsReset(a retryhttp.Attempt) (time.Duration, bool) {
	h := a.Response.Header
	if wait, ok := retryhttp.RetryAfter(h); ok {
		return wait, true
	}
	if h.Get("X-RateLimit-Remaining-Requests") != "0" {
		return 0, false // another limit is exhausted
	}
	wait, err := time.ParseDuration(h.Get("X-RateLimit-Reset-Requests"))
	return wait, err == nil
}

// OpenAI's API says in a header when its limits are full again, in Go's notation. Others have
// adopted it.
func ExamplePolicy_retryAfterInADuration() {
	server := refusingOnce("", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "50ms")
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff:    retryhttp.Constant(0),
		RetryAfter: requestsReset,
	})}
	began := time.Now()
	show(client.Get(server.URL))
	fmt.Println("as asked:", time.Since(began) >= 50*time.Millisecond)
	// Output:
	// 200 OK at attempt 2
	// as asked: true
}

// limitsReset reads when all exhausted limits of Anthropic's API are full again. One request may fit
// earlier, so Retry-After comes first. Date is the server's clock, which may differ from ours.
func limitsReset(a retryhttp.Attempt) (longest time.Duration, asked bool) {
	h := a.Response.Header
	if wait, ok := retryhttp.RetryAfter(h); ok {
		return wait, true
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	for _, limit := range []string{"Requests", "Input-Tokens", "Output-Tokens"} {
		name := "Anthropic-Ratelimit-" + limit
		if h.Get(name+"-Remaining") != "0" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, h.Get(name+"-Reset")); err == nil {
			longest, asked = max(longest, at.Sub(now)), true
		}
	}
	return longest, asked
}

// Anthropic's API names a moment for each of its limits. A moment further away than MaxRetryAfter
// ends the retries.
func ExamplePolicy_retryAfterAsATime() {
	inAnHour := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	server := refusingOnce("", "Anthropic-Ratelimit-Requests-Remaining", "0", "Anthropic-Ratelimit-Requests-Reset", inAnHour)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{RetryAfter: limitsReset})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "because of", retryhttp.OutcomeOf(resp).Stop)
	// Output: 429 Too Many Requests because of retry-after
}

// refusingOnce answers the first request with a 429, and all others with a 200.
func refusingOnce(body string, header ...string) *httptest.Server {
	var refused atomic.Bool
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refused.Swap(true) {
			return
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, body)
	}))
}
