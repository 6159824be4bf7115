package benchmarks

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/PuerkitoBio/rehttp"
	"github.com/cristalhq/hedgedhttp"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"resty.dev/v3"

	"github.com/retryhttp/retryhttp"
)

// settings are what all are given alike.
type settings struct {
	attempts int           // the first included
	wait     time.Duration // before each retry
	retryAll bool          // no budget: the experiment is about retrying every request
	keepLast bool          // have the last response returned, where that is an option
	// attemptTimeout bounds each attempt; 0 is no bound. All that retry have it. Libraries that call an
	// http.Client for each attempt have it as the client's Timeout.
	attemptTimeout time.Duration
	bodies         bodies
	hedge          hedge // for hedgers
}

// doer sends requests, as an http.Client does.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// peer is one way to send a request. All of them have exactly one http.Client
// around the base, except where their own documentation has two.
type peer struct {
	name   string
	module string // "" is net/http
	// retries is false for those that are compared only where the first attempt
	// succeeds.
	retries  bool
	keepLast string // the option that settings.keepLast sets; "" is none
	bodies   bodyOptions
	// noFailure is the option that hedge.successes sets; "" is none.
	noFailure string
	build     func(base http.RoundTripper, s settings) doer
}

// The first is the floor, and the second is ours.
var peers = []peer{
	{
		name: "bare",
		build: func(base http.RoundTripper, _ settings) doer {
			return &http.Client{Transport: base}
		},
	},
	{
		// The default Policy, except for the waits and the number of attempts.
		// The budget is off where retryAll asks for that, and else as it is.
		name: "retryhttp", module: "github.com/retryhttp/retryhttp", retries: true,
		bodies: bodyOptions{whole: "BufferBytes", resume: "Resume", bad: "BufferBytes and Classify"},
		build: func(base http.RoundTripper, s settings) doer {
			p := retryhttp.Policy{MaxAttempts: s.attempts, Backoff: retryhttp.Constant(s.wait), Resume: s.bodies.resume, AttemptTimeout: s.attemptTimeout}
			if s.bodies.whole {
				p.BufferBytes = 64 << 10
			}
			if s.bodies.bad != nil {
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					if a.Body != nil && s.bodies.bad(a.Body) {
						return retryhttp.Retryable
					}
					return retryhttp.Classify(a)
				}
			}
			if s.retryAll {
				p.Budget = retryhttp.Unlimited{}
			}
			return &http.Client{Transport: retryhttp.New(base, p)}
		},
	},
	{
		// As its README says for those who have an *http.Request:
		// StandardClient, an http.Client with another one in its transport.
		// The default CheckRetry and Backoff. A CheckRetry of one's own has the
		// response.
		name: "go-retryablehttp", module: "github.com/hashicorp/go-retryablehttp", retries: true,
		keepLast: "PassthroughErrorHandler", bodies: allBodies("CheckRetry"),
		build: func(base http.RoundTripper, s settings) doer {
			c := newRetryable(base, s)
			if s.bodies.whole {
				c.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
					again, checkErr := retryablehttp.DefaultRetryPolicy(ctx, resp, err)
					return again || checkErr == nil && s.bodies.refuses(resp), checkErr
				}
			}
			return c.StandardClient()
		},
	},
	{
		// The same, called with a Request of its own, which takes a *bytes.Reader,
		// an *os.File and any other io.ReadSeeker as they are. It takes a handler
		// as well, whose errors are retried.
		name: "go-retryablehttp, own Request", module: "github.com/hashicorp/go-retryablehttp", retries: true,
		keepLast: "PassthroughErrorHandler", bodies: allBodies("SetResponseHandler"),
		build: func(base http.RoundTripper, s settings) doer {
			return retryable{newRetryable(base, s), s.bodies}
		},
	},
	{
		// There is no default: a rule is put together. This one has the
		// idempotent methods, the statuses that the others have, and the errors
		// of the example in its documentation. No rule for Retry-After comes
		// with it; a DelayFn could be written that honors it. A RetryFn of one's own
		// has the response.
		name: "rehttp", module: "github.com/PuerkitoBio/rehttp", retries: true, bodies: allBodies("RetryFn"),
		build: func(base http.RoundTripper, s settings) doer {
			failed := []rehttp.RetryFn{
				rehttp.RetryStatuses(408, 429), rehttp.RetryStatusInterval(500, 600), rehttp.RetryTemporaryErr(),
			}
			if s.bodies.whole {
				failed = append(failed, func(a rehttp.Attempt) bool { return s.bodies.refuses(a.Response) })
			}
			rule := rehttp.RetryAll(
				rehttp.RetryMaxRetries(s.attempts-1),
				rehttp.RetryHTTPMethods("GET", "HEAD", "OPTIONS", "PUT", "DELETE"),
				rehttp.RetryAny(failed...),
			)
			rt := rehttp.NewTransport(base, rule, rehttp.ConstDelay(s.wait))
			rt.PerAttemptTimeout = s.attemptTimeout
			return &http.Client{Transport: rt}
		},
	},
	{
		// The builder for HTTP, which knows 429, 5xx and Retry-After. A budget of
		// its own exists (of retries in flight) and is off by default.
		name: "failsafe-go", module: "github.com/failsafe-go/failsafe-go", retries: true,
		keepLast: "ReturnLastFailure", bodies: allBodies("HandleIf"),
		build: func(base http.RoundTripper, s settings) doer {
			b := failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(s.attempts).WithDelay(s.wait)
			if s.keepLast {
				b = b.ReturnLastFailure()
			}
			if s.bodies.whole {
				b = b.HandleIf(func(resp *http.Response, _ error) bool { return s.bodies.refuses(resp) })
			}
			policies := []failsafe.Policy[*http.Response]{b.Build()}
			if s.attemptTimeout > 0 { // below the retries
				policies = append(policies, timeout.New[*http.Response](s.attemptTimeout))
			}
			return &http.Client{Transport: failsafehttp.NewRoundTripper(base, policies...)}
		},
	},
	{
		// It has no way to send an *http.Request, so one of its own is made from
		// it, with the body as its documentation has it: the io.Reader itself.
		// Its conditions for 429 and 5xx are not on by default. The response is
		// not parsed, as by the others. Its Bytes and String would take a body that
		// breaks off for a whole one. A condition of one's own has the response. Its own
		// SetTimeout does nothing where the context has a deadline.
		name: "resty", module: "resty.dev/v3", retries: true, bodies: allBodies("AddRetryConditions"),
		build: func(base http.RoundTripper, s settings) doer {
			c := resty.NewWithClient(&http.Client{Transport: base, Timeout: s.attemptTimeout}).
				SetLogger(silent{}).
				SetResponseDoNotParse(true).
				SetRetryCount(s.attempts-1).
				SetRetryWaitTime(s.wait).
				SetRetryMaxWaitTime(s.wait).
				SetRetryDelayStrategy(resty.RetryConstantDelayStrategy(s.wait)).
				AddRetryConditions(resty.RetryConditionStatusTooManyRequests, resty.RetryConditionStatus5XX)
			if s.bodies.whole {
				c.AddRetryConditions(func(r *resty.Response, _ error) bool { return s.bodies.refuses(r.RawResponse) })
			}
			return restyClient{c}
		},
	},
	{
		// The README's client with a retrier, without jitter. Its waits are whole
		// milliseconds, and one follows the last attempt too. It does not look at
		// the method, at 429, or at Retry-After. Its plugins see each response, and
		// cannot have it retried.
		name: "heimdall", module: "github.com/gojek/heimdall/v7", retries: true,
		build: func(base http.RoundTripper, s settings) doer {
			return httpclient.NewClient(
				httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: s.attemptTimeout}),
				httpclient.WithRetryCount(s.attempts-1),
				httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewConstantBackoff(s.wait, 0))),
			)
		},
	},
	{
		// The pipeline with its default policies except telemetry, which is
		// off. The backoff is exponential from the wait that is asked for, up to
		// a minute; MaxRetryDelay, which would make it constant, would cap the
		// Retry-After as well. The response is streamed, as by the others, except
		// where bodies are to arrive whole: by default it downloads them.
		name: "azcore", module: "github.com/Azure/azure-sdk-for-go/sdk/azcore", retries: true,
		bodies: bodyOptions{whole: byDefault, resume: byDefault, bad: "ShouldRetry"},
		build: func(base http.RoundTripper, s settings) doer {
			delay := max(s.wait, 1) // what is documented as none, a negative one, waits for MaxRetryDelay
			retry := policy.RetryOptions{MaxRetries: int32(s.attempts - 1), RetryDelay: delay, TryTimeout: s.attemptTimeout}
			if s.bodies.bad != nil { // it replaces the statuses too, of which that experiment has none
				retry.ShouldRetry = func(resp *http.Response, err error) bool { return err != nil || s.bodies.refuses(resp) }
			}
			return azure{!s.bodies.whole, runtime.NewPipeline("benchmarks", "v0.0.0", runtime.PipelineOptions{}, &policy.ClientOptions{
				Transport: &http.Client{Transport: base},
				Retry:     retry,
				Telemetry: policy.TelemetryOptions{Disabled: true},
			})}
		},
	},
	{
		// It sends a second request where the first is slow, and does not retry.
		// The delay is such that no second one is sent.
		name: "hedgedhttp", module: "github.com/cristalhq/hedgedhttp",
		build: func(base http.RoundTripper, _ settings) doer {
			c, err := hedgedhttp.New(hedgedhttp.Config{Transport: base, Upto: 2, Delay: time.Minute})
			if err != nil {
				panic(err) // the configuration is constant
			}
			return &http.Client{Transport: c}
		},
	},
}

