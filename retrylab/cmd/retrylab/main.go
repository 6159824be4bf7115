// Command retrylab says what a retry policy does to a service: at your rate, with your number of
// processes. It runs the real Transport in virtual time.
//
//	go run github.com/retryhttp/retryhttp/retrylab/cmd/retrylab@latest -rate 50 -processes 20 -uptime 5s -outage 3s
//
// In a clone of the repository:
//
//	cd retrylab && go run ./cmd/retrylab -rate 50 -processes 20 -uptime 5s -outage 3s
//
// A flag that is not given leaves the default. The tables go to the standard output, and progress to the
// standard error. With -html, a page with plots goes to a file, too. The exit status is 1 if the policy
// panicked, a request never ended, or the output could not be written, and 2 for flags that make no sense.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/retryhttp/retryhttp/retrylab"
	"github.com/retryhttp/retryhttp/retrylab/internal/bubble"
)

func main() {
	comparison, html, err := parse(os.Args[1:], os.Stderr)
	comparison.About = about(os.Args[1:], time.Now())
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	bubble.Main(func(t *testing.T) int { return run(t, comparison, html) })
}

func run(t *testing.T, c retrylab.Comparison, html string) int {
	began := time.Now()
	c.Progress = os.Stderr
	report := c.Run(t)
	fmt.Fprintf(os.Stderr, "done in %v\n\n", time.Since(began).Round(100*time.Millisecond))
	if err := report.WriteTable(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if html != "" {
		if err := writeHTML(report, html); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// go run -C changes the directory, so the whole path is said.
		if path, err := filepath.Abs(html); err == nil {
			html = path
		}
		fmt.Fprintf(os.Stderr, "the page is in %s\n", html)
	}
	if len(report.Failures()) > 0 {
		return 1
	}
	return 0
}

// about says how to make the report again.
func about(args []string, now time.Time) []retrylab.Setting {
	version := "unknown"
	if build, ok := debug.ReadBuildInfo(); ok {
		version = versionOf(build)
	}
	return []retrylab.Setting{
		{Name: "command", Value: commandOf(args)},
		{Name: "version", Value: version},
		{Name: "made on", Value: now.Format(time.DateOnly)},
	}
}

// commandOf returns a command for a shell, in which an argument that a shell would change is quoted.
func commandOf(args []string) string {
	command := "retrylab"
	for _, arg := range args {
		if arg == "" || strings.ContainsFunc(arg, needsQuotes) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		command += " " + arg
	}
	return command
}

func needsQuotes(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_=.,:/+%@", r)
}

// versionOf returns the version of the lab, or the commit of a clone.
func versionOf(build *debug.BuildInfo) string {
	version := build.Main.Version
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" && version == "(devel)" {
			version = s.Value
		}
	}
	return version + ", " + build.GoVersion
}

func writeHTML(report retrylab.Report, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteHTML(f), f.Close())
}
