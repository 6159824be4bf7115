package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/retryhttp/retryhttp"
)

const sayProcedure = "/echo.v1.EchoService/Say"

// A connect client takes an http.Client. Its unary calls are POSTs, and are sent
// once; calls of a procedure without side effects become GETs, which may be
// repeated, with the two options shown here. For a procedure that has effects but
// may be repeated, have a Policy.Idempotent that knows its path, or give the
// request an Idempotency-Key, if its server honors that.
func Example_connect() {
	server := failing(sayHandler(nil), 503)
	defer server.Close()

	client := newSayClient(server.URL, retryhttp.Policy{}, noSideEffects)
	resp, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Msg.GetValue())
	// Output: hello
}

type sayClient = connect.Client[wrapperspb.StringValue, wrapperspb.StringValue]

func newSayClient(url string, policy retryhttp.Policy, options ...connect.ClientOption) *sayClient {
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	return connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](client, url+sayProcedure, options...)
}

var noSideEffects = connect.WithClientOptions(
	connect.WithIdempotency(connect.IdempotencyNoSideEffects), // generated code does this
	connect.WithHTTPGet(),
)

// sayHandler answers with the message it got, or with err.
func sayHandler(err error) http.HandlerFunc {
	handler := connect.NewUnaryHandler(sayProcedure,
		func(
			_ context.Context, req *connect.Request[wrapperspb.StringValue],
		) (*connect.Response[wrapperspb.StringValue], error) {
			return connect.NewResponse(req.Msg), err
		},
		connect.WithIdempotency(connect.IdempotencyNoSideEffects),
	)
	return handler.ServeHTTP
}

func sayTo(server *server, policy retryhttp.Policy, options ...connect.ClientOption) *sayClient {
	policy.Backoff = retryhttp.Constant(0)
	return newSayClient(server.URL, policy, options...)
}

func TestConnectUnaryIsSentOnceUnlessItIsKnownToBeIdempotent(t *testing.T) {
	byPath := retryhttp.Policy{Idempotent: func(req *http.Request) bool {
		return req.URL.Path == sayProcedure || retryhttp.Idempotent(req)
	}}
	withKey := connect.NewRequest(wrapperspb.String("hello"))
	withKey.Header().Set("Idempotency-Key", "17")
	noGET := connect.WithIdempotency(connect.IdempotencyNoSideEffects)

	for name, tt := range map[string]struct {
		policy   retryhttp.Policy
		options  []connect.ClientOption
		req      *connect.Request[wrapperspb.StringValue]
		method   string
		attempts int
	}{
		"nothing known":             {method: "POST", attempts: 1},
		"no side effects, no GET":   {options: []connect.ClientOption{noGET}, method: "POST", attempts: 1},
		"no side effects, with GET": {options: []connect.ClientOption{noSideEffects}, method: "GET", attempts: 2},
		"by its path":               {policy: byPath, method: "POST", attempts: 2},
		"key":                       {req: withKey, method: "POST", attempts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			server := failing(sayHandler(nil), 503)
			defer server.Close()
			if tt.req == nil {
				tt.req = connect.NewRequest(wrapperspb.String("hello"))
			}
			resp, err := sayTo(server, tt.policy, tt.options...).CallUnary(t.Context(), tt.req)
			if tt.attempts == 1 {
				assert.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
			} else if assert.NoError(t, err) {
				assert.Equal(t, "hello", resp.Msg.GetValue())
			}
			require.Len(t, server.got(), tt.attempts)
			for _, r := range server.got() {
				assert.Equal(t, tt.method, r.Method)
			}
		})
	}
}

// Unimplemented is a 501, which will not get better: see ExampleClassify_except.
func TestConnectCodesThatAreRetried(t *testing.T) {
	retried := map[connect.Code]bool{
		connect.CodeUnknown:           true,
		connect.CodeDeadlineExceeded:  true,
		connect.CodeResourceExhausted: true,
		connect.CodeUnimplemented:     true,
		connect.CodeInternal:          true,
		connect.CodeUnavailable:       true,
		connect.CodeDataLoss:          true,
	}
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		server := failing(sayHandler(connect.NewError(code, errors.New("why"))))
		hello := connect.NewRequest(wrapperspb.String("hello"))
		_, err := sayTo(server, retryhttp.Policy{}, noSideEffects).CallUnary(t.Context(), hello)
		server.Close()
		assert.Equal(t, code, connect.CodeOf(err))
		assert.ErrorContains(t, err, "why")
		want := 1
		if retried[code] {
			want = 4
		}
		assert.Len(t, server.got(), want, code.String())
	}
}

// These protocols put the code where no RoundTripper looks, and answer with status 200.
func TestConnectWithGRPCWebCodesAreNotSeen(t *testing.T) {
	server := failing(sayHandler(connect.NewError(connect.CodeUnavailable, nil)))
	defer server.Close()
	always := retryhttp.Policy{Idempotent: func(*http.Request) bool { return true }}
	hello := connect.NewRequest(wrapperspb.String("hello"))
	_, err := sayTo(server, always, connect.WithGRPCWeb()).CallUnary(t.Context(), hello)
	assert.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
	assert.Len(t, server.got(), 1)
}
