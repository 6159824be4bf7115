package retryhttp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp"
)

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
