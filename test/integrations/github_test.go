package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-github/v92/github"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_github() {
	server := failing(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"full_name": "golang/go"}`)
	}, http.StatusBadGateway)
	defer server.Close()

	client, err := newGitHub(server.URL, retryhttp.Policy{})
	if err != nil {
		fmt.Println(err)
		return
	}
	repo, _, err := client.Repositories.Get(context.Background(), "golang", "go")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(repo.GetFullName())
	// Output: golang/go
}

// newGitHub gives go-github a RoundTripper. go-github has no retries to switch off, unless a
// context asks it to sleep through rate limits. It only remembers rate limits, and refuses
// requests by itself until the limits are over. Its GETs, PUTs and DELETEs are retried. Its POSTs
// and PATCHes are sent once.
func newGitHub(url string, policy retryhttp.Policy) (*github.Client, error) {
	return github.NewClient(
		github.WithTransport(retryhttp.New(nil, policy)),
		github.WithURLs(&url, nil), // your own server, if you have one
	)
}

func githubClient(t *testing.T, url string, policy retryhttp.Policy) *github.Client {
	client, err := newGitHub(url, policy)
	require.NoError(t, err)
	return client
}

func TestGitHubRepeatsGetAndSendsPostOnce(t *testing.T) {
	server := failing(http.NotFound, 502, 502, 502)
	defer server.Close()
	client := githubClient(t, server.URL, threeAttempts(retryhttp.Policy{}))

	_, resp, err := client.Repositories.Get(t.Context(), "golang", "go")
	requireRepeats(t, server, 3)
	var failure *github.ErrorResponse
	require.ErrorAs(t, err, &failure)
	require.Equal(t, http.StatusBadGateway, failure.Response.StatusCode)
	require.Equal(t, 3, retryhttp.OutcomeOf(resp.Response).Attempts)

	server = failing(http.NotFound, 502)
	defer server.Close()
	client = githubClient(t, server.URL, threeAttempts(retryhttp.Policy{}))
	_, _, err = client.Issues.Create(t.Context(), "golang", "go", github.CreateIssueRequest{Title: "title"})
	require.ErrorAs(t, err, &failure)
	require.Empty(t, requireRepeats(t, server, 1).Header["Idempotency-Key"])
}

func TestGitHubKeepsTheErrorOfTheLastAttempt(t *testing.T) {
	server := failing(http.NotFound)
	server.Close()

	client := githubClient(t, server.URL, threeAttempts(retryhttp.Policy{}))
	_, _, err := client.Repositories.Get(t.Context(), "golang", "go")
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
}

// A secondary rate limit is a 403, which is final. So go-github sees it at once, and holds back
// all further requests itself.
func TestGitHubHoldsBackAfterASecondaryRateLimit(t *testing.T) {
	server := failing(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"documentation_url": "https://docs.github.com/rest#secondary-rate-limits"}`)
	})
	defer server.Close()
	client := githubClient(t, server.URL, threeAttempts(retryhttp.Policy{}))

	for range 2 {
		_, _, err := client.Repositories.Get(t.Context(), "golang", "go")
		var limit *github.AbuseRateLimitError
		require.ErrorAs(t, err, &limit)
	}
	requireRepeats(t, server, 1)
}

// A 429 is retried before go-github sees it. That is in vain if the hourly limit is spent, because
// GitHub reports its end in X-RateLimit-Reset alone. It is best to make such a 429 final.
func TestGitHubSpentRateLimitCanBeMadeFinal(t *testing.T) {
	server := failing(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(github.HeaderRateRemaining, "0")
		w.Header().Set(github.HeaderRateReset, "4102444800") // in 2100
		w.WriteHeader(http.StatusTooManyRequests)
	})
	defer server.Close()
	policy := threeAttempts(retryhttp.Policy{})
	policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil && a.Response.Header.Get(github.HeaderRateRemaining) == "0" {
			return retryhttp.Final
		}
		return retryhttp.Classify(a)
	}

	_, _, err := githubClient(t, server.URL, policy).Repositories.Get(t.Context(), "golang", "go")
	var limit *github.RateLimitError
	require.ErrorAs(t, err, &limit)
	requireRepeats(t, server, 1)
}

func TestGitHubTokenIsAddedAboveTheTransport(t *testing.T) {
	server := failing(http.NotFound, 502)
	defer server.Close()
	policy := threeAttempts(retryhttp.Policy{})
	var seen string
	policy.OnRetry = func(a retryhttp.Attempt) { seen = a.Request.Header.Get("Authorization") }
	client, err := githubClient(t, server.URL, policy).Clone(github.WithAuthToken("secret"))
	require.NoError(t, err)

	_, _, err = client.Repositories.Get(t.Context(), "golang", "go")
	require.Error(t, err)
	require.Equal(t, "Bearer secret", seen)
}
