package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// A body that breaks off is a failed attempt, like a connection that breaks before the
// header. The caller sees neither.
func ExamplePolicy_bufferBytes() {
	server := serverBreakingOff(`{"name": "Ada", "born": 1815}`, len(`{"name": `), hangUp)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		BufferBytes: 1 << 20, // of a longer body, the caller gets the beginning and the rest as they come
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
		OnRetry:     func(a retryhttp.Attempt) { fmt.Println("retrying after:", a.Err) },
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var person struct{ Name string }
	if err := json.NewDecoder(resp.Body).Decode(&person); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(person.Name, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
	// Output:
	// retrying after: unexpected EOF
	// Ada at attempt 2
}

// S3 begins the answer to a copy before it has copied. So an error may come with status 200.
func ExamplePolicy_classifyS3() {
	server := serverSending(
		`<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>`,
		`<?xml version="1.0"?><CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>`,
	)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		BufferBytes: 64 << 10,
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			var failure struct {
				XMLName xml.Name `xml:"Error"` // no other element
				Code    string
			}
			if xml.Unmarshal(a.Body, &failure) == nil && (failure.Code == "SlowDown" || failure.Code == "InternalError") {
				return retryhttp.Retryable
			}
			return retryhttp.Classify(a)
		},
	})}
	req, err := http.NewRequest(http.MethodPut, server.URL+"/bucket/copy", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("X-Amz-Copy-Source", "/bucket/original")
	showBody(client.Do(req))
	// Output: attempt 2: <?xml version="1.0"?><CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>
}

// This API computes what a GraphQL document costs before it executes any of it. So a
// refusal is Unprocessed, and a mutation, too, may be sent again.
func ExamplePolicy_classifyGraphQL() {
	server := serverSending(
		`{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}`,
		`{"data": {"orderClose": {"order": {"id": 17}}}}`,
	)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		BufferBytes:      1 << 20,
		RetryUnprocessed: true, // a POST without a key is not idempotent
		Backoff:          retryhttp.Constant(10 * time.Millisecond),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			var answer struct {
				Data   any
				Errors []struct{ Extensions struct{ Code string } }
			}
			if json.Unmarshal(a.Body, &answer) == nil && answer.Data == nil &&
				len(answer.Errors) == 1 && answer.Errors[0].Extensions.Code == "THROTTLED" {
				return retryhttp.Unprocessed
			}
			return retryhttp.Classify(a)
		},
	})}
	document := strings.NewReader(`{"query": "mutation { orderClose(id: 17) { order { id } } }"}`)
	showBody(client.Post(server.URL+"/graphql", "application/json", document))
	// Output: attempt 2: {"data": {"orderClose": {"order": {"id": 17}}}}
}

// Elasticsearch answers a _bulk request with status 200, and each of its items with a
// status of its own. It honors no Idempotency-Key: the items decide what a repetition does.
func ExamplePolicy_classifyBulk() {
	server := serverSending(
		`{"items": [{"index": {"_id": "1", "status": 201}}, {"index": {"_id": "2", "status": 429}}]}`,
		`{"items": [{"index": {"_id": "1", "status": 200}}, {"index": {"_id": "2", "status": 201}}]}`,
	)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		BufferBytes: 4 << 20,
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			var bulk struct {
				Items []map[string]struct{ Status int }
			}
			if json.Unmarshal(a.Body, &bulk) == nil {
				for _, item := range bulk.Items {
					for _, result := range item {
						if result.Status == http.StatusTooManyRequests {
							return retryhttp.Retryable
						}
					}
				}
			}
			return retryhttp.Classify(a)
		},
	})}

	// All items are index operations with an _id. Whatever succeeded is written once more,
	// and is the same afterwards, if nobody else writes these documents. An item without an
	// _id would make a second document. So this is for requests like this one, and not for
	// the client.
	items := `{"index": {"_index": "people", "_id": "1"}}
{"name": "Ada"}
{"index": {"_index": "people", "_id": "2"}}
{"name": "Grace"}
`
	ctx := retryhttp.WithPolicy(context.Background(), func(p *retryhttp.Policy) {
		p.Idempotent = func(*http.Request) bool { return true }
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/_bulk", strings.NewReader(items))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	showBody(client.Do(req))
	// Output: attempt 2: {"items": [{"index": {"_id": "1", "status": 200}}, {"index": {"_id": "2", "status": 201}}]}
}

// A language model answers at once with a 200, and may then find that it is overloaded. Its first event
// says so. The caller sees only the stream that begins well.
func ExamplePolicy_firstEvent() {
	server := serverStreaming(
		"event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\"}}\n\n",
		"event: message_start\ndata: {\"type\": \"message_start\"}\n\n",
	)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		PeekBytes:  4096,
		Backoff:    retryhttp.Constant(10 * time.Millisecond),
		Idempotent: func(*http.Request) bool { return true }, // a completion changes nothing
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if bytes.Contains(a.Peek, []byte(`"overloaded_error"`)) {
				return retryhttp.Retryable
			}
			return retryhttp.Classify(a)
		},
	})}
	question := strings.NewReader(`{"stream": true}`)
	resp, err := client.Post(server.URL+"/v1/messages", "application/json", question)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println("attempt", retryhttp.OutcomeOf(resp).Attempts)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			fmt.Println(event)
		}
	}
	// Output:
	// attempt 2
	// message_start
}

