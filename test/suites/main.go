// Command suites runs the test suites of other modules with this library in the path of every
// http.Client, and compares the results with a run without it. It changes no source of theirs: an
// overlay lets net/http wrap the RoundTripper of each Client, and adds a file to each tested package.
//
//	go run . [-suite client-go] [-keep]
//
// Each suite runs up to seven times:
//
//   - alone, to know which tests fail anyway;
//   - once: the library makes one attempt, and must change nothing except the type of errors;
//   - bare: the same below a RoundTripper that returns the bare error, and must change nothing;
//   - base: bare, with a Base that each http.Transport keeps from request to request;
//   - retrying: with up to four attempts. Tests that count the requests of a failing server differ;
//   - broken: retrying, with such a Base, and the first of every three connections without TLS and HTTP/2
//     reaches a replica that answers 503. The tests that this fails are counted, with the library and without it.
//
// The lists in suites.go hold the tests that must differ, with the reason. They are left out. Any other
// difference that shows in three runs of the test is printed, and the command fails. It needs the Go
// module proxy, and takes an hour on two cores.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// suite is the tests of a module, in some of its packages.
type suite struct {
	name, module, version string
	packages              []string
	flags                 []string          // of go test
	differ                map[string]string // by mode: a pattern of the tests that must differ, and are left out
	std                   bool              // the module is the standard library
	calm                  bool              // its tests count requests, so nothing is sent again
}

var modes = []string{"once", "bare", "base", "retrying"}

