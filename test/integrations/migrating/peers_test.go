package migrating_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/cenkalti/backoff/v6"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"resty.dev/v3"

	"github.com/retryhttp/retryhttp"
)

// doer sends requests, as an http.Client does.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

type doerFunc func(*http.Request) (*http.Response, error)

func (f doerFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

const (
	attempts = 4
	wait     = time.Second
)

// peers all make four attempts, a second apart, and have their other defaults. rehttp and resty
// have no defaults, and the caller of backoff writes its operation, so these three do what is
// common.
var peers = map[string]func(http.RoundTripper) doer{
	"go-retryablehttp": func(base http.RoundTripper) doer {
		return viaRetryable{newRetryable(base)}
	},
	"rehttp": func(base http.RoundTripper) doer {
		rule := rehttp.RetryAll(rehttp.RetryMaxRetries(attempts-1),
			rehttp.RetryAny(rehttp.RetryTemporaryErr(), rehttp.RetryStatusInterval(500, 600)))
		return &http.Client{Transport: rehttp.NewTransport(base, rule, rehttp.ConstDelay(wait))}
	},
	"heimdall": func(base http.RoundTripper) doer {
		return newHeimdall(&http.Client{Transport: base})
	},
	"resty": func(base http.RoundTripper) doer {
		return viaResty{newResty(base)}
	},
	"failsafehttp": func(base http.RoundTripper) doer {
		retries := failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(attempts).WithDelay(wait).Build()
		return &http.Client{Transport: failsafehttp.NewRoundTripper(base, retries)}
	},
	"backoff": func(base http.RoundTripper) doer {
		return viaBackoff(&http.Client{Transport: base})
	},
	"retryhttp": retrying(retryhttp.Policy{Backoff: retryhttp.Constant(wait)}),
}

// retrying builds clients with a policy p, and without a budget: the tests send many requests that
// fail.
func retrying(p retryhttp.Policy) func(http.RoundTripper) doer {
	p.Budget = retryhttp.Unlimited{}
	return func(base http.RoundTripper) doer {
		return &http.Client{Transport: retryhttp.New(base, p)}
	}
}

func newRetryable(base http.RoundTripper) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{Transport: base}
	client.Logger = nil
	client.RetryMax = attempts - 1
	client.RetryWaitMin, client.RetryWaitMax = wait, wait
	return client
}

type viaRetryable struct{ client *retryablehttp.Client }

func (v viaRetryable) Do(req *http.Request) (*http.Response, error) {
	own, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	return v.client.Do(own)
}

func newHeimdall(client heimdall.Doer) *httpclient.Client {
	return httpclient.NewClient(
		httpclient.WithHTTPClient(client),
		httpclient.WithRetryCount(attempts-1),
		httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewConstantBackoff(wait, 0))),
	)
}

func newResty(base http.RoundTripper) *resty.Client {
	return resty.NewWithClient(&http.Client{Transport: base}).
		SetResponseDoNotParse(true).
		SetRetryCount(attempts-1).
		SetRetryDelayStrategy(resty.RetryConstantDelayStrategy(wait)).
		AddRetryConditions(resty.RetryConditionStatus5XX, resty.RetryConditionStatusTooManyRequests)
}

type viaResty struct{ client *resty.Client }

func (v viaResty) Do(req *http.Request) (*http.Response, error) {
	own := v.client.R().SetContext(req.Context())
	if req.Body != nil {
		own.SetBody(req.Body)
	}
	resp, err := own.Execute(req.Method, req.URL.String())
	if err != nil {
		return nil, err
	}
	return resp.RawResponse, nil
}

func viaBackoff(client *http.Client) doer {
	return doerFunc(func(req *http.Request) (*http.Response, error) {
		operation := func() (*http.Response, error) {
			again := req.Clone(req.Context())
			if req.GetBody != nil {
				again.Body, _ = req.GetBody()
			}
			resp, err := client.Do(again)
			if err != nil {
				return nil, err
			}
			if resp.StatusCode >= 500 {
				resp.Body.Close()
				return nil, errors.New(resp.Status)
			}
			if resp.StatusCode >= 400 {
				resp.Body.Close()
				return nil, backoff.Permanent(fmt.Errorf("no use: %s", resp.Status))
			}
			return resp, nil
		}
		return backoff.Retry(req.Context(), operation,
			backoff.WithBackOff(backoff.NewConstantBackOff(wait)), backoff.WithMaxTries(attempts))
	})
}
