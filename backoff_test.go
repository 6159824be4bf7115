package retryhttp_test

import (
	"errors"
	"math"
	"math/big"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

const (
	maxWait = time.Duration(math.MaxInt64)
	minWait = time.Duration(math.MinInt64)
)

// waits lists what b gives for retries 1 to count. Each call gets the previous wait.
func waits(b retryhttp.Backoff, count int) []time.Duration {
	var list []time.Duration
	prev := time.Duration(0)
	for n := 1; n <= count; n++ {
		prev = b(n, prev)
		list = append(list, prev)
	}
	return list
}

func TestBackoffSequencesWithoutJitterAreExact(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for name, c := range map[string]struct {
		backoff retryhttp.Backoff
		want    []time.Duration
	}{
		"constant":                {retryhttp.Constant(3 * s), []time.Duration{3 * s, 3 * s, 3 * s}},
		"constant zero":           {retryhttp.Constant(0), []time.Duration{0, 0}},
		"constant negative":       {retryhttp.Constant(-s), []time.Duration{0, 0}},
		"constant longest":        {retryhttp.Constant(maxWait), []time.Duration{maxWait, maxWait}},
		"linear":                  {retryhttp.Linear(2*s, 7*s), []time.Duration{2 * s, 4 * s, 6 * s, 7 * s, 7 * s}},
		"linear meets its limit":  {retryhttp.Linear(2*s, 6*s), []time.Duration{2 * s, 4 * s, 6 * s, 6 * s}},
		"linear step above limit": {retryhttp.Linear(9*s, 7*s), []time.Duration{7 * s, 7 * s}},
		"linear step zero":        {retryhttp.Linear(0, 7*s), []time.Duration{0, 0}},
		"linear step negative":    {retryhttp.Linear(-s, 7*s), []time.Duration{0, 0}},
		"linear limit zero":       {retryhttp.Linear(s, 0), []time.Duration{s, 2 * s, 3 * s}},
		"linear limit negative":   {retryhttp.Linear(s, -s), []time.Duration{s, 2 * s, 3 * s}},
		"linear without a limit saturates": {
			retryhttp.Linear(maxWait/2+1, 0), []time.Duration{maxWait/2 + 1, maxWait, maxWait},
		},
		"linear would overflow": {
			retryhttp.Linear(maxWait/2+1, maxWait), []time.Duration{maxWait/2 + 1, maxWait, maxWait},
		},
		"exponential": {
			retryhttp.Exponential(s, 10*s), []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s},
		},
		"exponential meets its limit":    {retryhttp.Exponential(s, 8*s), []time.Duration{s, 2 * s, 4 * s, 8 * s, 8 * s}},
		"exponential one short of limit": {retryhttp.Exponential(s, 8*s-1), []time.Duration{s, 2 * s, 4 * s, 8*s - 1}},
		"exponential base above limit":   {retryhttp.Exponential(9*s, 7*s), []time.Duration{7 * s, 7 * s}},
		"exponential base zero":          {retryhttp.Exponential(0, 7*s), []time.Duration{0, 0}},
		"exponential base negative":      {retryhttp.Exponential(-s, 7*s), []time.Duration{0, 0}},
		"exponential limit zero":         {retryhttp.Exponential(s, 0), []time.Duration{s, 2 * s, 4 * s}},
		"exponential limit negative":     {retryhttp.Exponential(s, -s), []time.Duration{s, 2 * s, 4 * s}},
		"exponential both at the end":    {retryhttp.Exponential(maxWait, maxWait), []time.Duration{maxWait, maxWait}},
		"geometric": {
			retryhttp.Geometric(500*ms, 2*s, 1.5),
			[]time.Duration{500 * ms, 750 * ms, 1125 * ms, 1687500 * time.Microsecond, 2 * s, 2 * s},
		},
		"geometric by two is exponential": {
			retryhttp.Geometric(s, 10*s, 2), []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s},
		},
		"geometric by one is constant":   {retryhttp.Geometric(s, 10*s, 1), []time.Duration{s, s, s}},
		"geometric shrinking":            {retryhttp.Geometric(8*s, 10*s, 0.5), []time.Duration{8 * s, 4 * s, 2 * s, s}},
		"geometric shrinking from above": {retryhttp.Geometric(8*s, 3*s, 0.5), []time.Duration{3 * s, 3 * s, 2 * s, s}},
		"geometric ratio zero":           {retryhttp.Geometric(s, 10*s, 0), []time.Duration{s, s, s}},
		"geometric ratio negative":       {retryhttp.Geometric(s, 10*s, -2), []time.Duration{s, s, s}},
		"geometric ratio not a number":   {retryhttp.Geometric(s, 10*s, math.NaN()), []time.Duration{s, s, s}},
		"geometric ratio minus infinity": {retryhttp.Geometric(s, 10*s, math.Inf(-1)), []time.Duration{s, s, s}},
		"geometric ratio infinite":       {retryhttp.Geometric(s, 10*s, math.Inf(1)), []time.Duration{s, 10 * s, 10 * s}},
		"geometric ratio greatest": {
			retryhttp.Geometric(s, 10*s, math.MaxFloat64), []time.Duration{s, 10 * s, 10 * s},
		},
		"geometric ratio tiny": {
			retryhttp.Geometric(s, 10*s, math.SmallestNonzeroFloat64), []time.Duration{s, 0, 0},
		},
		"geometric base above limit":    {retryhttp.Geometric(9*s, 7*s, 3), []time.Duration{7 * s, 7 * s}},
		"geometric base zero":           {retryhttp.Geometric(0, 7*s, math.Inf(1)), []time.Duration{0, 0}},
		"geometric base negative":       {retryhttp.Geometric(-s, 7*s, 2), []time.Duration{0, 0}},
		"geometric limit zero":          {retryhttp.Geometric(s, 0, 2), []time.Duration{s, 2 * s, 4 * s}},
		"geometric limit negative":      {retryhttp.Geometric(s, -s, 2), []time.Duration{s, 2 * s, 4 * s}},
		"geometric both at the end":     {retryhttp.Geometric(maxWait, maxWait, 2), []time.Duration{maxWait, maxWait}},
		"full jitter base zero":         {retryhttp.FullJitter(0, s), []time.Duration{0, 0}},
		"equal jitter base negative":    {retryhttp.EqualJitter(-s, s), []time.Duration{0, 0}},
		"decorrelated base zero":        {retryhttp.DecorrelatedJitter(0, s), []time.Duration{0, 0}},
		"decorrelated base negative":    {retryhttp.DecorrelatedJitter(-s, s), []time.Duration{0, 0}},
		"decorrelated base above limit": {retryhttp.DecorrelatedJitter(9*s, 7*s), []time.Duration{7 * s, 7 * s}},
		"decorrelated base at the end": {
			retryhttp.DecorrelatedJitter(maxWait, maxWait), []time.Duration{maxWait, maxWait},
		},
		"spread by nothing":                {retryhttp.Constant(s).Spread(0), []time.Duration{s, s}},
		"spread by less than nothing":      {retryhttp.Constant(s).Spread(-1), []time.Duration{s, s}},
		"spread by minus infinity":         {retryhttp.Constant(s).Spread(math.Inf(-1)), []time.Duration{s, s}},
		"spread by not a number":           {retryhttp.Constant(s).Spread(math.NaN()), []time.Duration{s, s}},
		"spread of nothing":                {retryhttp.Constant(0).Spread(1), []time.Duration{0, 0}},
		"spread of something negative":     {retryhttp.Backoff(negativeBackoff).Spread(1), []time.Duration{0, 0}},
		"plus nothing":                     {retryhttp.Constant(s).PlusJitter(0), []time.Duration{s, s}},
		"plus less than nothing":           {retryhttp.Constant(s).PlusJitter(minWait), []time.Duration{s, s}},
		"something negative, plus nothing": {retryhttp.Backoff(negativeBackoff).PlusJitter(0), []time.Duration{0, 0}},
		"plus saturates": {
			retryhttp.Constant(maxWait).PlusJitter(maxWait), []time.Duration{maxWait, maxWait},
		},
		"something negative, plus negative": {retryhttp.Backoff(negativeBackoff).PlusJitter(-1), []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, waits(c.backoff, len(c.want)))
		})
	}
}

