package main

// identity begins a list of tests that differ with any RoundTripper around an http.Transport, or with an *Error. Two
// compare the error of a canceled request for identity. One has its http.Transport send https through another
// RoundTripper, see retryhttp.Base. In the last, http.Client notices its timeout after the body's Read does.
const identity = "^(TestClientDoCanceledVsTimeout|TestClientRedirectsContext|TestNoCrashReturningTransportAltConn|TestClientTimeout"

// waiting are tests that wait for a request, which the broken replica has.
const waiting = "^(TestReverseProxy_CopyBuffer|TestReverseProxyUpgradeNoCloseWrite|TestServeHTTPDeepCopy)$"

// differInConnect are such tests of connect, and two that count how often a server panics that is asked again. In some
// others the server answers 429, and the retry may end at the broken replica. The rest open a stream whose body cannot
// be sent again: with the library there are more connections, and so more that are broken.
const differInConnect = "^(TestBidiOverHTTP1|TestUnaryRequestBodyAfterEarlyResponse|TestClientDisconnect|" +
	"TestWithRecover|TestHandlerReturnsNilResponse)$|^TestServer$/^http1$/.*/.*/^(.*errors.*|cumsum.*)$"

// ownRetries are tests of client-go whose servers have an answer for each request that it makes, and none for a retry.
const ownRetries = "^(TestConnectionResetByPeerIsRetried|TestRequestStream|TestRequestWatch|TestRequest.*Retry.*|" +
	"TestRetryableConditions|TestRequest(Do|Watch)WithWrapPreviousError|" + twoTimeouts + ")$"

// twoTimeouts wants the error of a context. With any RoundTripper around an http.Transport, http.Client ends a late
// request by its context and by Request.Cancel at once, and the error is of the first to be noticed.
const twoTimeouts = "TestRestClientTimeout"

// Lists of tests are anchored, because go test matches a part of a name.
var suites = []suite{
	{
		name: "net/http", module: "std", packages: []string{"net/http"}, flags: []string{"-short"}, std: true, calm: true,
		differ: map[string]string{
			"once": identity + "|TestTransportDialPreservesNetOpProxyError)$", // looks for a type without errors.As
			"bare": identity + ")$", "base": identity + ")$",
		},
	},
	{
		name: "httputil", module: "std", packages: []string{"net/http/httputil"}, flags: []string{"-short"}, std: true,
		differ: map[string]string{
			// Its server has an answer for each request, and none for a retry.
			"retrying":     "^TestReverseProxy_CopyBuffer$",
			"broken alone": waiting, "broken": waiting,
		},
	},
	{
		name: "resty", module: "resty.dev/v3", version: "v3.0.0-rc.4", packages: []string{"."},
		differ: map[string]string{
			"retrying": "^TestSSESourceConnectContextDoneDuringRetryWait$", // counts requests
		},
	},
	{
		name: "minio", module: "github.com/minio/minio-go/v7", version: "v7.4.1", packages: []string{"."},
		flags: []string{"-short"}, // the others need a server of their own
		differ: map[string]string{
			"retrying": "^TestPutObjectRetryNonSeekable$", // counts requests: its body is recorded, and sent again
		},
	},
	{
		name: "containerregistry", module: "github.com/google/go-containerregistry", version: "v0.22.1",
		packages: []string{"./pkg/v1/remote/...", "./pkg/registry/...", "./pkg/crane/...", "./pkg/v1/google/..."},
		differ: map[string]string{
			// The first counts requests. The servers of the others have an answer for each request, and none for a retry.
			"retrying": "^(TestMultiWrite_Retry|TestTransportSelectionBearer|TestTransportSelectionBearerAuthError)$",
		},
	},
	{
		// It reads codes from the texts of errors.
		name: "connect", module: "connectrpc.com/connect", version: "v1.21.1", packages: []string{"."},
		differ: map[string]string{"broken alone": differInConnect, "broken": differInConnect},
	},
	{
		name: "client-go", module: "k8s.io/client-go", version: "v0.37.2", packages: []string{"./rest/...", "./transport/..."},
		differ: map[string]string{
			// It compares errors with io.EOF and io.ErrUnexpectedEOF, which no *Error equals.
			"once": "^(TestRequestDoRawWithRetry|TestRequestDoWithRetry|TestRequestDoWithWrapPreviousError|TestRequestStream|" +
				"TestRequestWatch|TestRequestWatchWithRetry|TestRequestWatchWithWrapPreviousError|TestRequestWithRetry|" +
				"TestRetryableConditions|" + twoTimeouts + ")$",
			"retrying": ownRetries, "broken alone": ownRetries, "broken": ownRetries,
		},
	},
	{ // this one and the next two retry or hedge, and count the requests of servers that fail
		name: "rehttp", module: "github.com/PuerkitoBio/rehttp", version: "v1.4.0", packages: []string{"."}, calm: true,
		differ: map[string]string{
			// They compare errors of the base for identity.
			"once": "^TestMockClient(FailBufferBody|PreventRetryWithBody|Retry|RetryTimeout|RetryWithBody)$",
		},
	},
	{
		name: "go-retryablehttp", module: "github.com/hashicorp/go-retryablehttp", version: "v0.7.8", packages: []string{"."},
		calm: true,
		differ: map[string]string{
			// It looks for a type without errors.As, and a test wants an error that equals one of its own.
			"once": "^(TestClient_DefaultRetryPolicy_TLS|TestRoundTripper_TransportFailureErrorHandling)$",
		},
	},
	{name: "hedgedhttp", module: "github.com/cristalhq/hedgedhttp", version: "v0.9.1", packages: []string{"."}, calm: true},
}
