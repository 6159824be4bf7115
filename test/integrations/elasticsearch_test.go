package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v9"
	"github.com/elastic/go-elasticsearch/v9/esapi"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_elasticsearch() {
	server := failing(elastic, http.StatusServiceUnavailable)
	defer server.Close()

	client, err := newElasticsearch(server.URL, elasticsearchPolicy)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Search(
		client.Search.WithContext(context.Background()),
		client.Search.WithIndex("books"),
		client.Search.WithBody(strings.NewReader(`{"query": {"match_all": {}}}`)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status())
	// Output: 200 OK
}

// newElasticsearch gives go-elasticsearch a RoundTripper and, with WithDisableRetry,
// leaves retries to it. Its own retries go to another node each time; a Transport's
// retries go to the same node. Give several nodes one address, of a load balancer.
func newElasticsearch(url string, policy retryhttp.Policy) (*elasticsearch.Client, error) {
	return elasticsearch.New(
		elasticsearch.WithAddresses(url),
		elasticsearch.WithTransportOptions(
			elastictransport.WithTransport(retryhttp.New(nil, policy)),
			elastictransport.WithDisableRetry(),
		),
	)
}

// go-elasticsearch searches with POST, which onlyReads lets be repeated.
var elasticsearchPolicy = retryhttp.Policy{Idempotent: onlyReads}

// onlyReads reports whether a request may be repeated. It knows also the POSTs that search:
// /_search and /index/_search. It excludes /index/_update/_search, which is about a document of
// that name.
func onlyReads(req *http.Request) bool {
	path := strings.Split(req.URL.Path, "/")
	if len(path) <= 3 {
		switch path[len(path)-1] {
		case "_search", "_msearch", "_count":
			return true
		}
	}
	return retryhttp.Idempotent(req)
}

func elastic(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Elastic-Product", "Elasticsearch") // or the client refuses the answer
	io.WriteString(w, `{}`)
}

// elasticClient makes three attempts, and does not wait between them.
func elasticClient(t *testing.T, url string) *elasticsearch.Client {
	client, err := newElasticsearch(url, threeAttempts(elasticsearchPolicy))
	require.NoError(t, err)
	return client
}

func TestElasticsearchRepeatsWhatReads(t *testing.T) {
	body := func() io.Reader { return strings.NewReader("{}\n{}\n") }
	books := []string{"books"}
	for _, c := range []struct {
		request  esapi.Request
		attempts int
	}{
		{esapi.SearchRequest{Body: body()}, 3},
		{esapi.SearchRequest{Index: books, Body: body()}, 3},
		{esapi.MsearchRequest{Index: books, Body: body()}, 3},
		{esapi.CountRequest{Index: books, Body: body()}, 3},
		{esapi.IndexRequest{Index: "books", DocumentID: "17", Body: body()}, 3}, // a PUT
		{esapi.IndexRequest{Index: "books", Body: body()}, 1},
		{esapi.UpdateRequest{Index: "books", DocumentID: "_search", Body: body()}, 1},
		{esapi.ScrollRequest{Body: body()}, 1},
		{esapi.BulkRequest{Index: "books", Body: body()}, 1},
		{esapi.DeleteByQueryRequest{Index: books, Body: body()}, 1},
		{esapi.UpdateByQueryRequest{Index: books, Body: body()}, 1},
		{esapi.ReindexRequest{Body: body()}, 1},
		{esapi.IndicesRolloverRequest{Alias: "books", Body: body()}, 1},
	} {
		server := failing(elastic, 503, 503, 503, 503)
		defer server.Close()

		resp, err := c.request.Do(t.Context(), elasticClient(t, server.URL))
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "{}\n{}\n", string(requireRepeats(t, server, c.attempts).Body))
	}
}

// net/http knows how to read a strings.Reader again; a stream is kept up to
// RecordBytes.
func TestElasticsearchRepeatsLargeSearches(t *testing.T) {
	search := strings.Repeat(" ", 200<<10) + "{}"
	for attempts, body := range map[int]io.Reader{
		2: strings.NewReader(search),
		1: io.MultiReader(strings.NewReader(search)),
	} {
		server := failing(elastic, 503)
		defer server.Close()

		resp, err := esapi.SearchRequest{Body: body}.Do(t.Context(), elasticClient(t, server.URL))
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, search, string(requireRepeats(t, server, attempts).Body))
	}
}

// Only its body says whether a _bulk may be repeated, so its author must decide. Here a document
// that is there already is not created again.
func TestElasticsearchRepeatsABulkThatIsVouchedFor(t *testing.T) {
	server := failing(elastic, 503)
	defer server.Close()
	client := elasticClient(t, server.URL)
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
		p.Idempotent = func(*http.Request) bool { return true }
	})

	actions := strings.NewReader(`{"create": {"_index": "books", "_id": "17"}}` + "\n{}\n")
	resp, err := client.Bulk(actions, client.Bulk.WithContext(ctx))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	requireRepeats(t, server, 2)
}

func TestElasticsearchKeepsTheErrorOfTheLastAttempt(t *testing.T) {
	server := failing(elastic)
	server.Close()
	client := elasticClient(t, server.URL)

	_, err := client.Search(client.Search.WithContext(t.Context()))
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
}