func negativeBackoff(int, time.Duration) time.Duration { return minWait }

func TestBackoffAtExtremeRetryNumbers(t *testing.T) {
	const s = time.Second
	const wide = 2 << (64 - strconv.IntSize) // the least step that overflows, a power of two
	for name, c := range map[string]struct {
		backoff retryhttp.Backoff
		n       int
		want    time.Duration
	}{
		"constant, least":               {retryhttp.Constant(s), math.MinInt, s},
		"constant, greatest":            {retryhttp.Constant(s), math.MaxInt, s},
		"linear, 0":                     {retryhttp.Linear(s, 9*s), 0, s},
		"linear, negative":              {retryhttp.Linear(s, 9*s), -7, s},
		"linear, least":                 {retryhttp.Linear(s, 9*s), math.MinInt, s},
		"linear, greatest":              {retryhttp.Linear(s, 9*s), math.MaxInt, 9 * s},
		"linear, greatest that fits":    {retryhttp.Linear(1, maxWait), math.MaxInt, math.MaxInt},
		"linear, first to overflow":     {retryhttp.Linear(wide, maxWait), math.MaxInt/2 + 1, maxWait},
		"linear, last not to overflow":  {retryhttp.Linear(wide, maxWait), math.MaxInt / 2, maxWait - wide + 1},
		"exponential, 0":                {retryhttp.Exponential(s, 9*s), 0, s},
		"exponential, negative":         {retryhttp.Exponential(s, 9*s), -63, s},
		"exponential, least":            {retryhttp.Exponential(s, 9*s), math.MinInt, s},
		"exponential, 62":               {retryhttp.Exponential(s, 9*s), 62, 9 * s},
		"exponential, 63":               {retryhttp.Exponential(s, 9*s), 63, 9 * s},
		"exponential, 64":               {retryhttp.Exponential(s, 9*s), 64, 9 * s},
		"exponential, 65":               {retryhttp.Exponential(s, 9*s), 65, 9 * s},
		"exponential, greatest":         {retryhttp.Exponential(s, 9*s), math.MaxInt, 9 * s},
		"exponential, of 1 ns, 62":      {retryhttp.Exponential(1, maxWait), 62, 1 << 61},
		"exponential, of 1 ns, 63":      {retryhttp.Exponential(1, maxWait), 63, 1 << 62},
		"exponential, of 1 ns, 64":      {retryhttp.Exponential(1, maxWait), 64, maxWait},
		"exponential, of 1 ns, 65":      {retryhttp.Exponential(1, maxWait), 65, maxWait},
		"exponential, of 3 ns, 62":      {retryhttp.Exponential(3, maxWait), 62, 3 << 61},
		"exponential, of 3 ns, 63":      {retryhttp.Exponential(3, maxWait), 63, maxWait},
		"exponential, no limit":         {retryhttp.Exponential(s, 0), math.MaxInt, maxWait},
		"linear, no limit":              {retryhttp.Linear(wide, 0), math.MaxInt, maxWait},
		"geometric, no limit":           {retryhttp.Geometric(s, 0, 3), math.MaxInt, maxWait},
		"exponential, 1 ns, greatest":   {retryhttp.Exponential(1, maxWait), math.MaxInt, maxWait},
		"geometric, 0":                  {retryhttp.Geometric(s, 9*s, 3), 0, s},
		"geometric, least":              {retryhttp.Geometric(s, 9*s, 3), math.MinInt, s},
		"geometric, 62":                 {retryhttp.Geometric(1, maxWait, 2), 62, 1 << 61},
		"geometric, 63":                 {retryhttp.Geometric(1, maxWait, 2), 63, 1 << 62},
		"geometric, 64":                 {retryhttp.Geometric(1, maxWait, 2), 64, maxWait},
		"geometric, greatest":           {retryhttp.Geometric(1, maxWait, 2), math.MaxInt, maxWait},
		"geometric, greatest, shrink":   {retryhttp.Geometric(s, 9*s, 0.5), math.MaxInt, 0},
		"geometric, greatest, constant": {retryhttp.Geometric(s, 9*s, 1), math.MaxInt, s},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, c.backoff(c.n, 0))
		})
	}
}

