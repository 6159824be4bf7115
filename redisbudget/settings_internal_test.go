package redisbudget

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSettingsOfABucket(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	for name, c := range map[string]struct {
		bucket *Bucket
		want   settings
	}{
		"the defaults": {&Bucket{}, settings{
			prefix: "retryhttp", ratio: 0.1, healthyRatio: 0.5, burst: 20, window: 20 * time.Second, interval: time.Second,
			fade: 20 * time.Second, keep: 200 * time.Second, patience: 50 * time.Millisecond, retire: 20 * time.Second,
		}},
		"none": {&Bucket{Ratio: -1, HealthyRatio: 0.7, Burst: -1, Window: -1, Interval: -1}, settings{
			prefix: "retryhttp", interval: time.Second,
			fade: 20 * time.Second, keep: 200 * time.Second, patience: 50 * time.Millisecond, retire: 20 * time.Second,
		}},
		"a long Interval": {&Bucket{Prefix: "p", Ratio: 1, Burst: 7, Window: time.Second, Interval: 3 * time.Second}, settings{
			prefix: "p", ratio: 1, healthyRatio: 1, burst: 7, window: time.Second, interval: 3 * time.Second,
			fade: time.Second, keep: 30 * time.Second, patience: 150 * time.Millisecond, retire: 30 * time.Second,
		}},
		"no number": {&Bucket{Ratio: math.NaN(), Window: forever, Interval: forever}, settings{
			prefix: "retryhttp", burst: 20, window: forever, interval: forever / 20,
			fade: forever, keep: forever, patience: forever / 20 / 20, retire: forever,
		}},
		"HealthyRatio beside a Ratio": {&Bucket{Ratio: 0.2, HealthyRatio: 0.7}, settings{
			prefix: "retryhttp", ratio: 0.2, healthyRatio: 0.7, burst: 20, window: 20 * time.Second, interval: time.Second,
			fade: 20 * time.Second, keep: 200 * time.Second, patience: 50 * time.Millisecond, retire: 20 * time.Second,
		}},
		"HealthyRatio below the Ratio": {&Bucket{HealthyRatio: 0.05}, settings{
			prefix: "retryhttp", ratio: 0.1, healthyRatio: 0.1, burst: 20, window: 20 * time.Second, interval: time.Second,
			fade: 20 * time.Second, keep: 200 * time.Second, patience: 50 * time.Millisecond, retire: 20 * time.Second,
		}},
		"HealthyRatio is no number": {&Bucket{HealthyRatio: math.NaN()}, settings{
			prefix: "retryhttp", ratio: 0.1, healthyRatio: 0.1, burst: 20, window: 20 * time.Second, interval: time.Second,
			fade: 20 * time.Second, keep: 200 * time.Second, patience: 50 * time.Millisecond, retire: 20 * time.Second,
		}},
		"beyond all sense": {&Bucket{Ratio: math.Inf(1), Burst: math.MaxInt}, settings{
			prefix: "retryhttp", ratio: math.MaxInt32, healthyRatio: math.MaxInt32, burst: math.MaxInt, window: 20 * time.Second, interval: time.Second,
			fade: 20 * time.Second, keep: 200 * time.Second, patience: 50 * time.Millisecond, retire: 20 * time.Second,
		}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.bucket.resolve()) })
	}
}
