package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

// command is the path of the command, which is built once.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "retrylab")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		command = filepath.Join(dir, "retrylab.exe") // a name that any system can run
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", command, ".").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// runCommand returns what the command writes, and its exit status.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(command, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), exit.ExitCode()
	}
	require.NoError(t, err)
	return out.String(), errs.String(), 0
}

func TestCommandWritesTablesAndNothingElse(t *testing.T) {
	stdout, stderr, status := runCommand(t,
		"-rate", "50", "-processes", "20", "-uptime", "5s", "-outage", "3s", "-seeds", "1", "-experiments", "outage, layers")
	assert.Zero(t, status)
	assert.Regexp(t, `^command: retrylab -rate 50 -processes 20 .*\nversion: .*, go1.*\nmade on: 20[0-9-]+\n\nOUTAGE\nfor 3s, `, stdout)
	assert.Contains(t, stdout, "rate 50/s, processes 20, latency 10ms,\nuptime 5s, seeds 1\npolicy: the defaults\n")
	assert.Contains(t, stdout, "\nLAYERS\n")
	assert.Regexp(t, `\npolicy +[0-9]+(\.[0-9]+)? +[0-9.]+ % `, stdout)
	assert.Regexp(t, `\nno retries +[0-9]+(\.[0-9]+)? +100\.0 % `, stdout)
	assert.NotContains(t, stdout, "PASS")
	assert.Regexp(t, `^1 of 2: outage\n2 of 2: layers\ndone in [0-9.]+m?s\n\n$`, stderr)
}

func TestCommandRunsAllExperimentsByDefault(t *testing.T) {
	stdout, stderr, status := runCommand(t, "-rate", "10", "-uptime", "1s", "-seeds", "1")
	assert.Zero(t, status, stderr)
	for _, name := range names() {
		assert.Contains(t, "\n"+stdout, "\n"+strings.ToUpper(name)+"\n")
	}
}

func TestCommandReportsAPolicyThatNeverEnds(t *testing.T) {
	stdout, _, status := runCommand(t, "-max-attempts", "-1", "-backoff-base", "1ns", "-backoff-limit", "1ns", "-no-budget", "-no-gate",
		"-experiments", "dead-backend", "-backends", "2", "-dead", "2", "-seeds", "1", "-rate", "10")
	assert.Equal(t, 1, status)
	assert.Contains(t, stdout, `FAILED: dead-backend, policy "policy", seed 1: a request made more than 10000 attempts`)
	assert.Regexp(t, `\nno retries +0\.0 % `, stdout)
}

func TestCommandNamesBadInput(t *testing.T) {
	for says, args := range map[string][]string{
		"-jobs is for rate-limit, which -experiments leaves out": {"-experiments", "outage, cron", "-jobs", "7"},
		"-rate is 0, and must be above 0":                        {"-rate", "0"},
		"-processes is 0":                                        {"-processes", "0"},
		"-outage is 0s":                                          {"-outage", "0s"},
		"Rate is -5, and must be above 0":                        {"-rate", "-5"},
		"For is -3s":                                             {"-outage", "-3s"},
		"Dead is 5, and must be at most Backends, which":         {"-dead", "5"},
		`-experiments names "oops"; there are outage, `:          {"-experiments", "oops"},
		"flag provided but not defined: -oops":                   {"-oops"},
		`"oops" is not a flag`:                                   {"oops"},
		`invalid value "x" for flag -rate`:                       {"-rate", "x"},
	} {
		stdout, stderr, status := runCommand(t, args...)
		assert.Equal(t, 2, status, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, says)
	}
}

func TestCommandHelps(t *testing.T) {
	stdout, stderr, status := runCommand(t, "-h")
	assert.Zero(t, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "-max-retry-after time")
	assert.NotContains(t, stderr, "-test.")
}

