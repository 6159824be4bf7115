package redisbudget_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

func Example_short() {
	bucket := &redisbudget.Bucket{Client: redis.NewClient(&redis.Options{Addr: "redis:6379"})}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Budget: bucket})}
	defer client.CloseIdleConnections()
	defer bucket.Close()
}

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer server.Close()
	engine, err := miniredis.Run() // stands for a Redis server
	if err != nil {
		panic(err)
	}
	defer engine.Close()

	engineClient := redis.NewClient(&redis.Options{Addr: engine.Addr()})
	defer engineClient.Close()
	bucket := &redisbudget.Bucket{
		Client:  engineClient,
		OnError: func(err error) { slog.Warn("retries have no shared budget", "error", err) },
	}
	defer bucket.Close()
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Budget: bucket})}
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
