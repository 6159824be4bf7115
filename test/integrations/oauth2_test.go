package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/retryhttp/retryhttp"
)

// The Transport goes above oauth2.Transport, so that each attempt gets a token
// that is good at that moment; another goes into the client that asks for tokens.
// That is asked with a POST, which may be repeated for client credentials: all
// it leaves is a token that nobody uses. Do not repeat a code or a refresh token
// that the server takes only once.
func Example_oauth2() {
	tokens := failing(freshToken(), 503)
	defer tokens.Close()
	api := failing(answerOK, 503)
	defer api.Close()

	client := newOAuth2(http.DefaultTransport, tokens.URL, retryhttp.Policy{})
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

func newOAuth2(base http.RoundTripper, tokenURL string, policy retryhttp.Policy) *http.Client {
	tokenPolicy := policy
	tokenPolicy.Idempotent = func(*http.Request) bool { return true }
	tokenClient := &http.Client{
		Timeout:   10 * time.Second, // a TokenSource does not know the deadline of the request that it is for
		Transport: retryhttp.New(base, tokenPolicy),
	}
	config := clientcredentials.Config{
		ClientID:     "id",
		ClientSecret: "secret",
		TokenURL:     tokenURL,
		AuthStyle:    oauth2.AuthStyleInHeader, // or any failure is met with a second request, in the other style
	}
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, tokenClient)

	// Not config.Client(ctx): that would send everything through tokenClient.
	source := hasRetried{config.TokenSource(ctx)}
	return &http.Client{Transport: retryhttp.New(&oauth2.Transport{Source: source, Base: base}, policy)}
}

// hasRetried is a TokenSource whose client retries. When the client has given up, or was refused,
// the Transport above must not retry again.
type hasRetried struct{ oauth2.TokenSource }

func (s hasRetried) Token() (*oauth2.Token, error) {
	token, err := s.TokenSource.Token()
	return token, retryhttp.Permanent(err)
}

// freshToken answers with t1, t2 and so on. Each token has expired by the next attempt, because
// oauth2 drops a token ten seconds before its end.
func freshToken() http.HandlerFunc {
	var n atomic.Int32
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": "t%d", "expires_in": 1}`, n.Add(1))
	}
}

var oauth2Policy = retryhttp.Policy{Backoff: retryhttp.Constant(0)}

func TestOAuth2RenewsATokenForTheRetryOnlyBelowTheTransport(t *testing.T) {
	for name, tt := range map[string]struct {
		client func(tokenURL string) *http.Client
		sent   []string
	}{
		"retryhttp above oauth2": {func(url string) *http.Client {
			return newOAuth2(http.DefaultTransport, url, oauth2Policy)
		}, []string{"Bearer t1", "Bearer t2"}},
		"the wrong way round": {func(url string) *http.Client {
			config := clientcredentials.Config{TokenURL: url}
			base := retryhttp.New(nil, oauth2Policy)
			return &http.Client{Transport: &oauth2.Transport{Source: config.TokenSource(context.Background()), Base: base}}
		}, []string{"Bearer t1", "Bearer t1"}},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := failing(freshToken())
			defer tokens.Close()
			api := failing(answerOK, 503)
			defer api.Close()

			body := &countedBody{Reader: strings.NewReader("hello")}
			req, err := http.NewRequest(http.MethodPut, api.URL, body)
			require.NoError(t, err)
			resp, err := tt.client(tokens.URL).Do(req)
			require.NoError(t, err)
			resp.Body.Close()

			var sent []string
			for _, r := range api.got() {
				sent = append(sent, r.Header.Get("Authorization"))
				assert.Equal(t, "hello", string(r.Body))
			}
			assert.Equal(t, tt.sent, sent)
			assert.Eventually(t, func() bool { return body.closed.Load() == 1 }, 10*time.Second, time.Millisecond)
		})
	}
}

func TestOAuth2TokenEndpointIsNotAskedByTwoLayers(t *testing.T) {
	for name, tt := range map[string]struct{ status, attempts int }{
		"it is down":     {503, 4},
		"it refuses":     {400, 1},
		"nobody answers": {0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int32
			tokens := failing(func(w http.ResponseWriter, r *http.Request) {
				attempts.Add(1)
				if tt.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(tt.status)
			})
			defer tokens.Close()

			_, err := newOAuth2(http.DefaultTransport, tokens.URL, oauth2Policy).Get("http://api.invalid/")
			_, ok := errors.AsType[*retryhttp.Error](err)
			assert.True(t, ok, "%v", err)
			assert.EqualValues(t, tt.attempts, attempts.Load())
		})
	}
}

// The error of the token's client cannot be distinguished from the error of a Transport below, for
// the same request.
func TestOAuth2AttemptsForATokenAreTakenForThoseOfTheRequest(t *testing.T) {
	tokens := failing(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	defer tokens.Close()
	api := failing(answerOK)
	defer api.Close()
	resp, err := newOAuth2(http.DefaultTransport, tokens.URL, oauth2Policy).Post(api.URL, "text/plain", nil)
	if err == nil {
		resp.Body.Close()
	}
	failure, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, len(tokens.got()), failure.Attempts)
	assert.True(t, failure.Ambiguous)
	assert.Empty(t, api.got())
}

// The Timeout of the token's client ends the wait, and not the deadline of the request.
func TestOAuth2TokenEndpointThatIsSilentIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := failingInMemory(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-r.Context().Done():
			case <-time.After(time.Hour):
			}
		})
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", nil)
		require.NoError(t, err)
		start := time.Now()
		_, err = newOAuth2(base, "http://tokens.example/", oauth2Policy).Do(req)
		require.Error(t, err)
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}
