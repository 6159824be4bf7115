package retrytest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrytest"
)

// statuses makes n requests, one each second, and returns the statuses of the answers.
func statuses(t *testing.T, rt http.RoundTripper, n int) (all []int) {
	t.Helper()
	for range n {
		resp, err := get(t, rt)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		all = append(all, resp.StatusCode)
		time.Sleep(time.Second)
	}
	return all
}

func TestRulesChooseTheRequests(t *testing.T) {
	busy := retrytest.Status(503)
	for name, c := range map[string]struct {
		rules []retrytest.Rule
		want  []int
	}{
		"none":              {nil, []int{200, 200, 200, 200}},
		"some":              {[]retrytest.Rule{busy.Nth(2, 4)}, []int{200, 503, 200, 503}},
		"all":               {[]retrytest.Rule{busy.Always()}, []int{503, 503, 503, 503}},
		"a while":           {[]retrytest.Rule{busy.During(time.Second, 3*time.Second)}, []int{200, 503, 503, 200}},
		"a share":           {[]retrytest.Rule{busy.Share(1, 17)}, []int{503, 503, 503, 503}},
		"the first applies": {[]retrytest.Rule{retrytest.Real().Nth(1), retrytest.Status(404).Nth(1, 2), busy.Always()}, []int{200, 404, 503, 503}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Equal(t, c.want, statuses(t, retrytest.NewTransport(t, nil, c.rules...), 4))
			})
		})
	}
}

func TestRuleMayLookAtTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *retrytest.Transport
		rt = retrytest.NewTransport(t, nil, retrytest.Status(503).Always().Of(func(*http.Request) bool {
			return len(rt.Records()) < 2 && rt.Table() != ""
		}))
		assert.Equal(t, []int{503, 503, 200}, statuses(t, rt, 3))
	})
}

// Rules of one method or path do not depend on how many other requests there are.
func TestRuleOfSomeRequestsCountsOnlyThese(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posts := func(r *http.Request) bool { return r.Method == http.MethodPost }
		rt := retrytest.NewTransport(t, nil,
			retrytest.Status(503).Nth(1).Of(posts),
			retrytest.Status(429).During(5*time.Second, 6*time.Second).Of(posts),
			retrytest.Status(500).Share(1, 1).Of(func(r *http.Request) bool { return r.URL.Path == "/broken" }),
		)
		send := func(method, path string) int {
			req, err := http.NewRequest(method, "http://shop.example"+path, nil)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			time.Sleep(time.Second)
			return resp.StatusCode
		}
		assert.Equal(t, []int{200, 200, 503, 200, 500, 429}, []int{
			send("GET", "/"), send("GET", "/"), send("POST", "/"), send("POST", "/"), send("GET", "/broken"), send("POST", "/"),
		})
	})
}

func TestRuleOfNoFunctionMakesNoSense(t *testing.T) {
	assert.PanicsWithError(t, "retrytest: rule 1: Of: there is no function", func() {
		retrytest.NewTransport(nil, nil, retrytest.Refused().Always().Of(nil))
	})
	assert.PanicsWithError(t, "retrytest: rule 1: it is empty", func() {
		retrytest.NewTransport(nil, nil, retrytest.Rule{}.Of(func(*http.Request) bool { return true }))
	})
}

// The time of a rule begins with the first request, and not when the Transport is made.
func TestTimeOfARuleBeginsWithTheFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retrytest.NewTransport(t, nil, retrytest.Status(503).During(0, 2*time.Second))
		time.Sleep(time.Hour)
		assert.Equal(t, []int{503, 503, 200}, statuses(t, rt, 3))
	})
}

func TestShareIsTheSameForOneSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draw := func(seed uint64) []int {
			return statuses(t, retrytest.NewTransport(t, nil, retrytest.Status(503).Share(0.3, seed)), 1000)
		}
		one := draw(1)
		failed := 0
		for _, status := range one {
			if status == 503 {
				failed++
			}
		}
		assert.InDelta(t, 300, failed, 60) // four standard deviations
		assert.Equal(t, one, draw(1))
		assert.NotEqual(t, one, draw(2))
	})
}

// A rule that goes by time takes more requests on a slow machine. Share does not depend on it.
func TestShareIsTheSameWhateverOtherRulesDo(t *testing.T) {
	after := func(outage time.Duration) (all []int) {
		synctest.Test(t, func(t *testing.T) {
			rt := retrytest.NewTransport(t, nil, retrytest.Status(429).During(0, outage), retrytest.Status(503).Share(0.5, 1))
			all = statuses(t, rt, 60)[10:]
		})
		return all
	}
	assert.Equal(t, after(3*time.Second), after(8*time.Second))
}

// Two shares with one seed are not of the same requests.
func TestSharesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retrytest.NewTransport(t, nil, retrytest.Status(503).Share(0.3, 1), retrytest.Status(404).Share(0.3, 1))
		assert.Contains(t, statuses(t, rt, 50), 404)
	})
}

// A Rule belongs to nobody: two Transports with one Rule decide apart.
func TestRuleMayBeUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := retrytest.Status(503).Share(0.5, 1)
		one := statuses(t, retrytest.NewTransport(t, nil, rule), 50)
		assert.Equal(t, one, statuses(t, retrytest.NewTransport(t, nil, rule), 50))
	})
}

