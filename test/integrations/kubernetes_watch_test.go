package integrations_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/retryhttp/retryhttp"
)

// A watch of JSON looks like any other JSON. With BufferBytes the Transport holds it until it
// ends. StallTimeout ends a watch in which nothing happens for longer.
func TestKubernetesWatchWantsNoBufferAndALongStallTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		edit          func(*retryhttp.Policy)
		arrives, ends time.Duration
	}{
		"as it comes": {func(*retryhttp.Policy) {}, 0, time.Hour},
		"buffered":    {func(p *retryhttp.Policy) { p.BufferBytes = 1 << 20 }, time.Hour, time.Hour},
		"with an end": {func(p *retryhttp.Policy) { p.StallTimeout = 10 * time.Minute }, 0, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := failingInMemory(func(w http.ResponseWriter, r *http.Request) {
					sendEvent(w, r)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-time.After(time.Hour):
					case <-r.Context().Done():
					}
				})
				defer stop()
				policy := kubernetesUnlimited
				tt.edit(&policy)
				client, err := newKubernetes(&rest.Config{Host: "http://host.example", Transport: base}, policy)
				require.NoError(t, err)
				start := time.Now()
				watch, err := client.Namespaces().Watch(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				defer watch.Stop()
				require.NotNil(t, (<-watch.ResultChan()).Object)
				require.Equal(t, tt.arrives, time.Since(start))
				for range watch.ResultChan() { // an error, perhaps
				}
				require.Equal(t, tt.ends, time.Since(start))
			})
		})
	}
}
