// Observe shows what a Transport reports: records for a log, and calls that feed metrics.
package main

import (
	"expvar"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	var hits atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("GET /flaky", func(w http.ResponseWriter, r *http.Request) {
		if hits.Add(1) == 1 {
			http.Error(w, "once more, please", http.StatusBadGateway)
		}
	})
	mux.HandleFunc("/down", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "down", http.StatusServiceUnavailable)
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	// Any metrics work if they are safe for concurrent use. A Stop makes a good label, because
	// there are only nine.
	retries, outcomes := expvar.NewMap("retries"), expvar.NewMap("outcomes")
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 3,
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
		Logger:      slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: steady})),
		OnRetry: func(a retryhttp.Attempt) {
			if a.Err != nil {
				retries.Add("error", 1)
				return
			}
			retries.Add(fmt.Sprint(a.Response.StatusCode), 1)
		},
		OnDone: func(_ retryhttp.Attempt, o retryhttp.Outcome) { outcomes.Add(string(o.Stop), 1) },
	})}

	for _, r := range []struct{ method, path string }{
		{http.MethodGet, "/flaky"},
		{http.MethodGet, "/down?token=secret"}, // the query is not logged
		{http.MethodPost, "/down"},
	} {
		req, err := http.NewRequest(r.method, server.URL+r.path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	fmt.Println("retries by reason:", retries)
	fmt.Println("requests by stop:", outcomes)
	return nil
}

// steady removes the attributes that differ from run to run: times, and the server's port.
func steady(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "elapsed", "wait", "waited", "held":
		return slog.Attr{}
	case "url":
		if u, err := url.Parse(a.Value.String()); err == nil {
			u.Host = "server"
			return slog.String(a.Key, u.String())
		}
	}
	return a
}
