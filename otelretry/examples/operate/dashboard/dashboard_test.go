package dashboard_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/otelretry/examples/operate/dashboard"
	"github.com/retryhttp/retryhttp/otelretry/examples/operate/questions"
)

var update = flag.Bool("update", false, "write the dashboard")

const file = "../grafana/dashboard.json"

func TestDashboardIsGenerated(t *testing.T) {
	want, err := dashboard.JSON()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(want) == string(got), "run go test ./dashboard -update")
}

func TestDashboardAnswersEachQuestion(t *testing.T) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
			GridPos     struct{ X, Y, W, H int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	places := make(map[[2]int]string)
	titles := make(map[string]bool)
	for _, p := range board.Panels {
		place := [2]int{p.GridPos.X, p.GridPos.Y}
		assert.Empty(t, places[place], "%s is below %s", p.Title, places[place])
		places[place] = p.Title
		if p.Type == "row" {
			continue
		}
		titles[p.Title] = true
		require.Len(t, p.Targets, 1, p.Title)
		assert.NotContains(t, p.Targets[0].Expr, "$window")
		assert.NotContains(t, p.Targets[0].Expr, "$step")
		if p.Type == "timeseries" {
			assert.Contains(t, p.Targets[0].LegendFormat, "{{job}} {{server_address}} {{server_port}}", p.Title)
		}
	}
	for _, q := range questions.All {
		assert.True(t, titles[q.Title], q.Title)
	}
}
