package retryhttp_test

import (
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

var smallAnswers = retryhttp.Policy{
	BufferBytes:    1 << 20,
	AttemptTimeout: 10 * time.Second, // it includes the body
}

// A body that breaks off is a failed attempt, like a connection that breaks before the
// header. The caller sees neither.
func ExamplePolicy_bufferBytes() {
	server := serverBreakingOff(`{"name": "Ada", "born": 1815}`)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, smallAnswers)}
	showBody(client.Get(server.URL))
	// Output: attempt 2: {"name": "Ada", "born": 1815}
}

// S3 begins the answer to a copy before it has copied. So an error may come with status 200.
func ExamplePolicy_classifyS3() {
	server := serverSending("application/xml",
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
	server := serverSending("application/json",
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

var languageModel = retryhttp.Policy{
	MaxAttempts:    8,
	MaxElapsed:     2 * time.Minute,
	PeekBytes:      4096,             // the first event is part of the attempt
	AttemptTimeout: 30 * time.Second, // to the first event
	StallTimeout:   30 * time.Second, // between two later events
	// Answers are long and few, so successes release retries late, and earn few of them.
	Gate:   &retryhttp.Gate{Hold: 30 * time.Second},
	Budget: &retryhttp.TokenBucket{Burst: 20},
	// A completion changes nothing at the server.
	Idempotent: func(*http.Request) bool { return true },
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		if bytes.Contains(a.Peek, []byte(`"overloaded_error"`)) {
			return retryhttp.Retryable
		}
		return retryhttp.Classify(a)
	},
}

const overloaded = "data: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\"}}\n\n"

// A language model answers at once with a 200, and may then find that it is overloaded. Its first event
// says so. The caller sees only the stream that begins well.
func ExamplePolicy_languageModel() {
	server := serverSending("text/event-stream", overloaded, "data: {\"text\": \"to be\"}\n\n")
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, languageModel)}
	showBody(client.Post(server.URL, "application/json", strings.NewReader(`{"stream": true}`)))
	// Output: attempt 2: data: {"text": "to be"}
}

// A server sends a ping while a model waits for its turn, and an error if the turn does not come. The ping
// decides nothing, so the event after it still belongs to the attempt. The caller reads the pings too.
func ExampleClass_undecided() {
	const ping = "data: {\"type\": \"ping\"}\n\n"
	server := serverSending("text/event-stream", ping+overloaded, ping+"data: {\"text\": \"to be\"}\n\n")
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		PeekBytes: 4096,
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			events := bytes.Count(a.Peek, []byte("data: "))
			switch {
			case bytes.Contains(a.Peek, []byte(`"overloaded_error"`)):
				return retryhttp.Retryable
			case events > 0 && events == bytes.Count(a.Peek, []byte(`"ping"`)):
				return retryhttp.Undecided
			}
			return retryhttp.Classify(a)
		},
	})}
	showBody(client.Get(server.URL))
	// Output:
	// attempt 2: data: {"type": "ping"}
	//
	// data: {"text": "to be"}
}

// If the last attempt's stream begins with an error, too, the caller gets that stream, with a 200 and no
// error. The Stop says so. To ask again here would be a loop around a loop.
func ExampleOutcomeOf_stream() {
	server := serverSending("text/event-stream", overloaded)
	defer server.Close()

	policy := languageModel
	policy.MaxAttempts = 2
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"stream": true}`))
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

var largeDownload = retryhttp.Policy{
	Resume:         true,
	StallTimeout:   30 * time.Second,
	MaxAttempts:    8, // since an attempt that brought a mebibyte
	AttemptTimeout: 30 * time.Second,
	Backoff:        retryhttp.FullJitter(time.Second, 30*time.Second),
	MaxRetryAfter:  10 * time.Minute,
	Budget:         &retryhttp.TokenBucket{Burst: 50}, // for resumptions that bring less
}

// The caller reads one body, whichever responses it comes from. The server must serve
// ranges, and send a strong ETag or an old Last-Modified.
func ExamplePolicy_resume() {
	server := serverBreakingOff("to be, or not to be")
	defer server.Close()

	policy := largeDownload
	policy.OnRetry = func(a retryhttp.Attempt) { fmt.Printf("%v at byte %d, resuming\n", a.Err, a.Offset) }
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	showBody(client.Get(server.URL))
	// Output:
	// unexpected EOF at byte 9, resuming
	// attempt 1: to be, or not to be
}

// A server that goes silent in the middle of a body would hold its reader for as long as
// the connection stands. With Resume, the download would go on.
func ExamplePolicy_stallTimeout() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "to be,")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
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

// serverSending starts a server that answers with status 200 and these bodies in turn, and then with
// the last one forever.
func serverSending(contentType string, bodies ...string) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		n := int(requests.Add(1))
		io.WriteString(w, bodies[min(n, len(bodies))-1])
	}))
}

// serverBreakingOff starts a server of content, whose first response breaks off in the middle.
func serverBreakingOff(content string) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if requests.Add(1) > 1 {
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		io.WriteString(w, content[:len(content)/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
}