const (
	floor = 0
	ours  = 1
)

// retriers are the peers that retry.
func retriers() []peer {
	var all []peer
	for _, p := range peers {
		if p.retries {
			all = append(all, p)
		}
	}
	return all
}

func peerNamed(name string) peer {
	return peers[slices.IndexFunc(peers, func(p peer) bool { return p.name == name })]
}

func newRetryable(base http.RoundTripper, s settings) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base, Timeout: s.attemptTimeout}
	c.Logger = nil
	c.RetryMax = s.attempts - 1
	c.RetryWaitMin, c.RetryWaitMax = s.wait, s.wait
	if s.keepLast {
		c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	}
	return c
}

type retryable struct {
	client *retryablehttp.Client
	bodies bodies
}

func (r retryable) Do(req *http.Request) (*http.Response, error) {
	var body any // a nil io.Reader would be one that is read
	if source := sourceOf(req); source != nil {
		body = source
	}
	own, err := retryablehttp.NewRequestWithContext(req.Context(), req.Method, req.URL.String(), body)
	if err != nil {
		return nil, err
	}
	own.Header = req.Header
	if r.bodies.whole {
		own.SetResponseHandler(func(resp *http.Response) error {
			if r.bodies.refuses(resp) {
				return errRefused
			}
			return nil
		})
	}
	return r.client.Do(own)
}

