package zoo_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/klauspost/compress/gzhttp"

	"github.com/retryhttp/retryhttp"
)

// A RoundTripper that changes the request it is given goes above a Transport.
// Below it, a retry would carry the change that the previous attempt made. gzhttp
// before v1.20.1 set Accept-Encoding in place, found it on the retry, and returned the
// response encoded.
func Example_gzhttp() {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "hello")
		z.Close()
	}))
	defer server.Close()

	client := &http.Client{Transport: gzhttp.Transport(retryhttp.New(nil, retryhttp.Policy{}))}
	resp, err := client.Get(server.URL)
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
	fmt.Printf("%s, after %d requests\n", body, requests.Load())
	// Output: hello, after 2 requests
}