// If limit is no multiple of three, the ceiling after a wait of limit/3 is below limit.
func TestBackoffDecorrelatedJitterStaysWithinThreeTimesThePreviousWait(t *testing.T) {
	decorrelated := retryhttp.DecorrelatedJitter(1, 5)
	for range 100 {
		assert.LessOrEqual(t, decorrelated(2, 1), time.Duration(3))
	}
}

func TestBackoffJittersEvenlyOverItsWholeRange(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	full, equal := retryhttp.FullJitter(s, 10*s), retryhttp.EqualJitter(s, 10*s)
	decorrelated := retryhttp.DecorrelatedJitter(s, 10*s)
	for name, c := range map[string]struct {
		backoff retryhttp.Backoff
		n       int
		prev    time.Duration
		lo, hi  time.Duration
	}{
		"full, 0":                             {full, 0, 0, 0, s},
		"full, least":                         {full, math.MinInt, 0, 0, s},
		"full, 1":                             {full, 1, 0, 0, s},
		"full, 3":                             {full, 3, 9 * s, 0, 4 * s},
		"full, at the limit":                  {full, 5, 0, 0, 10 * s},
		"full, 63, still spread":              {full, 63, 0, 0, 10 * s},
		"full, 64, still spread":              {full, 64, 0, 0, 10 * s},
		"full, greatest, still spread":        {full, math.MaxInt, 0, 0, 10 * s},
		"full, longest":                       {retryhttp.FullJitter(maxWait, maxWait), 1, 0, 0, maxWait},
		"full, base above limit":              {retryhttp.FullJitter(20*s, 10*s), 1, 0, 0, 10 * s},
		"full, no limit":                      {retryhttp.FullJitter(250*ms, 0), 3, 0, 0, s},
		"full, limit negative, greatest":      {retryhttp.FullJitter(s, -s), math.MaxInt, 0, 0, maxWait},
		"equal, no limit":                     {retryhttp.EqualJitter(s, 0), 3, 0, 2 * s, 4 * s},
		"decorrelated, no limit":              {retryhttp.DecorrelatedJitter(s, 0), 2, time.Hour, s, 3 * time.Hour},
		"decorrelated, no limit, saturates":   {retryhttp.DecorrelatedJitter(s, -s), 2, maxWait, s, maxWait},
		"equal, 1":                            {equal, 1, 0, s / 2, s},
		"equal, least":                        {equal, math.MinInt, 0, s / 2, s},
		"equal, 3":                            {equal, 3, 9 * s, 2 * s, 4 * s},
		"equal, at the limit":                 {equal, 5, 0, 5 * s, 10 * s},
		"equal, greatest, still spread":       {equal, math.MaxInt, 0, 5 * s, 10 * s},
		"equal, longest":                      {retryhttp.EqualJitter(maxWait, maxWait), 1, 0, maxWait / 2, maxWait},
		"decorrelated, first":                 {decorrelated, 1, 0, s, 3 * s},
		"decorrelated, from prev, not from n": {decorrelated, 1, 2 * s, s, 6 * s},
		"decorrelated, prev below base":       {decorrelated, 7, 1, s, 3 * s},
		"decorrelated, prev negative":         {decorrelated, 7, minWait, s, 3 * s},
		"decorrelated, at the limit":          {decorrelated, 2, 4 * s, s, 10 * s},
		"decorrelated, prev a third of limit": {retryhttp.DecorrelatedJitter(s, 9*s), 2, 3 * s, s, 9 * s},
		"decorrelated, prev at the limit":     {decorrelated, math.MaxInt, 10 * s, s, 10 * s},
		"decorrelated, prev above the limit":  {decorrelated, 2, maxWait, s, 10 * s},
		"decorrelated, longest":               {retryhttp.DecorrelatedJitter(1, maxWait), 2, maxWait, 1, maxWait},
		"spread by a half":                    {retryhttp.Constant(s).Spread(0.5), 1, 0, s / 2, 3 * s / 2},
		"spread by a tenth":                   {retryhttp.Constant(10 * s).Spread(0.1), 1, 0, 9 * s, 11 * s},
		"spread by all":                       {retryhttp.Constant(s).Spread(1), 1, 0, 0, 2 * s},
		"spread by more than all":             {retryhttp.Constant(s).Spread(7), 1, 0, 0, 2 * s},
		"spread without bound":                {retryhttp.Constant(s).Spread(math.Inf(1)), 1, 0, 0, 2 * s},
		"spread at the limit":                 {retryhttp.Exponential(s, 10*s).Spread(0.5), math.MaxInt, 0, 5 * s, 15 * s},
		"spread saturates":                    {retryhttp.Constant(maxWait).Spread(1), 1, 0, 0, maxWait},
		"plus":                                {retryhttp.Constant(s).PlusJitter(250 * ms), 1, 0, s, 1250 * ms},
		"plus at the limit":                   {retryhttp.Exponential(s, 10*s).PlusJitter(s), math.MaxInt, 0, 10 * s, 11 * s},
		"plus to something negative":          {retryhttp.Backoff(negativeBackoff).PlusJitter(s), 1, 0, 0, s},
		"plus the longest":                    {retryhttp.Constant(0).PlusJitter(maxWait), 1, 0, 0, maxWait},
		"nil, spread by nothing":              {retryhttp.Backoff(nil).Spread(0), 1, 0, 0, 250 * ms},
		"nil, spread by nothing, limit":       {retryhttp.Backoff(nil).Spread(0), math.MaxInt, 0, 0, 30 * s},
		"nil, plus nothing":                   {retryhttp.Backoff(nil).PlusJitter(0), 2, 0, 0, 500 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			requireUniform(t, c.lo, c.hi, func() time.Duration { return c.backoff(c.n, c.prev) })
		})
	}
}

