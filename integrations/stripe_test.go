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

	"github.com/retryhttp/retryhttp"
)

// stripe-go sends an Idempotency-Key with every POST and DELETE, and makes it
// once per call: so they are retried as they are, and Stripe acts on them once.
// Its own retries must be off, with a pointer to 0, since nil means 2.
func Example_stripe() {
	server := failing(stripePayment, http.StatusServiceUnavailable)
	defer server.Close()

	transport := retryhttp.New(nil, retryhttp.Policy{Classify: classifyStripe})
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: transport, Timeout: 80 * time.Second},
		MaxNetworkRetries: stripe.Int64(0),
		URL:               &server.URL, // leave it out for Stripe itself
	})
	client := stripe.NewClient("sk_test_17", stripe.WithBackends(backends))
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

// classifyStripe heeds what Stripe itself says about trying again: that a 409 will
// pass, for one, where the attempt before is still being worked on.
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

// createPayment calls the server at url through the policy, while stripe-go makes
// up to own retries.
func createPayment(t *testing.T, url string, policy retryhttp.Policy, own int64) error {
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: retryhttp.New(nil, policy)},
		MaxNetworkRetries: &own,
		URL:               &url,
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	client := stripe.NewClient("sk_test_17", stripe.WithBackends(backends))
	_, err := client.V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(1700)})
	return err
}

// The server makes a payment and loses the answer: the key tells it that the
// second attempt is no second payment.
func TestStripePaymentIsRepeatedUnderOneKey(t *testing.T) {
	var server *server
	server = failing(func(w http.ResponseWriter, r *http.Request) {
		if len(server.got()) == 1 {
			panic(http.ErrAbortHandler)
		}
		stripePayment(w, r)
	})
	defer server.Close()

	require.NoError(t, createPayment(t, server.URL, threeAttempts(), 0))
	require.NotEmpty(t, requireRepeats(t, server, 2).Header.Get("Idempotency-Key"))
}

func TestStripeDecidesAboutA409(t *testing.T) {
	for says, attempts := range map[string]int{"true": 3, "false": 1, "": 1} {
		server := failing(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Stripe-Should-Retry", says)
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"error": {"type": "idempotency_error"}}`)
		})
		defer server.Close()
		policy := threeAttempts()
		policy.Classify = classifyStripe

		var failure *stripe.IdempotencyError
		require.ErrorAs(t, createPayment(t, server.URL, policy, 0), &failure)
		requireRepeats(t, server, attempts)
	}
}

// With its own retries left on, each of them is all attempts of the policy. Its own
// are for errors without a response, and for responses that do not read as an error
// of Stripe's, such as those of a proxy between.
func TestStripeOwnRetriesMultiply(t *testing.T) {
	for own, attempts := range []int{3, 6} {
		server := failing(stripePayment, 503, 503, 503, 503, 503, 503, 503)
		defer server.Close()

		require.Error(t, createPayment(t, server.URL, threeAttempts(), int64(own)))
		requireRepeats(t, server, attempts)
	}
}

func TestStripeKeepsTheErrorOfTheLastAttempt(t *testing.T) {
	server := failing(stripePayment)
	server.Close()

	var failure *retryhttp.Error
	require.ErrorAs(t, createPayment(t, server.URL, threeAttempts(), 0), &failure)
	require.Equal(t, 3, failure.Attempts)
}
