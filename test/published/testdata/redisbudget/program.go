// Package program is a module of somebody who uses redisbudget.
package program

import (
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// Client returns a client whose retries draw on bucket.
func Client(bucket *redisbudget.Bucket) *http.Client {
	return &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff: retryhttp.Constant(0),
		Budget:  bucket,
	})}
}

// Bucket returns a budget that is shared through the Redis server at an address.
func Bucket(address string) *redisbudget.Bucket {
	return &redisbudget.Bucket{Client: redis.NewClient(&redis.Options{Addr: address})}
}
