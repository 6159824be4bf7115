package integrations_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_graphQL() {
	server := answering(throttled, `{"data": {"book": "17"}}`)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, graphQLPolicy)}
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"query": "{ book }"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", answer)
	// Output: {"data": {"book": "17"}}
}

// A GraphQL server answers 200 when it has not done something, and reports it in errors.
// BufferBytes makes the errors visible to Classify.
var graphQLPolicy = retryhttp.Policy{
	BufferBytes:      1 << 20,
	Classify:         classifyGraphQL,
	RetryUnprocessed: true, // requests are POSTs, and may be mutations
}

// classifyGraphQL knows the codes of one server. The server does not begin a request that it
// throttles. It may have done a part of a request that met an internal error.
func classifyGraphQL(a retryhttp.Attempt) retryhttp.Class {
	var answer struct {
		Errors []struct{ Extensions struct{ Code string } }
	}
	_ = json.Unmarshal(a.Body, &answer)
	for _, e := range answer.Errors {
		switch e.Extensions.Code {
		case "THROTTLED":
			return retryhttp.Unprocessed
		case "INTERNAL_SERVER_ERROR":
			return retryhttp.Retryable
		}
	}
	return retryhttp.Classify(a)
}

const (
	throttled = `{"errors": [{"extensions": {"code": "THROTTLED"}}]}`
	internal  = `{"errors": [{"extensions": {"code": "INTERNAL_SERVER_ERROR"}}]}`
	invalid   = `{"errors": [{"extensions": {"code": "GRAPHQL_VALIDATION_FAILED"}}]}`
)

// A query and a mutation have the same method, so the sender reports which one it is.
func TestGraphQLErrorsWithin200AreRetriedWhereThatIsSafe(t *testing.T) {
	reads := func(p *retryhttp.Policy) { p.Idempotent = func(*http.Request) bool { return true } }
	anything := func(*retryhttp.Policy) {}
	for name, tt := range map[string]struct {
		answer   string
		edit     func(*retryhttp.Policy)
		attempts int
	}{
		"throttled":             {throttled, anything, 3},
		"an error inside":       {internal, anything, 1},
		"an error in a query":   {internal, reads, 3},
		"an invalid query":      {invalid, reads, 1},
		"a query that succeeds": {`{"data": {}, "errors": []}`, reads, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := answering(tt.answer)
			defer server.Close()
			client := &http.Client{Transport: retryhttp.New(nil, threeAttempts(graphQLPolicy))}
			ctx := retryhttp.WithPolicy(t.Context(), tt.edit)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(`{"query": "{ book }"}`))
			require.NoError(t, err)

			resp, err := client.Do(req)
			require.NoError(t, err)
			require.Equal(t, tt.answer, bodyOf(t, resp))
			requireRepeats(t, server, tt.attempts)
		})
	}
}
