package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed; .ci/run installs it on Debian, with prometheus")
	}
	cmd := exec.Command("promtool", args...)
	cmd.Dir = "prometheus"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "check", "rules", "alerts.yml")
	promtool(t, "test", "rules", "alerts_test.yml")
}

func TestPrometheusIsConfigured(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
}

// rules are a file of alerts.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Annotations map[string]string
		}
	}
}

func parse(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}

func TestEachAlertHasATestAndASectionOfTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../../../docs/operating.md")
	require.NoError(t, err)
	sections := make(map[string]bool)
	for _, title := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(runbook), -1) {
		sections[anchor(title[1])] = true
	}
	var file rules
	parse(t, "prometheus/alerts.yml", &file)
	tests, err := os.ReadFile("prometheus/alerts_test.yml")
	require.NoError(t, err)
	require.Len(t, file.Groups, 1)
	require.Len(t, file.Groups[0].Rules, 7)
	for _, r := range file.Groups[0].Rules {
		url, section, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		assert.Equal(t, "https://github.com/retryhttp/retryhttp/blob/main/docs/operating.md", url, r.Alert)
		assert.True(t, sections[section], "%s links to %s", r.Alert, section)
		assert.Contains(t, string(tests), "alertname: "+r.Alert+"\n        exp_alerts:\n          -", "a test in which it fires")
		assert.Contains(t, string(tests), "alertname: "+r.Alert+"\n        exp_alerts: []", "a test in which it does not")
	}
}

// anchor returns how GitHub links to a title.
func anchor(title string) string {
	title = strings.ToLower(strings.ReplaceAll(title, " ", "-"))
	return regexp.MustCompile(`[^a-z0-9_-]`).ReplaceAllString(title, "")
}

func TestComposeFileMountsWhatIsThere(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Image   string
			Volumes []string
		}
		Volumes map[string]any
	}
	parse(t, "compose.yaml", &compose)
	require.Len(t, compose.Services, 3)
	for name, s := range compose.Services {
		assert.Contains(t, s.Image, ":", name)
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, named := compose.Volumes[source]; !named {
				_, err := os.Stat(filepath.FromSlash(source))
				assert.NoError(t, err)
			}
		}
	}
	for _, file := range []string{"datasources/prometheus.yml", "dashboards/dashboards.yml"} {
		var provisioned map[string]any
		parse(t, "grafana/provisioning/"+file, &provisioned)
		assert.EqualValues(t, 1, provisioned["apiVersion"])
	}
}

// The commands need no daemon.
func TestComposeFileIsValid(t *testing.T) {
	for _, command := range []string{"docker compose", "docker-compose"} {
		words := strings.Fields(command)
		if exec.Command(words[0], append(words[1:], "version")...).Run() != nil {
			continue
		}
		out, err := exec.Command(words[0], append(words[1:], "config", "--quiet")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	t.Skip("neither docker compose nor docker-compose is installed")
}