func TestBackoffWrappersPassTheirArgumentsOn(t *testing.T) {
	type args struct {
		n    int
		prev time.Duration
	}
	var got []args
	inner := retryhttp.Backoff(func(n int, prev time.Duration) time.Duration {
		got = append(got, args{n, prev})
		return 0
	})
	inner.Spread(0.5)(3, 4)
	inner.PlusJitter(time.Second)(5, 6)
	assert.Equal(t, []args{{3, 4}, {5, 6}}, got)
}

func TestBackoffDecorrelatedJitterGrowsFromItsLastDraw(t *testing.T) {
	b := retryhttp.DecorrelatedJitter(time.Millisecond, time.Second)
	for range 200 {
		prev := time.Duration(0)
		for n := range 30 {
			d := b(n+1, prev)
			most := min(3*max(prev, time.Millisecond), time.Second)
			require.True(t, time.Millisecond <= d && d <= most, "%v after %v", d, prev)
			prev = d
		}
	}
}

// requireUniform draws many times. It requires that all values are within [lo, hi],
// and that some are close to both ends. The mean and the quarters must be within 7
// standard deviations of their expectation.
func requireUniform(t *testing.T, lo, hi time.Duration, draw func() time.Duration) {
	t.Helper()
	const samples = 20000
	width := float64(hi) - float64(lo)
	least, greatest := hi, lo
	sum, quarters := 0.0, [4]int{}
	for range samples {
		d := draw()
		if d < lo || d > hi { // testify's comparisons are slow, and this one runs a million times
			require.FailNowf(t, "out of range", "%v is not within [%v, %v]", d, lo, hi)
		}
		least, greatest = min(least, d), max(greatest, d)
		share := (float64(d) - float64(lo)) / width
		sum += share
		quarters[min(int(4*share), 3)]++
	}
	// The odds that no sample is within 0.2 % of an end are e^-40.
	require.Less(t, float64(least)-float64(lo), width*0.002, "the low end is never drawn")
	require.Less(t, float64(hi)-float64(greatest), width*0.002, "the high end is never drawn")
	require.InDelta(t, 0.5, sum/samples, 7/math.Sqrt(12*samples), "mean, as a share of the range")
	for i, n := range quarters {
		require.InDelta(t, samples/4, n, 7*math.Sqrt(samples*3.0/16), "quarter %d", i)
	}
}

