package retryhttp_test

import (
	"fmt"
	"net/http"

	"github.com/retryhttp/retryhttp"
)

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