func TestRulesThatMakeNoSense(t *testing.T) {
	for want, rule := range map[string]retrytest.Rule{
		"it is empty":                                                                            {},
		"Nth: the numbers [0] are not 1 or more":                                                 retrytest.Refused().Nth(0),
		"Nth: the numbers [] are not 1 or more":                                                  retrytest.Refused().Nth(),
		"Share: the part 0 is not above 0 and at most 1":                                         retrytest.Refused().Share(0, 1),
		"Share: the part 1.5 is not above 0 and at most 1":                                       retrytest.Refused().Share(1.5, 1),
		"Share: the part NaN is not above 0 and at most 1":                                       retrytest.Refused().Share(math.NaN(), 1),
		"During: there is no time from 2s to 2s":                                                 retrytest.Refused().During(2*time.Second, 2*time.Second),
		"During: there is no time from -1s to 2s":                                                retrytest.Refused().During(-time.Second, 2*time.Second),
		"Status: 100 is not between 200 and 999":                                                 retrytest.Status(100).Always(),
		"Status: 1000 is not between 200 and 999":                                                retrytest.Status(1000).Always(),
		"Status: 0 is not between 200 and 999":                                                   retrytest.Status(0).Body("x").Early().Always(),
		`Status: the header "A" has no value`:                                                    retrytest.Status(200, "A").Always(),
		"RetryAfter: the wait -1s is negative":                                                   retrytest.RetryAfter(429, -time.Second).Always(),
		"Fail: the error is nil":                                                                 retrytest.Fail(nil).Always(),
		"Cut: -1 bytes are less than none":                                                       retrytest.Real().Cut(-1).Always(),
		"Stall: the body already ends otherwise":                                                 retrytest.Real().Cut(1).Stall(1).Always(),
		"200, cut after 3 bytes: the body has no more than 3 bytes":                              retrytest.Status(200).Cut(3).Body("123").Always(),
		"503, stalls after 0 bytes: the body has no more than 0 bytes":                           retrytest.Status(503).Stall(0).Always(),
		"real answer, cut after 0 bytes: the body is empty, because a nil gives the real answer": retrytest.Real().Cut(0).Always(),
		"Cut: hang has no answer":                                                                retrytest.Hang().Cut(1).Always(),
		"Unsized: connection refused has no answer":                                              retrytest.Refused().Unsized().Always(),
		"Slow: the wait -1s is negative":                                                         retrytest.Real().Slow(-time.Second).Always(),
		"Body: connection refused has a body of its own, or none":                                retrytest.Refused().Body("x").Always(),
		"Early: real answer is not an answer of its own":                                         retrytest.Real().Early().Always(),
	} {
		assert.PanicsWithError(t, "retrytest: rule 2: "+want, func() {
			retrytest.NewTransport(nil, nil, retrytest.Refused().Nth(1), rule)
		})
		tb := &failingTB{}
		tb.run(func() { retrytest.NewTransport(tb, nil, retrytest.Refused().Nth(1), rule) })
		assert.Equal(t, "retrytest: rule 2: "+want, tb.fatal)
	}
}

// The log of the test names the line that has the rule.
func TestRuleThatMakesNoSenseIsTheMistakeOfTheCaller(t *testing.T) {
	for name, construct := range map[string]func(tb testing.TB){
		"NewTransport": func(tb testing.TB) { retrytest.NewTransport(tb, nil, retrytest.Rule{}) },
		"NewHandler":   func(tb testing.TB) { retrytest.NewHandler(tb, nil, retrytest.Rule{}) },
	} {
		tb := &failingTB{}
		tb.run(func() { construct(tb) })
		assert.Contains(t, tb.blamed, t.Name(), name)
	}
}

// The caller may change its numbers.
func TestRuleKeepsItsNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbers := []int{2}
		rule := retrytest.Status(503).Nth(numbers...)
		numbers[0] = 1
		assert.Equal(t, []int{200, 503}, statuses(t, retrytest.NewTransport(t, nil, rule), 2))
	})
}

func TestHandlerCannotDoEverything(t *testing.T) {
	for name, step := range map[string]retrytest.Step{
		"connection refused": retrytest.Refused(), "no such host": retrytest.NoSuchHost(), "dial timeout": retrytest.Timeout(),
		"bad certificate": retrytest.BadCertificate(), "REFUSED_STREAM": retrytest.RefusedStream(), "enough": retrytest.Fail(errEnough),
	} {
		want := fmt.Sprintf("retrytest: rule 1: no handler can do %q, but a Transport can", name)
		assert.PanicsWithError(t, want, func() { retrytest.NewHandler(nil, nil, step.Always()) })
	}
	assert.Panics(t, func() { retrytest.NewHandler(nil, nil, retrytest.Real().Stall(1).Always()) })
	retrytest.NewHandler(t, nil, retrytest.Reset().Always(), retrytest.Hang().Always())
}