// These tests build schedules of other libraries, and check them against published
// numbers.

func TestBackoffSchedulesThatAreNamedElsewhere(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		policy retryhttp.Policy
		starts []time.Duration
	}{
		"ConstantBackOff":   {retryhttp.Policy{Backoff: retryhttp.Constant(2 * s)}, []time.Duration{0, 2 * s, 4 * s, 6 * s}},
		"ZeroBackOff":       {retryhttp.Policy{Backoff: retryhttp.Constant(0)}, []time.Duration{0, 0, 0, 0}},
		"StopBackOff":       {retryhttp.Policy{Backoff: retryhttp.Constant(s), MaxAttempts: 1}, []time.Duration{0}},
		"WithMaxRetries(2)": {retryhttp.Policy{Backoff: retryhttp.Constant(s), MaxAttempts: 3}, []time.Duration{0, s, 2 * s}},
		"linear delay": {
			retryhttp.Policy{Backoff: retryhttp.Linear(s, time.Minute)}, []time.Duration{0, s, 3 * s, 6 * s},
		},
		"exponential delay": {
			retryhttp.Policy{Backoff: retryhttp.Exponential(s, time.Minute)}, []time.Duration{0, s, 3 * s, 7 * s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts, outcome := outage(t, c.policy)
				assert.Equal(t, c.starts, starts)
				assert.Equal(t, retryhttp.StopAttempts, outcome.Stop)
			})
		})
	}
	t.Run("Permanent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			open, attempts := errors.New("circuit breaker is open"), 0
			rt := retryhttp.New(script.Step(func(*http.Request) (*http.Response, error) {
				attempts++
				return nil, retryhttp.Permanent(open)
			}), retryhttp.Policy{})
			req, err := http.NewRequest("GET", "http://example.test/", nil)
			require.NoError(t, err)
			_, err = rt.RoundTrip(req)
			assert.ErrorIs(t, err, open)
			assert.Equal(t, 1, attempts)
		})
	})
}

