package integrations_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// server is a local server that fails first, and keeps the requests that it got.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	requests []request
}

type request struct {
	Method string
	URI    string // with the query
	Header http.Header
	Body   []byte
}

// failing starts a server that answers the first requests with statuses, one each, and all others
// with answer. answer gets the request with its body.
func failing(answer http.HandlerFunc, statuses ...int) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if n := s.record(r, body); n <= len(statuses) {
			w.WriteHeader(statuses[n-1])
			return
		}
		answer(w, r)
	}))
	return s
}

// record keeps a request, and returns how many requests there have been.
func (s *server) record(r *http.Request, body []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request{r.Method, r.URL.RequestURI(), r.Header.Clone(), body})
	return len(s.requests)
}

func (s *server) got() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}
