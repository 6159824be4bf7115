package retryhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// twoPools sends attempts through two pools of connections in turn.
type twoPools struct{ odd, even http.RoundTripper }

func (p twoPools) RoundTrip(req *http.Request) (*http.Response, error) {
	if retryhttp.AttemptNumber(req.Context())%2 == 0 {
		return p.even.RoundTrip(req)
	}
	return p.odd.RoundTrip(req)
}

// Over HTTP/2 a dead connection would be the hedge's as well.
func ExampleHedge_secondPool() {
	var dead atomic.Pointer[string] // the first connection, once it has served a request
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case dead.CompareAndSwap(nil, &r.RemoteAddr):
		case r.RemoteAddr == *dead.Load():
			<-r.Context().Done()
		default:
			fmt.Println("another connection")
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	first := server.Client().Transport.(*http.Transport)
	base := twoPools{first, first.Clone()}
	if warm, err := server.Client().Get(server.URL); err == nil {
		warm.Body.Close()
	}
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
		Hedge: &retryhttp.Hedge{After: 20 * time.Millisecond},
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, resp.Proto)
	fmt.Println("the hedge won:", retryhttp.OutcomeOf(resp).HedgeWon)
	// Output:
	// another connection
	// 200 OK HTTP/2.0
	// the hedge won: true
}

// A gauge of when requests are hedged shows whether a Hedge knows enough.
func ExampleHedge_Delay() {
	server := serverAnswering(200)
	defer server.Close()

	hedge := &retryhttp.Hedge{Share: 0.5}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Hedge: hedge})}
	for range 10 { // 5/Share
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		_, known := hedge.Delay(resp.Request)
		fmt.Print(known, " ")
	}
	// Output: false false false false false false false false false true
}
