package integrations_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"golang.org/x/oauth2"

	"github.com/retryhttp/retryhttp"
)

// A retry takes another connection if there is a retryhttp.Base. New makes a Base of an
// *http.Transport. New does not see an *http.Transport below a RoundTripper of another package, so
// put a Base there.
func Example_baseBelowOtelhttp() {
	var conns firstBroken
	server := failing(conns.answer)
	defer server.Close()

	base := retryhttp.NewBase(http.DefaultTransport.(*http.Transport).Clone())
	client := &http.Client{Transport: retryhttp.New(otelhttp.NewTransport(base), retryhttp.Policy{})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
	// Output: 200 OK at attempt 2
}

// signer signs each attempt for AWS. Its copy of a request has the context of the request, in which a
// Base finds the attempt.
type signer struct{ base http.RoundTripper }

func (s signer) RoundTrip(req *http.Request) (*http.Response, error) {
	const hash = "UNSIGNED-PAYLOAD"
	signed := req.Clone(req.Context())
	signed.Header.Set("X-Amz-Content-Sha256", hash)
	keys := aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey}
	err := v4.NewSigner().SignHTTP(req.Context(), keys, signed, hash, "s3", region, time.Now())
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return s.base.RoundTrip(signed)
}

// firstBroken answers all requests of the first connection with 503, as a balancer of connections does
// that has chosen a broken replica.
type firstBroken struct {
	mu    sync.Mutex
	first string
	conns map[string]bool
}

func (f *firstBroken) answer(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		f.first, f.conns = r.RemoteAddr, map[string]bool{}
	}
	f.conns[r.RemoteAddr] = true
	if r.RemoteAddr == f.first {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (f *firstBroken) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func TestRetryTakesAnotherConnectionOfABaseBelowAWrapper(t *testing.T) {
	type result struct{ status, attempts, conns int }
	ask := func(t *testing.T, base http.RoundTripper) result {
		t.Helper()
		var conns firstBroken
		server := failing(conns.answer)
		defer server.Close()
		client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0)})}
		resp, err := client.Get(server.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		return result{resp.StatusCode, retryhttp.OutcomeOf(resp).Attempts, conns.count()}
	}
	token := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "secret"})
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"otelhttp": func(base http.RoundTripper) http.RoundTripper { return otelhttp.NewTransport(base) },
		"AWS":      func(base http.RoundTripper) http.RoundTripper { return signer{base} },
		"oauth2": func(base http.RoundTripper) http.RoundTripper {
			return &oauth2.Transport{Source: token, Base: base}
		},
		"oauth2 above otelhttp": func(base http.RoundTripper) http.RoundTripper {
			return &oauth2.Transport{Source: token, Base: otelhttp.NewTransport(base)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, result{http.StatusOK, 2, 2}, ask(t, wrap(retryhttp.NewBase(&http.Transport{}))))
			assert.Equal(t, result{http.StatusServiceUnavailable, 4, 1}, ask(t, wrap(&http.Transport{})))
		})
	}
}