// A server sends a ping while a model waits for its turn, and an error if the turn does not come. The ping
// decides nothing, so the event after it still belongs to the attempt. The caller reads the pings too.
func ExampleClass_undecided() {
	const ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	server := serverStreaming(
		ping+"event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\"}}\n\n",
		ping+"event: message_start\ndata: {\"type\": \"message_start\"}\n\n",
	)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		PeekBytes: 4096,
		Backoff:   retryhttp.Constant(10 * time.Millisecond),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			events := bytes.Count(a.Peek, []byte("event: "))
			switch {
			case bytes.Contains(a.Peek, []byte(`"overloaded_error"`)):
				return retryhttp.Retryable
			case events > 0 && events == bytes.Count(a.Peek, []byte("event: ping")):
				return retryhttp.Undecided
			}
			return retryhttp.Classify(a)
		},
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println("attempt", retryhttp.OutcomeOf(resp).Attempts)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			fmt.Println(event)
		}
	}
	// Output:
	// attempt 2
	// ping
	// message_start
}

// If the last attempt's stream begins with an error, too, the caller gets that stream, with a 200 and no
// error. The Stop says so. To ask again here would be a loop around a loop.
func ExampleOutcomeOf_stream() {
	overloaded := "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\"}}\n\n"
	server := serverStreaming(overloaded, overloaded)
	defer server.Close()

	policy := languageModel
	policy.MaxAttempts, policy.Backoff = 2, retryhttp.Constant(10*time.Millisecond)
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	question := strings.NewReader(`{"stream": true}`)
	resp, err := client.Post(server.URL+"/v1/messages", "application/json", question)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if stop := retryhttp.OutcomeOf(resp).Stop; stop != retryhttp.StopFinal {
		fmt.Printf("%s, and no more attempts: %s\n", resp.Status, stop)
	}
	// Output: 200 OK, and no more attempts: attempts
}

// The caller reads one body, whichever responses it comes from. The server must serve
// ranges, and send a strong ETag or an old Last-Modified.
func ExamplePolicy_resume() {
	server := serverBreakingOff("to be, or not to be", len("to be,"), hangUp)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Resume:  true,
		Backoff: retryhttp.Constant(10 * time.Millisecond),
		OnRetry: func(a retryhttp.Attempt) { fmt.Printf("%v at byte %d, resuming\n", a.Err, a.Offset) },
	})}
	showBody(client.Get(server.URL))
	// Output:
	// unexpected EOF at byte 6, resuming
	// attempt 1: to be, or not to be
}

// A server that goes silent in the middle of a body would hold its reader for as long as
// the connection stands. With Resume, the download would go on.
func ExamplePolicy_stallTimeout() {
	server := serverBreakingOff("to be, or not to be", len("to be,"), hang)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		StallTimeout: time.Second, // many seconds for a real server
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%s ... %v\n", body, err)
	fmt.Println("timeout:", errors.Is(err, context.DeadlineExceeded))
	// Output:
	// to be, ... the response body stalled for 1s
	// timeout: true
}

// showBody prints the body of a response, and the attempt that brought its header.
func showBody(resp *http.Response, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("attempt %d: %s\n", retryhttp.OutcomeOf(resp).Attempts, body)
}

// serverSending starts a server that answers with status 200 and these bodies in turn.
func serverSending(bodies ...string) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, bodies[requests.Add(1)-1])
	}))
}

// serverStreaming starts a server that answers with these streams of events in turn.
func serverStreaming(streams ...string) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streams[requests.Add(1)-1])
	}))
}

// serverBreakingOff starts a server of content. Its first response ends with a number of
// bytes, and then.
func serverBreakingOff(content string, after int, then http.HandlerFunc) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if requests.Add(1) > 1 {
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		io.WriteString(w, content[:after])
		http.NewResponseController(w).Flush()
		then(w, r)
	}))
}
