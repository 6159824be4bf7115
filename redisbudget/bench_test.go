package redisbudget_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// budgets are what the benchmarks compare in one run.
func budgets(b *testing.B, f func(*testing.B, retryhttp.Budget)) {
	b.Run("TokenBucket", func(b *testing.B) { f(b, new(retryhttp.TokenBucket)) })
	b.Run("Bucket", func(b *testing.B) {
		engine := startEngine(b)
		bucket := &redisbudget.Bucket{Client: engine.client(b)}
		defer func() { require.NoError(b, bucket.Close()) }()
		f(b, bucket)
	})
}

func BenchmarkDeposit(b *testing.B) {
	budgets(b, func(b *testing.B, budget retryhttp.Budget) {
		req := get(b, host)
		b.ReportAllocs()
		for b.Loop() {
			budget.Deposit(req)
		}
	})
}

func BenchmarkDepositParallel(b *testing.B) {
	budgets(b, func(b *testing.B, budget retryhttp.Budget) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			req := get(b, host)
			for pb.Next() {
				budget.Deposit(req)
			}
		})
	})
}

func BenchmarkWithdraw(b *testing.B) {
	budgets(b, func(b *testing.B, budget retryhttp.Budget) {
		req := get(b, host)
		b.ReportAllocs()
		for b.Loop() {
			withdraw(budget, req)
		}
	})
}
