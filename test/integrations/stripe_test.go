package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/customer"
	"github.com/stripe/stripe-go/v85/paymentintent"

	"github.com/retryhttp/retryhttp"
)

func Example_stripe() {
	server := failing(stripePayment, http.StatusServiceUnavailable)
	defer server.Close()

	client := stripe.NewClient("sk_test_17", stripe.WithBackends(newStripeBackends(server.URL, stripePolicy)))
	payment, err := client.V1PaymentIntents.Create(context.Background(), &stripe.PaymentIntentCreateParams{
		Amount:   stripe.Int64(1700),
		Currency: stripe.String("eur"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(payment.ID)
	// Output: pi_17
}

// newStripeBackends leaves retries to the Transport. stripe-go's own retries must be off, with a
// pointer to 0, since nil means 2. A stripe.Client sends an Idempotency-Key with every POST and
// DELETE, and makes it once per call. So these requests are retried as they are, and Stripe acts
// on them once.
func newStripeBackends(url string, policy retryhttp.Policy) *stripe.Backends {
	return stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: retryhttp.New(nil, policy), Timeout: 80 * time.Second}, // as in its own
		MaxNetworkRetries: stripe.Int64(0),
		URL:               &url, // leave it out for Stripe itself
	})
}

var stripePolicy = retryhttp.Policy{Classify: classifyStripe}

// classifyStripe heeds what Stripe itself says about a retry. For example, Stripe says that a 409
// will pass while it still works on the previous attempt.
func classifyStripe(a retryhttp.Attempt) retryhttp.Class {
	if a.Response != nil {
		switch a.Response.Header.Get("Stripe-Should-Retry") {
		case "true":
			return retryhttp.Retryable
		case "false":
			return retryhttp.Final
		}
	}
	return retryhttp.Classify(a)
}

func stripePayment(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, `{"id": "pi_17"}`)
}

func createPayment(t *testing.T, backends *stripe.Backends) error {
	client := stripe.NewClient("sk_test_17", stripe.WithBackends(backends))
	_, err := client.V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(1700)})
	return err
}

// The server makes a payment and loses the answer. The key shows the server that the second
// attempt is no second payment.
func TestStripePaymentIsRepeatedUnderOneKey(t *testing.T) {
	var server *server
	server = failing(func(w http.ResponseWriter, r *http.Request) {
		if len(server.got()) == 1 {
			panic(http.ErrAbortHandler)
		}
		stripePayment(w, r)
	})
	defer server.Close()

	require.NoError(t, createPayment(t, newStripeBackends(server.URL, threeAttempts(stripePolicy))))
	require.NotEmpty(t, requireRepeats(t, server, 2).Header.Get("Idempotency-Key"))
}

// Without params, the functions of stripe-go's packages send no key; the methods of a
// stripe.Client do.
func TestStripePackageFunctionsWithoutParamsHaveNoKey(t *testing.T) {
	server := failing(stripePayment)
	defer server.Close()
	backends := newStripeBackends(server.URL, stripePolicy)
	client := stripe.NewClient("sk_test_17", stripe.WithBackends(backends))
	defer stripe.SetBackend(stripe.APIBackend, stripe.GetBackend(stripe.APIBackend))
	stripe.SetBackend(stripe.APIBackend, backends.API)

	_, err := client.V1PaymentIntents.Capture(t.Context(), "pi_17", nil)
	require.NoError(t, err)
	_, err = client.V1Customers.Delete(t.Context(), "cus_17", nil)
	require.NoError(t, err)
	_, err = paymentintent.Capture("pi_17", nil)
	require.NoError(t, err)
	_, err = customer.Del("cus_17", nil)
	require.NoError(t, err)
	var keyed []bool
	for _, r := range server.got() {
		keyed = append(keyed, r.Header.Get("Idempotency-Key") != "")
	}
	require.Equal(t, []bool{true, true, false, false}, keyed)
}

func TestStripeSaysWhetherToTryAgain(t *testing.T) {
	for _, c := range []struct {
		status   int
		says     string
		attempts int
	}{
		{http.StatusConflict, "true", 3},
		{http.StatusConflict, "false", 1},
		{http.StatusConflict, "", 1},
		{http.StatusInternalServerError, "false", 1},
		{http.StatusInternalServerError, "", 3},
	} {
		server := failing(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Stripe-Should-Retry", c.says)
			w.WriteHeader(c.status)
			io.WriteString(w, `{"error": {"type": "idempotency_error"}}`)
		})
		defer server.Close()

		var failure *stripe.IdempotencyError
		require.ErrorAs(t, createPayment(t, newStripeBackends(server.URL, threeAttempts(stripePolicy))), &failure)
		requireRepeats(t, server, c.attempts)
	}
}

// If stripe-go's own retries stay on, each of them makes all attempts of the policy. Its own
// retries are for errors without a response, and for responses that do not read as an error of
// Stripe, such as the responses of a proxy between.
func TestStripeOwnRetriesMultiply(t *testing.T) {
	for own, attempts := range []int{3, 6} {
		server := failing(stripePayment, 503, 503, 503, 503, 503, 503, 503)
		defer server.Close()
		backends := newStripeBackends(server.URL, threeAttempts(stripePolicy))
		if own > 0 {
			backends.API.SetMaxNetworkRetries(int64(own))
		}

		require.Error(t, createPayment(t, backends))
		requireRepeats(t, server, attempts)
	}
}

func TestStripeKeepsTheErrorOfTheLastAttempt(t *testing.T) {
	server := failing(stripePayment)
	server.Close()

	var failure *retryhttp.Error
	require.ErrorAs(t, createPayment(t, newStripeBackends(server.URL, threeAttempts(stripePolicy))), &failure)
	require.Equal(t, 3, failure.Attempts)
}

func TestStripeCallHasADeadline(t *testing.T) {
	server := failing(stripePayment)
	defer server.Close()
	policy := threeAttempts(stripePolicy)
	var bounded bool
	policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { _, bounded = a.Request.Context().Deadline() }

	require.NoError(t, createPayment(t, newStripeBackends(server.URL, policy)))
	require.True(t, bounded)
}
