package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/retryhttp/retryhttp"
)

func Example_kubernetes() {
	server := failing(namespace, 503)
	defer server.Close()

	client, err := newKubernetes(&rest.Config{Host: server.URL}, retryhttp.Policy{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ns, err := client.Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ns.Name)
	// Output: default
}

// newKubernetes wraps the transport of a copy of a rest.Config, which kubernetes.NewForConfig
// takes as well. In the original, the wrapper would also go around exec, attach and port-forward.
// client-go itself repeats requests of any method, up to ten times, if the answer is 429 or 5xx
// with a Retry-After. No setting of a typed client ends that. So the wrapper removes the header
// from the responses that it returns.
func newKubernetes(config *rest.Config, policy retryhttp.Policy) (*corev1.CoreV1Client, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return withoutRetryAfter{retryhttp.New(base, policy)}
	})
	return corev1.NewForConfig(config)
}

// withoutRetryAfter hides a Retry-After from client-go, which would repeat the request. It leaves
// the header if only client-go may repeat the request.
type withoutRetryAfter struct{ base http.RoundTripper }

func (t withoutRetryAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	shed := resp.StatusCode == http.StatusTooManyRequests // before it was begun, so that a create may be sent again
	if !shed || retryhttp.OutcomeOf(resp).Stop != retryhttp.StopNotIdempotent {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

func namespace(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}`)
}

// sendEvent sends the event of a namespace that was added, as a watch does.
func sendEvent(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"type": "ADDED", "object": `)
	namespace(w, r)
	io.WriteString(w, `}`)
}

func busy(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0") // client-go has another go at once
		w.WriteHeader(status)
	}
}

// plainKubernetes leaves the header where it is.
func plainKubernetes(config *rest.Config, policy retryhttp.Policy) (*corev1.CoreV1Client, error) {
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return retryhttp.New(base, policy) })
	return corev1.NewForConfig(config)
}

// kubernetesUnlimited lets the tests count attempts, without waits.
var kubernetesUnlimited = retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

func TestKubernetesRetriesMultiplyUnlessRetryAfterIsTakenOff(t *testing.T) {
	create := func(c *corev1.CoreV1Client) error {
		_, err := c.Namespaces().Create(t.Context(), &apiv1.Namespace{}, metav1.CreateOptions{})
		return err
	}
	get := func(c *corev1.CoreV1Client) error {
		_, err := c.Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	byHand := func(c *corev1.CoreV1Client) error {
		return c.RESTClient().Get().Resource("namespaces").MaxRetries(0).Do(t.Context()).Error()
	}
	budgeted := kubernetesUnlimited
	budgeted.Budget = nil // the default one
	for name, tt := range map[string]struct {
		client   func(*rest.Config, retryhttp.Policy) (*corev1.CoreV1Client, error)
		policy   retryhttp.Policy
		call     func(*corev1.CoreV1Client) error
		status   int
		attempts int
	}{
		"a GET, eleven times four":     {plainKubernetes, kubernetesUnlimited, get, 503, 44},
		"a GET, eleven and the budget": {plainKubernetes, budgeted, get, 503, 17}, // with one probe
		"a POST, eleven times":         {plainKubernetes, kubernetesUnlimited, create, 503, 11},
		"GET":                          {newKubernetes, kubernetesUnlimited, get, 503, 4},
		"GET that is shed":             {newKubernetes, kubernetesUnlimited, get, 429, 4},
		"POST":                         {newKubernetes, kubernetesUnlimited, create, 503, 1},
		"POST that is shed":            {newKubernetes, kubernetesUnlimited, create, 429, 11},
		"GET with MaxRetries(0)":       {plainKubernetes, kubernetesUnlimited, byHand, 503, 4},
	} {
		t.Run(name, func(t *testing.T) {
			server := failing(busy(tt.status))
			defer server.Close()
			client, err := tt.client(&rest.Config{Host: server.URL, QPS: -1}, tt.policy)
			require.NoError(t, err)
			require.Error(t, tt.call(client))
			assert.Len(t, server.got(), tt.attempts)
		})
	}
}

func TestKubernetesConfigIsLeftAsItIs(t *testing.T) {
	config := &rest.Config{Host: "http://host.example"}
	_, err := newKubernetes(config, retryhttp.Policy{})
	require.NoError(t, err)
	require.Nil(t, config.WrapTransport)
}

func TestKubernetesWatchOutlivesAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := failingInMemory(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			http.NewResponseController(w).Flush()
			time.Sleep(time.Hour) // nothing happens
			sendEvent(w, r)
		}, 503)
		defer stop()
		policy := kubernetesUnlimited
		policy.AttemptTimeout = time.Second
		client, err := newKubernetes(&rest.Config{Host: "http://host.example", Transport: base}, policy)
		require.NoError(t, err)
		watch, err := client.Namespaces().Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		defer watch.Stop()
		event := <-watch.ResultChan()
		require.IsType(t, &apiv1.Namespace{}, event.Object)
		assert.Equal(t, "default", event.Object.(*apiv1.Namespace).Name)
	})
}

// Authentication lies above a wrapper, and below a Transport around the result of
// rest.TransportFor.
func TestKubernetesAuthenticatesAboveWrapAndBelowTransportFor(t *testing.T) {
	server := failing(namespace, 503, 200, 503)
	defer server.Close()
	var seen []string
	policy := kubernetesUnlimited
	policy.OnRetry = func(a retryhttp.Attempt) { seen = append(seen, a.Request.Header.Get("Authorization")) }
	get := func(c *corev1.CoreV1Client) {
		err := c.RESTClient().Get().Resource("namespaces").Do(t.Context()).Error()
		require.NoError(t, err)
	}

	config := rest.Config{Host: server.URL, BearerToken: "secret"}
	base, err := rest.TransportFor(&config)
	require.NoError(t, err)
	above, err := corev1.NewForConfigAndClient(&config, &http.Client{Transport: retryhttp.New(base, policy)})
	require.NoError(t, err)
	below, err := newKubernetes(&config, policy)
	require.NoError(t, err)
	get(below)
	get(above)

	assert.Equal(t, []string{"Bearer secret", ""}, seen)
	for _, r := range server.got() {
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
	}
}

func TestKubernetesErrorHoldsTheOutcome(t *testing.T) {
	server := failing(namespace)
	server.Close()
	client, err := newKubernetes(&rest.Config{Host: server.URL}, kubernetesUnlimited)
	require.NoError(t, err)
	_, err = client.Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	failure, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 4, failure.Attempts)
}
