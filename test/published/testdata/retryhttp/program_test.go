package program

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/retryhttp/retryhttp"
)

func TestARequestIsRetried(t *testing.T) {
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	resp, err := Client(nil).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if o := retryhttp.OutcomeOf(resp); resp.StatusCode != http.StatusOK || o.Attempts != 3 {
		t.Errorf("%s after %d attempts", resp.Status, o.Attempts)
	}
}