// failingTB is a testing.TB that fails.
type failingTB struct {
	testing.TB
	fatal    string
	helpers  []string // functions
	blamed   string   // the function that the log names beside fatal
	log      string
	failed   bool
	cleanups []func()
}

func (f *failingTB) Helper()                  { f.helpers = append(f.helpers, callers()[1]) }
func (f *failingTB) Context() context.Context { return context.Background() }
func (f *failingTB) Failed() bool             { return f.failed }
func (f *failingTB) Cleanup(c func())         { f.cleanups = append(f.cleanups, c) }
func (f *failingTB) Fatal(args ...any) {
	f.fatal = fmt.Sprint(args...)
	for _, name := range callers()[1:] {
		if !slices.Contains(f.helpers, name) {
			f.blamed = name
			break
		}
	}
	panic(f)
}
func (f *failingTB) Logf(format string, args ...any) { f.log += fmt.Sprintf(format, args...) }

// callers returns the names of the functions on the stack, the caller of callers first.
func callers() (names []string) {
	pcs := make([]uintptr, 20)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		names = append(names, frame.Function)
	}
	return names
}

// run calls c as a test, which Fatal ends.
func (f *failingTB) run(c func()) {
	defer func() {
		if p := recover(); p != nil && p != any(f) {
			panic(p)
		}
		for _, c := range f.cleanups {
			c()
		}
	}()
	c()
}

func TestTableIsLoggedIfTheTestFails(t *testing.T) {
	for _, failed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tb := &failingTB{failed: failed}
			tb.run(func() {
				rt := retrytest.NewTransport(tb, serves("12345"),
					retrytest.RetryAfter(503, 2*time.Second).Nth(1),
					retrytest.Real().Cut(3).Slow(time.Second).Nth(2),
					retrytest.Fail(errors.Join(errors.New(`Get "http://user:password@shop.example/?key=secret": no`), errEnough)).Nth(3),
					retrytest.Status(401).Early().Nth(4),
				)
				for _, body := range []string{"first", "", "third", "fourth"} {
					req, err := http.NewRequest(http.MethodPut, "http://user:password@shop.example/books?key=secret", strings.NewReader(body))
					require.NoError(t, err)
					if _, err = rt.RoundTrip(req); body != "third" {
						require.NoError(t, err)
					}
				}
			})
			if !failed {
				assert.Empty(t, tb.log)
				return
			}
			assert.Equal(t, `retrytest: what arrived
number  at  request                        body              what became of it
1       0s  PUT http://shop.example/books  5 bytes           503, Retry-After: 2
2       0s  PUT http://shop.example/books  0 bytes           real answer, cut after 3 bytes, after 1s
3       1s  PUT http://shop.example/books  5 bytes           Get "http://shop.example/": no enough
4       1s  PUT http://shop.example/books  at least 0 bytes  401, early
`, tb.log)
		})
	}
}

func TestRecordsSayWhatArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retrytest.NewTransport(t, nil, retrytest.Status(503).Nth(2))
		req, err := http.NewRequest("", "http://shop.example/books?key=secret", strings.NewReader("upload"))
		require.NoError(t, err)
		req.Header.Set("X-Id", "1")
		_, err = rt.RoundTrip(req)
		require.NoError(t, err)
		time.Sleep(time.Second)
		req.Header.Set("X-Id", "2")
		req.Body, req.Method, req.Host = nil, "", "" // net/http takes GET and the URL's host
		_, err = rt.RoundTrip(req)
		require.NoError(t, err)

		want := []retrytest.Record{
			{1, 0, "GET", "http://shop.example/books?key=secret", "shop.example", http.Header{"X-Id": {"1"}}, []byte("upload"), true, "real answer"},
			{2, time.Second, "GET", "http://shop.example/books?key=secret", "shop.example", http.Header{"X-Id": {"2"}}, nil, true, "503"},
		}
		got := rt.Records()
		assert.Equal(t, want, got)
		got[0].Header.Set("X-Id", "changed")
		got[0].Body[0] = 'U'
		assert.Equal(t, want, rt.Records(), "records are copies")
	})
}

func TestTransportServesManyAtOnce(t *testing.T) {
	rt := retrytest.NewTransport(t, nil, retrytest.Status(503).Nth(1, 2, 3), retrytest.Reset().Share(0.5, 1))
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			req, err := http.NewRequest(http.MethodPut, "http://shop.example/", strings.NewReader("upload"))
			if !assert.NoError(t, err) {
				return
			}
			if resp, err := rt.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
			rt.Records()
		})
	}
	wg.Wait()
	got := rt.Records()
	assert.Len(t, got, 100)
	busy := 0
	for i, r := range got {
		assert.Equal(t, i+1, r.Number)
		assert.Equal(t, "upload", string(r.Body))
		if r.Step == "503" {
			busy++
		}
	}
	assert.Equal(t, 3, busy)
}

func TestStepsAreNamedAsInTheTable(t *testing.T) {
	assert.Equal(t, "503, Retry-After: 2", fmt.Sprint(retrytest.RetryAfter(503, 2*time.Second)))
	assert.Equal(t, "real answer, cut after 3 bytes", fmt.Sprint(retrytest.Real().Cut(3)))
}