type restyClient struct{ client *resty.Client }

func (r restyClient) Do(req *http.Request) (*http.Response, error) {
	own := r.client.R().SetContext(req.Context())
	own.Header = req.Header.Clone()
	if source := sourceOf(req); source != nil {
		own.SetBody(source)
	}
	resp, err := own.Execute(req.Method, req.URL.String())
	if err != nil {
		return nil, err
	}
	return resp.RawResponse, nil
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

type azure struct {
	streams  bool
	pipeline runtime.Pipeline
}

func (a azure) Do(req *http.Request) (*http.Response, error) {
	own, err := newAzure(req)
	if err != nil {
		return nil, err
	}
	if a.streams {
		runtime.SkipBodyDownload(own)
	}
	return a.pipeline.Do(own)
}

// newAzure gives SetBody what can seek, as azcore's own clients do. Anything else
// NewRequestFromRequest copies.
func newAzure(req *http.Request) (*policy.Request, error) {
	source := sourceOf(req)
	seeker, ok := source.(io.ReadSeeker)
	if source != nil && !ok {
		return runtime.NewRequestFromRequest(req)
	}
	own, err := runtime.NewRequest(req.Context(), req.Method, req.URL.String())
	if err != nil {
		return nil, err
	}
	for name, values := range req.Header {
		own.Raw().Header[name] = values
	}
	if source == nil {
		return own, nil
	}
	body, ok := source.(io.ReadSeekCloser)
	if !ok {
		body = streaming.NopCloser(seeker)
	}
	return own, own.SetBody(body, req.Header.Get("Content-Type"))
}

type sourceKey struct{}

// newRequest is http.NewRequestWithContext, but remembers what the body is read
// from: http.NewRequest hides it in an io.NopCloser, and packages with a request
// type of their own would have been given it.
func newRequest(ctx context.Context, method, url string, source io.Reader) (*http.Request, error) {
	if source != nil {
		ctx = context.WithValue(ctx, sourceKey{}, source)
	}
	return http.NewRequestWithContext(ctx, method, url, source)
}

func sourceOf(req *http.Request) io.Reader {
	source, _ := req.Context().Value(sourceKey{}).(io.Reader)
	return source
}
