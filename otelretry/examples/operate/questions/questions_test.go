package questions_test

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/otelretry/examples/operate/prom"
	"github.com/retryhttp/retryhttp/otelretry/examples/operate/questions"
	"github.com/retryhttp/retryhttp/otelretry/examples/operate/trouble"
)

// answers maps the ID of a question to hosts in its answer in trouble, each with the least and the
// greatest value. The answer may contain more hosts. A reason or a method may follow the host.
var answers = map[string]map[string][2]float64{
	"failing":   {"shop": {0.5, 1}, "stock": {0.5, 1}, "basket": {0.2, 0.5}, "payments": {0.3, 0.8}},
	"since":     {"shop": {1, 1e12}, "stock": {1, 1e12}}, // compared with the begin below
	"failed":    {"shop budget 503": {1, 1e6}, "reports budget 503": {1, 1e6}, "limited budget 429": {1, 1e6}},
	"closed":    {"limited": {0.1, 3}},
	"attempts":  {"payments": {1.2, 4}, "fleet": {1, 1}},
	"detours":   {"orders": {0.5, 1}},
	"spent":     {"shop books": {0, 1}, "shop music": {0, 1}},
	"sparing":   {"reports": {1, 1}}, // an outage is no overload
	"away":      {"fleet": {1, 1}},
	"view":      {"fleet": {3, 1e3}},
	"waiting":   {"shop": {1, 1e4}, "stock": {1, 1e4}, "files": {1, 1e4}},
	"backoff":   {"payments": {1, 1e4}},
	"gate":      {"stock": {1, 1e4}},
	"line":      {"reports": {1, 1e4}},
	"waited":    {"stock": {0.1, 1e3}, "payments": {0.1, 1e3}},
	"held":      {"stock": {0.1, 1e3}},
	"ambiguous": {"payments PUT": {1, 1e6}},
	"twice":     {"payments PUT": {1, 1e6}},
	"hedged":    {"search": {0.001, 0.2}},
	"won":       {"search": {0.1, 1}},
	"resumed":   {"files": {1, 1e6}},
	"given-up":  {"files changed": {1, 1e6}},
}

// inCalm are the questions that have an answer while nothing is wrong.
var inCalm = []string{"attempts", "view", "hedged", "won"}

const window, step = "16s", "2s"

func TestPrometheusAnswersTheQuestionsAboutAProgramInTrouble(t *testing.T) {
	if !prom.Installed() {
		t.Skip("prometheus is not installed; .ci/run installs it on Debian")
	}
	program, err := trouble.New(120 * time.Millisecond) // which leaves a busy machine time for the scrapes
	require.NoError(t, err)
	defer program.Close()
	server := httptest.NewServer(program.Metrics())
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "http://")
	started := time.Now()
	asked, err := prom.Start(t.Context(), target, 2*time.Second, "")
	require.NoError(t, err)
	defer asked.Stop()

	eventually(t, func(ctx context.Context) (missing []string) {
		for _, q := range questions.All {
			got, err := asked.Ask(ctx, q.In(window, step))
			require.NoError(t, err, q.ID)
			if hasAnswer := len(got) > 0; hasAnswer != slices.Contains(inCalm, q.ID) && !mayAnswer(q.ID) {
				missing = append(missing, fmt.Sprint(q.ID, " in calm: ", got))
			}
		}
		return missing
	})

	begun := time.Now()
	program.Begin()
	found := make(map[string]bool) // not all of them need be true at one moment
	eventually(t, func(ctx context.Context) (missing []string) {
		for _, q := range questions.All {
			got, err := asked.Ask(ctx, q.In(window, step))
			require.NoError(t, err, q.ID)
			for host, between := range answers[q.ID] {
				name := q.ID + ": " + host
				if value, ok := valueOf(got, host); ok && between[0] <= value && value <= between[1] {
					found[name] = true
				}
				if !found[name] {
					missing = append(missing, fmt.Sprint(name, " in trouble: ", got))
				}
			}
		}
		return missing
	})
	names := namesInAlerts(t)
	eventually(t, func(ctx context.Context) (missing []string) { // a scrape may have failed
		since, err := asked.Ask(ctx, question(t, "since").In(window, step))
		require.NoError(t, err)
		if value, _ := valueOf(since, "stock"); math.Abs(value-float64(begun.Unix())) > 15 {
			missing = append(missing, fmt.Sprint("a host fails since the trouble began: ", begun.Unix(), since))
		}
		for name := range names {
			got, err := asked.Ask(ctx, "count("+name+")")
			require.NoError(t, err)
			if len(got) != 1 {
				missing = append(missing, name+", which an alert is about")
			}
		}
		return missing
	})

	exemplars, err := asked.Exemplars(t.Context(), "retryhttp_client_call_attempts_bucket", started)
	require.NoError(t, err)
	assert.NotZero(t, exemplars)
}

