package questions_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const writes = `retryhttp_client_call_stops_total{server_address="bank", http_request_method="POST", retryhttp_ambiguous="true"`

// requests is a series of otelhttp, which leaves the port of a scheme out.
func requests(more string) string {
	return `http_client_request_duration_seconds_count{server_address="shop", ` + more + "}"
}

// promtool asks the questions about series that a program makes seldom. The scrapes are 15 s apart.
func TestPromtoolAnswersTheQuestions(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed; .ci/run installs it on Debian, with prometheus")
	}
	for name, tt := range map[string]struct {
		id     string
		series map[string]string
		at     string
		labels string // of the answer; "" if there is none
		value  float64
	}{
		"a first event": {
			"ambiguous", map[string]string{writes + "}": "_x10 2x10"}, "3m",
			`{server_address="bank", http_request_method="POST"}`, 2,
		},
		"a first event, of two processes": {
			"ambiguous", map[string]string{
				writes + `, instance="a"}`: "_x10 2x10",
				writes + `, instance="b"}`: "7x30",
			}, "3m",
			`{server_address="bank", http_request_method="POST"}`, 2,
		},
		"no event after a scrape that failed": {
			"ambiguous", map[string]string{writes + "}": "7x10 stale 7x30"}, "3m50s", "", 0,
		},
		"a first event after a restart": {
			"ambiguous", map[string]string{writes + "}": "7x10 stale _x20 1x10"}, "8m15s",
			`{server_address="bank", http_request_method="POST"}`, 1,
		},
		"a failing service beside a larger one": {
			"failing", map[string]string{
				requests(`job="web", http_response_status_code="200"`):  "0+1000x20",
				requests(`job="mail", http_response_status_code="503"`): "0+10x20",
			}, "3m",
			`{job="mail", server_address="shop"}`, 1,
		},
		"one process of four without the balance": {
			"away", map[string]string{
				`retryhttp_client_budget_shared{instance="a", server_address="shop"}`: "0x20",
				`retryhttp_client_budget_shared{instance="b", server_address="shop"}`: "1x20",
				`retryhttp_client_budget_shared{instance="c", server_address="shop"}`: "1x20",
				`retryhttp_client_budget_shared{instance="d", server_address="shop"}`: "1x20",
			}, "3m",
			`{server_address="shop"}`, 0.25,
		},
		"a backoff without a Gate": {
			"backoff", map[string]string{`retryhttp_client_call_waiting{server_address="shop"}`: "3x20"}, "3m",
			`{server_address="shop"}`, 3,
		},
		"a backoff beside a hold": {
			"backoff", map[string]string{
				`retryhttp_client_call_waiting{server_address="shop"}`: "3x20",
				`retryhttp_client_gate_held{server_address="shop"}`:    "2x20",
			}, "3m",
			`{server_address="shop"}`, 1,
		},
		"a hold and no backoff": {
			"backoff", map[string]string{
				`retryhttp_client_call_waiting{server_address="shop"}`: "3x20",
				`retryhttp_client_gate_held{server_address="shop"}`:    "4x20",
			}, "3m", "", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			type object map[string]any
			var series, samples []object
			for s, values := range tt.series {
				series = append(series, object{"series": s, "values": values})
			}
			if tt.labels != "" {
				samples = append(samples, object{"labels": tt.labels, "value": tt.value})
			}
			text, err := json.Marshal(object{"tests": []object{{ // JSON is YAML
				"interval":     "15s",
				"input_series": series,
				"promql_expr_test": []object{{
					"expr": question(t, tt.id).In("1m", "15s"), "eval_time": tt.at, "exp_samples": samples,
				}},
			}}})
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "test.yml")
			require.NoError(t, os.WriteFile(file, text, 0o600))
			out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput()
			require.NoError(t, err, "%s", strings.TrimSpace(string(out)))
		})
	}
}