func TestBackoffScheduleOfAWSJitters(t *testing.T) {
	// The article "Exponential Backoff And Jitter" simulates base 5 ms and cap
	// 2,000 ms. Its counter starts at 1, so its first exponential is 10 ms.
	const limit = 2000 * time.Millisecond
	full := retryhttp.FullJitter(10*time.Millisecond, limit)
	equal := retryhttp.EqualJitter(10*time.Millisecond, limit)
	for n := 1; n <= 12; n++ {
		expo := min(limit, 5*time.Millisecond<<n)
		requireUniform(t, 0, expo, func() time.Duration { return full(n, 0) })
		requireUniform(t, expo/2, expo, func() time.Duration { return equal(n, 0) })
	}
	decorrelated := retryhttp.DecorrelatedJitter(5*time.Millisecond, limit)
	requireUniform(t, 5*time.Millisecond, 15*time.Millisecond, func() time.Duration { return decorrelated(1, 0) })
	for _, prev := range []time.Duration{5, 15, 100, 600, 666} {
		prev *= time.Millisecond
		requireUniform(t, 5*time.Millisecond, 3*prev, func() time.Duration { return decorrelated(2, prev) })
	}
	for _, prev := range []time.Duration{667, 1000, 2000} {
		prev *= time.Millisecond
		requireUniform(t, 5*time.Millisecond, limit, func() time.Duration { return decorrelated(2, prev) })
	}
}

// outage sends one GET to a server that answers 503 at once. It returns when each
// attempt started, counted from the first. It must run in a bubble.
func outage(t *testing.T, p retryhttp.Policy) ([]time.Duration, retryhttp.Outcome) {
	t.Helper()
	began := time.Now()
	var starts []time.Duration
	rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		starts = append(starts, time.Since(began))
		return script.Status(http.StatusServiceUnavailable)(req)
	}), p)
	req, err := http.NewRequest("GET", "http://example.test/", nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	outcome := retryhttp.OutcomeOf(resp)
	require.Equal(t, len(starts), outcome.Attempts)
	require.Equal(t, starts[len(starts)-1], outcome.Elapsed)
	require.Equal(t, time.Since(began), outcome.Elapsed)
	return starts, outcome
}

