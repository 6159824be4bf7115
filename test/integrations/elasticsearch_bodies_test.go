package integrations_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v9"
	"github.com/elastic/go-elasticsearch/v9/esapi"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// seeRefusals makes p retry a 200 that holds a refusal: of one search of an _msearch, or of one
// item of a _bulk.
func seeRefusals(p *retryhttp.Policy) {
	p.BufferBytes = 1 << 20
	p.Classify = classifyElastic
}

func classifyElastic(a retryhttp.Attempt) retryhttp.Class {
	type result struct{ Status int }
	var answer struct {
		Responses []result            // of an _msearch
		Items     []map[string]result // of a _bulk, by action
	}
	_ = json.Unmarshal(a.Body, &answer) // it ignores everything else
	for _, item := range answer.Items {
		for _, r := range item {
			answer.Responses = append(answer.Responses, r)
		}
	}
	for _, r := range answer.Responses {
		if r.Status == http.StatusTooManyRequests {
			return retryhttp.Retryable
		}
	}
	return retryhttp.Classify(a)
}

func elasticAnswers(bodies ...string) *server {
	var n atomic.Int32
	return failing(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Elastic-Product", "Elasticsearch")
		_, _ = io.WriteString(w, bodies[min(int(n.Add(1)), len(bodies))-1])
	})
}

const (
	searchRefused = `{"responses": [{"status": 200}, {"status": 429}]}`
	searched      = `{"responses": [{"status": 200}, {"status": 404}]}`
	itemRefused   = `{"errors": true, "items": [{"index": {"status": 200}}, {"index": {"status": 429}}]}`
	itemInvalid   = `{"errors": true, "items": [{"index": {"status": 200}}, {"index": {"status": 400}}]}`
)

// A search only reads. A _bulk is sent again as a whole, with the items that had succeeded. Its
// author must allow that.
func TestElasticsearchRefusalsWithin200AreRetried(t *testing.T) {
	vouched := func(p *retryhttp.Policy) {
		seeRefusals(p)
		p.Idempotent = func(*http.Request) bool { return true }
	}
	search := func(body io.Reader) esapi.Request { return esapi.MsearchRequest{Body: body} }
	bulk := func(body io.Reader) esapi.Request { return esapi.BulkRequest{Body: body} }
	unseen := func(*retryhttp.Policy) {}
	for name, tt := range map[string]struct {
		edit     func(*retryhttp.Policy)
		request  func(io.Reader) esapi.Request
		answers  []string
		attempts int
	}{
		"a search":                               {seeRefusals, search, []string{searchRefused, searchRefused, searched}, 3},
		"a search, for as long as attempts last": {seeRefusals, search, []string{searchRefused}, 3},
		"a search that is not looked into":       {unseen, search, []string{searchRefused, searched}, 1},
		"a bulk":                                 {seeRefusals, bulk, []string{itemRefused, `{}`}, 1},
		"a bulk that is vouched for":             {vouched, bulk, []string{itemRefused, `{}`}, 2},
		"an invalid item":                        {vouched, bulk, []string{itemInvalid, `{}`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := elasticAnswers(tt.answers...)
			defer server.Close()
			ctx := retryhttp.WithPolicy(t.Context(), tt.edit)

			resp, err := tt.request(strings.NewReader("{}\n{}\n")).Do(ctx, elasticClient(t, server.URL))
			require.NoError(t, err)
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, tt.answers[min(tt.attempts, len(tt.answers))-1], string(got))
			requireRepeats(t, server, tt.attempts)
		})
	}
}

// The client has no http.Client, and so no Timeout: AttemptTimeout ends at the header,
// unless the body is a part of the attempt.
func TestElasticsearchBodyIsWithinAttemptTimeoutIfItIsBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int32
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Elastic-Product", "Elasticsearch")
			if attempts.Add(1) == 1 {
				_, _ = io.WriteString(w, `{`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, searched)
		}))
		defer stop()
		policy := threeAttempts(elasticsearchPolicy)
		policy.AttemptTimeout, policy.BufferBytes = 10*time.Second, 1<<20
		client, err := elasticsearch.New(
			elasticsearch.WithAddresses("http://host.example"),
			elasticsearch.WithTransportOptions(
				elastictransport.WithTransport(retryhttp.New(base, policy)),
				elastictransport.WithDisableRetry(),
			),
		)
		require.NoError(t, err)
		start := time.Now()
		resp, err := client.Search(client.Search.WithContext(t.Context()))
		require.NoError(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, searched, string(got))
		require.Equal(t, policy.AttemptTimeout, time.Since(start))
	})
}
