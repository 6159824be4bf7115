package program

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

func TestRetriesAreSharedThroughRedis(t *testing.T) {
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	engine := miniredis.RunT(t)
	bucket := Bucket(engine.Addr())
	resp, err := Client(bucket).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || attempts != 2 {
		t.Errorf("%s after %d attempts", resp.Status, attempts)
	}
	if err := bucket.Close(); err != nil {
		t.Error(err)
	}
	if len(engine.Keys()) != 1 {
		t.Errorf("the keys %q", engine.Keys())
	}
}