func TestFlagsReachThePolicy(t *testing.T) {
	c, html, err := parse(strings.Fields("-html report.html -max-attempts 7 -max-elapsed 9s -attempt-timeout 1s -max-retry-after 2s -backoff-base 5s -backoff-limit 5s "+
		"-budget-ratio .2 -budget-healthy-ratio .3 -burst 4 -budget-window 3s -min-per-second 6 -hold 8s -hold-first "+
		"-hedge .03 -hedge-after 11ms -hedge-min 12ms"), nil)
	require.NoError(t, err)
	assert.Equal(t, "report.html", html)
	p := c.Policies[0].New()
	assert.Equal(t, 7, p.MaxAttempts)
	assert.Equal(t, "9s 1s 2s", strings.Join([]string{p.MaxElapsed.String(), p.AttemptTimeout.String(), p.MaxRetryAfter.String()}, " "))
	assert.LessOrEqual(t, p.Backoff(3, 0).Seconds(), 5.0)
	b := p.Budget.(*retryhttp.TokenBucket)
	assert.Equal(t, []any{.2, .3, 4, 3 * time.Second, 6.0}, []any{b.Ratio, b.HealthyRatio, b.Burst, b.Window, b.MinPerSecond})
	assert.Equal(t, []any{8 * time.Second, true}, []any{p.Gate.Hold, p.Gate.HoldFirst})
	assert.Equal(t, []any{.03, 11 * time.Millisecond, 12 * time.Millisecond}, []any{p.Hedge.Share, p.Hedge.After, p.Hedge.Min})
	assert.NotSame(t, p.Budget, c.Policies[0].New().Budget, "each process has its own")

	c, _, err = parse([]string{"-no-budget", "-no-gate"}, nil)
	require.NoError(t, err)
	p = c.Policies[0].New()
	assert.Equal(t, retryhttp.Unlimited{}, p.Budget)
	assert.Negative(t, p.Gate.Hold)
	assert.Nil(t, p.Hedge)
}

func TestFlagsReachTheExperiments(t *testing.T) {
	c, _, err := parse(strings.Fields("-rate 7 -latency 20ms -deadline 3s -part .5 -silent -room 2 -slowly 4s -backends 6 -dead 2 -cost .1 "+
		"-spike 3 -spike-for 5s -down 1s -allowed 9 -workers 8 -jobs 70 -takes 6s -slower 4 -services 2 -attempt-timeout 600ms "+
		"-replicas 5 -broken 2 -hang -http2 -every 3s -flap 1s -requests 11 -capacity 12 -long-outage 13s -long-hold 14s"), nil)
	require.NoError(t, err)
	load := retrylab.Load{Rate: 7, Latency: 20 * time.Millisecond, Deadline: 3 * time.Second}
	assert.Equal(t, []retrylab.Experiment{
		retrylab.Outage{Load: load, Part: .5, Silent: true, Room: 2, Slowly: 4 * time.Second},
		retrylab.DeadBackend{Load: load, Backends: 6, Dead: 2},
		retrylab.Overload{Load: load, Cost: .1},
		retrylab.Spike{Load: load, Times: 3, For: 5 * time.Second, Patience: 600 * time.Millisecond},
		retrylab.Deploy{Load: load, Backends: 6, Down: time.Second},
		retrylab.RateLimit{Load: load, Allowed: 9, Workers: 8, Jobs: 70},
		retrylab.Reset{Load: load, Takes: 6 * time.Second},
		retrylab.LatencyStep{Load: load, Slower: 4},
		retrylab.Layers{Load: load, Services: 2},
		retrylab.Replicas{Load: load, Replicas: 5, Broken: 2, Hang: true, HTTP2: true},
		retrylab.Flapping{Load: load, Down: time.Second, Every: 3 * time.Second},
		retrylab.Burst{Load: load, Requests: 11},
		retrylab.Cron{Load: load, Requests: 11, Takes: 12},
		retrylab.LongOutage{Load: load, For: 13 * time.Second, Hold: 14 * time.Second},
		retrylab.Invited{Load: load},
		retrylab.Workers{Load: load, Workers: 8},
	}, c.Experiments)
}

func TestCommandWritesAPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	args := []string{"-rate", "10", "-uptime", "1s", "-seeds", "1", "-experiments", "outage", "-html"}
	stdout, stderr, status := runCommand(t, append(args, file)...)
	assert.Zero(t, status)
	assert.Contains(t, stdout, "\nOUTAGE\n", "the tables come as well")
	assert.Contains(t, stderr, "the page is in "+file)
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(page, []byte("<!DOCTYPE html>")))
	assert.True(t, bytes.HasSuffix(bytes.TrimSpace(page), []byte("</html>")))

	_, stderr, status = runCommand(t, append(args, filepath.Join(file, "below"))...)
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "below: not a directory")
}

// A reader of the report can paste its command into a shell.
func TestCommandOfAReportIsQuoted(t *testing.T) {
	for want, args := range map[string][]string{
		"retrylab":                              nil,
		"retrylab -rate 0.5 -html=out/a.html":   {"-rate", "0.5", "-html=out/a.html"},
		"retrylab -experiments 'outage, reset'": {"-experiments", "outage, reset"},
		`retrylab '' 'it'\''s $HOME' '*'`:       {"", "it's $HOME", "*"},
	} {
		assert.Equal(t, want, commandOf(args))
	}
}
