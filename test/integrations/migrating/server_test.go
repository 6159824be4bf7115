package migrating_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// server is a local server that fails first, and counts requests.
type server struct {
	*httptest.Server
	requests atomic.Int64
}

// failing starts a server that answers the first requests with statuses, one
// each, and all others with 200 and a JSON text.
func failing(statuses ...int) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if n := int(s.requests.Add(1)); n <= len(statuses) {
			w.WriteHeader(statuses[n-1])
		}
		_, _ = io.WriteString(w, `{"text": "hello"}`)
	}))
	return s
}

func (s *server) show(resp *http.Response, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", s.requests.Load(), "requests")
}
