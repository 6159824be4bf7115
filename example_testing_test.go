package retryhttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
)

// statuses answers each attempt with the next status, and repeats the last one.
type statuses []int

func (s *statuses) RoundTrip(req *http.Request) (*http.Response, error) {
	status := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

func TestReportIsFetchedThoughTheServerIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: retryhttp.New(&statuses{503, 429, 200}, retryhttp.Policy{})}
		start := time.Now()
		resp, err := client.Get("http://reports.example/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if o := retryhttp.OutcomeOf(resp); o.Attempts != 3 || o.Stop != retryhttp.StopFinal {
			t.Errorf("%d attempts, stop %q", o.Attempts, o.Stop)
		}
		if d := time.Since(start); d > 750*time.Millisecond {
			t.Errorf("it took %v, and the backoff is 250 ms and 500 ms at most", d)
		}
	})
}