func FuzzBackoff(f *testing.F) {
	extremes := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	ratios := []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1, 0, 0.5, 1, 2,
	}
	for i, base := range extremes {
		for j, limit := range extremes {
			for k, n := range []int64{math.MinInt64, 0, 1, 62, 63, 64, 65, math.MaxInt64} {
				ratio := ratios[(3*i+5*j+k)%len(ratios)]
				f.Add(base, limit, ratio, ratios[(i+j+k)%len(ratios)], extremes[(i+k)%5], n, extremes[(j+k)%5])
			}
		}
	}
	f.Fuzz(func(t *testing.T, baseNS, limitNS int64, ratio, factor float64, extraNS, n64, prevNS int64) {
		base, limit := time.Duration(baseNS), time.Duration(limitNS)
		extra, prev, n := time.Duration(extraNS), time.Duration(prevNS), int(n64)
		within := func(name string, d, lo, hi time.Duration) {
			if d < lo || d > hi {
				t.Fatalf("%s: %v (%d) is not within [%v, %v]", name, d, d, lo, hi)
			}
		}
		top := limit
		if limit <= 0 {
			top = math.MaxInt64
		}
		clip := func(x *big.Int) time.Duration { // to [0, top]
			switch {
			case base <= 0:
				return 0
			case x.Cmp(big.NewInt(int64(top))) > 0:
				return top
			}
			return time.Duration(x.Int64())
		}
		sum := func(a, b time.Duration) time.Duration { // saturating
			x := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(int64(b)))
			if !x.IsInt64() {
				return math.MaxInt64
			}
			return time.Duration(x.Int64())
		}
		retry := max(n, 1)
		linear := clip(new(big.Int).Mul(big.NewInt(baseNS), big.NewInt(int64(retry))))
		exponential := clip(new(big.Int).Lsh(big.NewInt(baseNS), uint(min(retry-1, 200))))
		lowest, highest := time.Duration(0), time.Duration(0) // of what DecorrelatedJitter draws
		if base > 0 {
			lowest = min(base, top)
			highest = min(top, sum(sum(max(prev, base), max(prev, base)), max(prev, base)))
		}
		for name, c := range map[string]struct {
			backoff retryhttp.Backoff
			lo, hi  time.Duration
		}{
			"Constant":           {retryhttp.Constant(base), max(base, 0), max(base, 0)},
			"Linear":             {retryhttp.Linear(base, limit), linear, linear},
			"Exponential":        {retryhttp.Exponential(base, limit), exponential, exponential},
			"Geometric":          {retryhttp.Geometric(base, limit, ratio), 0, top},
			"FullJitter":         {retryhttp.FullJitter(base, limit), 0, exponential},
			"EqualJitter":        {retryhttp.EqualJitter(base, limit), exponential / 2, exponential},
			"DecorrelatedJitter": {retryhttp.DecorrelatedJitter(base, limit), lowest, highest},
			"nil":                {retryhttp.Backoff(nil).PlusJitter(0), 0, 30 * time.Second},
			"anything":           {func(int, time.Duration) time.Duration { return base }, minWait, maxWait},
		} {
			d := c.backoff(n, prev)
			within(name, d, c.lo, c.hi)
			lo, hi := max(c.lo, 0), max(c.hi, 0)
			within(name+".PlusJitter", c.backoff.PlusJitter(extra)(n, prev), lo, sum(hi, max(extra, 0)))
			within(name+".PlusJitter.Plus", c.backoff.PlusJitter(extra).PlusJitter(extra)(n, prev), lo,
				sum(hi, sum(max(extra, 0), max(extra, 0))))
			within(name+".Spread", c.backoff.Spread(factor)(n, prev), 0, sum(hi, hi))
			if !(factor > 0) {
				within(name+".Spread by nothing", c.backoff.Spread(factor)(n, prev), lo, hi)
			}
			within(name+".Spread.Plus", c.backoff.Spread(factor).PlusJitter(extra)(n, prev), 0, sum(sum(hi, hi), max(extra, 0)))
		}
	})
}
