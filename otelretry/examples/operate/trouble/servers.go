package trouble

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// servers are the hosts that the program calls. Each has a trouble of its own.
type servers struct {
	interval time.Duration // between the requests to most hosts
	trouble  atomic.Bool
	changed  atomic.Bool // the file has changed
	n        atomic.Int64
	balanced atomic.Int64                         // requests of the server with three backends
	served   struct{ moment, count atomic.Int64 } // requests of the overloaded server

	http  *httptest.Server
	redis *miniredis.Miniredis

	connected atomic.Int64 // connections to the server with three replicas
}

// The hosts, and what their trouble is.
const (
	shop     = "shop.example"     // is down
	stock    = "stock.example"    // is down, and its client has no budget
	basket   = "basket.example"   // has three backends, of which one is dead
	orders   = "orders.example"   // has three replicas behind a balancer of connections, of which one is broken
	accounts = "accounts.example" // is deployed: it is away for a second in ten
	reports  = "reports.example"  // is overloaded: it rejects what exceeds half of its requests
	payments = "payments.example" // does what it is asked, and breaks off its response
	limited  = "limited.example"  // limits its clients
	search   = "search.example"   // is slow now and then, with and without trouble
	files    = "files.example"    // breaks downloads off, and changes a file meanwhile
	fleet    = "fleet.example"    // is well, but the Redis of its budget is away
)

func startServers(interval time.Duration) (*servers, error) {
	s := &servers{interval: interval}
	var err error
	if s.redis, err = miniredis.Run(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(shop+"/", s.down)
	mux.HandleFunc(stock+"/", s.down)
	mux.HandleFunc(basket+"/", s.third)
	mux.HandleFunc(orders+"/", s.replica)
	mux.HandleFunc(accounts+"/", s.deploy)
	mux.HandleFunc(reports+"/", s.overload)
	mux.HandleFunc(payments+"/", s.breakOff)
	mux.HandleFunc(limited+"/", s.limit)
	mux.HandleFunc(search+"/", s.slow)
	mux.HandleFunc(files+"/", s.file)
	mux.HandleFunc(fleet+"/", func(http.ResponseWriter, *http.Request) {})
	s.http = httptest.NewUnstartedServer(mux)
	s.http.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, sync.OnceValue(func() int64 { return s.connected.Add(1) }))
	}
	s.http.Start()
	return s, nil
}

func (s *servers) close() {
	s.http.Close()
	s.redis.Close()
}

// begin and end are called when trouble begins and ends.
func (s *servers) begin() {
	s.trouble.Store(true)
	s.redis.SetError("LOADING Redis is loading the dataset in memory")
}

func (s *servers) end() {
	s.trouble.Store(false)
	s.redis.SetError("")
}

// dial connects to the server, whatever the name is.
func (s *servers) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, s.http.Listener.Addr().String())
}

func (s *servers) down(w http.ResponseWriter, _ *http.Request) {
	if s.trouble.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *servers) third(w http.ResponseWriter, _ *http.Request) {
	if s.trouble.Load() && s.balanced.Add(1)%3 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// connKey is the key of a function that returns which connection to the replicas a request came on.
type connKey struct{}

// replica answers for the replica to which a connection leads. The broken one fails at once. The
// others take their time, so that the client needs several connections.
func (s *servers) replica(w http.ResponseWriter, r *http.Request) {
	number := r.Context().Value(connKey{}).(func() int64)
	if number()%3 == 0 && s.trouble.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	select {
	case <-time.After(5 * s.interval):
	case <-r.Context().Done():
	}
}

func (s *servers) deploy(http.ResponseWriter, *http.Request) {
	if s.trouble.Load() && time.Now().Unix()%10 == 0 {
		panic(http.ErrAbortHandler)
	}
}

func (s *servers) overload(w http.ResponseWriter, _ *http.Request) {
	now := time.Now().UnixNano() / int64(10*s.interval)
	if s.served.moment.Swap(now) != now {
		s.served.count.Store(0)
	}
	if s.trouble.Load() && s.served.count.Add(1) > 5 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *servers) breakOff(http.ResponseWriter, *http.Request) {
	if s.trouble.Load() && s.n.Add(1)%2 == 0 {
		panic(http.ErrAbortHandler)
	}
}

func (s *servers) limit(w http.ResponseWriter, _ *http.Request) {
	if s.trouble.Load() {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func (s *servers) slow(_ http.ResponseWriter, r *http.Request) {
	if s.n.Add(1)%25 != 0 {
		return
	}
	select {
	case <-time.After(300 * time.Millisecond):
	case <-r.Context().Done():
	}
}

// file breaks off each second download. In trouble, the file has then changed now and then.
func (s *servers) file(w http.ResponseWriter, r *http.Request) {
	tag := `"v1"`
	if s.changed.Load() {
		tag = `"v2"`
	}
	w.Header().Set("ETag", tag)
	content := bytes.Repeat([]byte("x"), 64<<10)
	if !s.trouble.Load() || r.Header.Get("Range") != "" {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		return
	}
	if s.n.Add(1)%3 == 0 {
		s.changed.Store(!s.changed.Load())
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = strings.NewReader(string(content[:1<<10])).WriteTo(w)
	_ = http.NewResponseController(w).Flush()
	if s.n.Add(1)%3 == 0 {
		s.changed.Store(!s.changed.Load()) // before the download is continued
	}
	panic(http.ErrAbortHandler)
}