func main() {
	only := flag.String("suite", "", "the name of the one suite to run")
	keep := flag.Bool("keep", false, "keep the copies of the sources")
	flag.Parse()
	failed := false
	for _, s := range suites {
		if *only != "" && *only != s.name {
			continue
		}
		if err := s.run(*keep); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// run runs the suite in each mode, and returns an error if a mode changes what it may not.
func (s suite) run(keep bool) error {
	dir := filepath.Join(os.TempDir(), "retryhttp-suites", s.name) // the same each time, for the build cache
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if keep {
		fmt.Println(s.name, "is in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	b := bench{suite: s, dir: dir, source: filepath.Join(dir, "source")}
	if err := b.prepare(); err != nil {
		return err
	}
	alone, err := b.test("", "")
	if err != nil {
		return err
	}
	fmt.Printf("%s %s: %d tests pass alone, and %d fail\n", s.name, s.version, alone.passed, len(alone.failed))
	var all error
	for _, mode := range modes {
		if b.calm && mode == "retrying" {
			continue
		}
		with, err := b.test(mode, "")
		if err != nil {
			return err
		}
		var differ []string
		for _, test := range slices.Sorted(maps.Keys(with.failed)) {
			if !alone.failed[test] && b.failsAgain(mode, test) {
				differ = append(differ, test)
			}
		}
		fmt.Printf("  %s: %d pass, and %d fail that pass alone\n", mode, with.passed, len(differ))
		if len(differ) > 0 {
			all = errors.Join(all, fmt.Errorf("%s: %s", mode, strings.Join(differ, ", ")))
		}
	}
	if b.calm {
		return all
	}
	return errors.Join(all, b.broken(alone))
}

// broken reports how many tests a broken replica fails, without the library and with it. It returns an error if
// there are more with it. A proxy that a test has in its path has no library, and so some fail in both.
func (b *bench) broken(alone results) error {
	var failed [2]int
	for i, mode := range []string{"broken alone", "broken"} {
		with, err := b.test(mode, "")
		if err != nil {
			return err
		}
		for test := range with.failed {
			if !alone.failed[test] {
				failed[i]++
			}
		}
	}
	fmt.Printf("  broken: %d fail that pass alone, and without the library %d\n", failed[1], failed[0])
	if failed[1] > failed[0] {
		return errors.New("broken: more tests fail with the library than without it")
	}
	return nil
}

// bench is a copy of a module, with what its tests need to run with the library.
type bench struct {
	suite
	dir, source string
}

// prepare makes the copy, the overlay and a go.mod that requires the library.
func (b *bench) prepare() error {
	if b.std {
		return b.prepareStd()
	}
	module, err := download(b.module + "@" + b.version)
	if err != nil {
		return err
	}
	if err := os.CopyFS(b.source, os.DirFS(module)); err != nil {
		return err
	}
	library, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if err := b.overlay(map[string]string{}); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(b.source, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a module that requires none has no go.sum
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(b.path(name), content, 0o600); err != nil {
			return err
		}
	}
	_, err = b.goCommand("", "mod", "edit", "-require=github.com/retryhttp/retryhttp@v0.0.0",
		"-replace=github.com/retryhttp/retryhttp="+library, b.path("go.mod"))
	return err
}

// overlay adds the hooks to an overlay, and writes it.
func (b *bench) overlay(overlay map[string]string) error {
	if err := errors.Join(b.hookNetHTTP(overlay), b.hookPackages(overlay)); err != nil {
		return err
	}
	encoded, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	return os.WriteFile(b.path("overlay.json"), encoded, 0o600)
}

// hookNetHTTP makes each http.Client send through what http.WrapForSuites makes of its Transport.
func (b *bench) hookNetHTTP(overlay map[string]string) error {
	std, err := b.stdSource()
	if err != nil {
		return err
	}
	client := filepath.Join(std, "net", "http", "client.go")
	source, err := os.ReadFile(client)
	if err != nil {
		return err
	}
	const sends = "send(req, c.transport(), deadline)"
	if !bytes.Contains(source, []byte(sends)) {
		return fmt.Errorf("%s has no %s", client, sends)
	}
	hooked := bytes.Replace(source, []byte(sends), []byte("send(req, WrapForSuites(c.transport()), deadline)"), 1)
	hooked = append(hooked, "\nvar WrapForSuites = func(rt RoundTripper) RoundTripper { return rt }\n"...)
	overlay[client] = b.path("client.go")
	return os.WriteFile(b.path("client.go"), hooked, 0o600)
}

// stdSource returns the directory of the standard library.
func (b *bench) stdSource() (string, error) {
	root, err := b.goCommand("", "env", "GOROOT")
	return filepath.Join(strings.TrimSpace(string(root)), "src"), err
}

// hookPackages adds a test file to each package, which sets http.WrapForSuites.
func (b *bench) hookPackages(overlay map[string]string) error {
	list := []string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.Name}}{{end}}"}
	if !b.std {
		list = append(list, "-mod=mod")
	}
	packages, err := b.goCommand("", append(list, b.packages...)...)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(packages)), "\n") {
		dir, name, _ := strings.Cut(line, " ")
		file := b.path("hook" + strconv.Itoa(i) + ".go")
		overlay[filepath.Join(dir, "suites_test.go")] = file
		if err := os.WriteFile(file, b.hook(name), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// results is what go test reported.
type results struct {
	passed int
	failed map[string]bool // by the name of the test, or of the package if it did not compile
}

// test runs the tests in the mode, or the tests that match pattern if it is not "".
func (b *bench) test(mode, pattern string) (results, error) {
	args := []string{"test", "-json", "-count=1", "-vet=off", "-overlay=" + b.path("overlay.json"),
		"-run=" + pattern, "-skip=" + b.differ[mode]}
	if strings.HasPrefix(mode, "broken") {
		args = append(args, "-timeout=3m") // a test may wait for a request that the broken replica has
	}
	if !b.std {
		args = append(args, "-mod=mod", "-modfile="+b.path("go.mod"))
	}
	output, failure := b.goCommand(mode, slices.Concat(args, b.flags, b.packages)...)
	r := results{failed: map[string]bool{}}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var event struct{ Action, Test, Package, ImportPath string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		switch {
		case event.Action == "build-fail":
			return r, fmt.Errorf("%s does not compile: %w", event.ImportPath, failure)
		case event.Action == "pass" && event.Test != "":
			r.passed++
		case event.Action == "fail" && event.Test != "":
			r.failed[event.Test] = true
		}
	}
	if r.passed+len(r.failed) == 0 {
		return r, cmp.Or(failure, errors.New("no test ran"))
	}
	return r, lines.Err()
}

// failsAgain reports whether the test fails twice more, each time alone.
func (b *bench) failsAgain(mode, test string) bool {
	names := strings.Split(test, "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	for range 2 {
		if again, err := b.test(mode, strings.Join(names, "/")); err == nil && !again.failed[test] {
			return false
		}
	}
	return true
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) goCommand(mode string, args ...string) ([]byte, error) {
	return b.goIn(b.source, mode, args...)
}

func (b *bench) goIn(dir, mode string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "SUITES="+mode)
	return output(cmd)
}

// download returns the folder of a module in the module cache.
func download(module string) (dir string, err error) {
	described, err := output(exec.Command("go", "mod", "download", "-json", module))
	if err != nil {
		return "", err
	}
	var found struct{ Dir string }
	err = json.Unmarshal(described, &found)
	return found.Dir, err
}

// output runs cmd. Its error has what cmd wrote to its standard error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}