// namesInAlerts returns the names of the metrics that alerts are about.
func namesInAlerts(t *testing.T) map[string]bool {
	text, err := os.ReadFile("../prometheus/alerts.yml")
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, found := range regexp.MustCompile(`(retryhttp_client_\w+)[){\[\s]`).FindAllStringSubmatch(string(text), -1) {
		names[found[1]] = true
	}
	require.Len(t, names, 7)
	return names
}

// mayAnswer reports whether this question may have an answer in calm. A busy machine gives it one, or
// hedges do: they take detours if they have any.
func mayAnswer(id string) bool {
	return id == "away" || id == "waiting" || id == "backoff" || id == "detours"
}

func question(t *testing.T, id string) questions.Question {
	i := slices.IndexFunc(questions.All, func(q questions.Question) bool { return q.ID == id })
	require.GreaterOrEqual(t, i, 0)
	return questions.All[i]
}

// eventually calls f until nothing is missing.
func eventually(t *testing.T, f func(ctx context.Context) (missing []string)) {
	t.Helper()
	const long = 4 * time.Minute
	var missing []string
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(time.Second) {
		if missing = f(t.Context()); len(missing) == 0 {
			return
		}
	}
	t.Fatalf("not in %v:\n%s", long, strings.Join(missing, "\n"))
}

// valueOf returns the value for a host with other labels' values.
func valueOf(got []prom.Answer, name string) (float64, bool) {
	words := strings.Fields(name)
	for _, a := range got {
		values := make([]string, 0, len(a.Labels))
		for _, v := range a.Labels {
			values = append(values, v)
		}
		if a.Labels["server_address"] == words[0]+".example" && !slices.ContainsFunc(words[1:], func(w string) bool {
			return !slices.Contains(values, w)
		}) {
			return a.Value, true
		}
	}
	return 0, false
}

func TestEachQuestionIsTested(t *testing.T) {
	var ids []string
	for _, q := range questions.All {
		ids = append(ids, q.ID)
		assert.NotEmpty(t, answers[q.ID], q.ID)
		assert.NotEmpty(t, q.Title+q.Group+q.Unit, q.ID)
	}
	assert.Len(t, answers, len(ids))
	slices.Sort(ids)
	assert.Len(t, slices.Compact(ids), len(questions.All))
}

// Services that share a Prometheus have answers of their own.
func TestEachGroupingNamesTheService(t *testing.T) {
	alerts, err := os.ReadFile("../prometheus/alerts.yml")
	require.NoError(t, err)
	queries := map[string]string{"alerts.yml": string(alerts)}
	for _, q := range questions.All {
		queries[q.ID] = q.Query
	}
	for name, query := range queries {
		groupings := regexp.MustCompile(`(by|on) \(([^)]*)\)`).FindAllStringSubmatch(query, -1)
		assert.NotEmpty(t, groupings, name)
		for _, g := range groupings {
			labels := strings.Split(strings.TrimPrefix(g[2], "le, "), ", ")
			assert.Equal(t, "job", labels[0], "%s: %s", name, g[0])
		}
	}
}
