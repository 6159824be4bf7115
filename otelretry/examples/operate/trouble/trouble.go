// Package trouble is a program whose servers are in trouble now and then, and which reports its
// requests to Prometheus.
package trouble

import (
	"context"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// Program makes requests until Close.
type Program struct {
	servers *servers
	metrics http.Handler
	cancel  context.CancelFunc
	clients sync.WaitGroup
	closing []func() error
}

// New begins to make requests to servers that are well: one to most hosts at each interval, and fewer to the others.
func New(interval time.Duration) (*Program, error) {
	servers, err := startServers(interval)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		servers.close()
		return nil, err
	}
	p := &Program{
		servers: servers,
		// Only OpenMetrics has exemplars. Compression takes more time than all else, and saves nothing on one machine.
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, DisableCompression: true}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.send(ctx, interval, metric.NewMeterProvider(metric.WithReader(exporter)), sdktrace.NewTracerProvider())
	return p, nil
}

// Metrics returns the handler that Prometheus scrapes.
func (p *Program) Metrics() http.Handler { return p.metrics }

// Begin begins the trouble of all servers, and End ends it.
func (p *Program) Begin() { p.servers.begin() }
func (p *Program) End()   { p.servers.end() }

// Close ends the requests.
func (p *Program) Close() {
	p.cancel()
	p.clients.Wait()
	for _, closing := range p.closing {
		if err := closing(); err != nil {
			log.Print(err)
		}
	}
	p.servers.close()
}

// send starts a client for each server.
func (p *Program) send(
	ctx context.Context, often time.Duration, meters *metric.MeterProvider, tracers *sdktrace.TracerProvider,
) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext, base.Proxy = p.servers.dial, nil
	base.MaxIdleConnsPerHost = 100
	redisClient := redis.NewClient(&redis.Options{Addr: p.servers.redis.Addr(), MaxRetries: -1})
	shared := &redisbudget.Bucket{Client: redisClient}
	p.closing = []func() error{shared.Close, redisClient.Close}

	client := func(policy retryhttp.Policy, more ...otelretry.Option) *http.Client {
		return &http.Client{Transport: otelretry.New(base, policy, append(more,
			otelretry.WithMeterProvider(meters),
			otelretry.WithHTTP(otelhttp.WithTracerProvider(tracers)))...)}
	}
	department := func(req *http.Request) string { return strings.Trim(req.URL.Path, "/") }
	departments := client(retryhttp.Policy{Budget: &retryhttp.TokenBucket{Key: department}}, otelretry.WithKey(department))
	const seldom = 200 * time.Millisecond
	p.steadily(ctx, 2*often, departments, http.MethodGet, shop+"/books")
	p.steadily(ctx, 2*often, departments, http.MethodGet, shop+"/music")
	p.steadily(ctx, often, client(retryhttp.Policy{Budget: retryhttp.Unlimited{}}), http.MethodGet, stock)
	p.steadily(ctx, often, client(retryhttp.Policy{}), http.MethodGet, basket)
	p.steadily(ctx, often, client(retryhttp.Policy{}), http.MethodGet, orders)
	p.steadily(ctx, often, client(retryhttp.Policy{}), http.MethodGet, accounts)
	p.steadily(ctx, often, client(retryhttp.Policy{}), http.MethodGet, reports)
	p.steadily(ctx, seldom, client(retryhttp.Policy{Budget: retryhttp.Unlimited{}}), http.MethodPut, payments)
	p.steadily(ctx, seldom, client(retryhttp.Policy{}), http.MethodGet, limited)
	p.steadily(ctx, often, client(retryhttp.Policy{Hedge: new(retryhttp.Hedge)}), http.MethodGet, search)
	p.steadily(ctx, seldom, client(retryhttp.Policy{Resume: true}), http.MethodGet, files)
	p.steadily(ctx, seldom, client(retryhttp.Policy{Budget: shared}), http.MethodGet, fleet)
}

// steadily begins a request at each interval, until ctx ends.
func (p *Program) steadily(ctx context.Context, interval time.Duration, client *http.Client, method, host string) {
	p.clients.Go(func() {
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				p.clients.Go(func() { send(ctx, client, method, "http://"+host+"/") })
			}
		}
	})
}

// send makes a request, whose failure is what the metrics are about.
func send(ctx context.Context, client *http.Client, method, url string) {
	var body io.Reader
	if method == http.MethodPut {
		body = strings.NewReader("an order")
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		log.Print(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
