package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/test/published"
)

var date = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const changelog = `# Changelog

## [Unreleased]

### Added

- A name.

## [0.0.1] - 2025-12-31

- The first release.

[Unreleased]: https://github.com/retryhttp/retryhttp/compare/v0.0.1...HEAD
[0.0.1]: https://github.com/retryhttp/retryhttp/releases/tag/v0.0.1
`

// apart are versions of which each module has its own.
const apart = "v0.1.0 otelretry=v0.4.0 redisbudget=v0.0.2 retrylab=v0.0.3"

// The rehearsal of the fixture fails if there is a file with this name.
const rehearsal = `package published

import (
	"flag"
	"os"
	"testing"
)

var released = flag.String("released", "", "")

func TestRelease(t *testing.T) {
	if _, err := os.Stat("../../broken"); err == nil || *released != "` + apart + `" {
		t.Error(*released, err)
	}
}
`

// newRepository returns a repository of modules with the names of this one's, and with the tags of v0.0.1.
func newRepository(t *testing.T) repository {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	r := repository(filepath.Join(t.TempDir(), "repository"))
	goMod := func(path, rest string) string { return "module " + published.Root + path + "\n\ngo 1.26.0\n" + rest }
	files := map[string]string{
		"go.mod":                         goMod("", ""),
		"retryhttp.go":                   "package retryhttp\n\nconst Name = \"retryhttp\"\n",
		"LICENSE":                        "As you like.\n",
		"README.md":                      "# A fixture\n",
		"CHANGELOG.md":                   changelog,
		"test/published/go.mod":          goMod("/test/published", ""),
		"test/published/release_test.go": rehearsal,
		"test/zoo/go.mod": goMod("/test/zoo", `
replace (
	github.com/retryhttp/retryhttp => ../../
	github.com/retryhttp/retryhttp/otelretry => ../../otelretry
)

require (
	example.com/other v0.0.1 // indirect
	github.com/retryhttp/retryhttp v0.0.1 // indirect
	github.com/retryhttp/retryhttp/otelretry v0.0.1
)
`),
	}
	for _, name := range published.Nested {
		files[name+"/main.go"] = "package main\n\nimport \"" + published.Root + "\"\n\nfunc main() { println(retryhttp.Name) }\n"
		files[name+"/go.mod"] = goMod("/"+name, `
// Only this tree has its own root.
replace github.com/retryhttp/retryhttp => ../

require github.com/retryhttp/retryhttp v0.0.1
`)
		files[name+"/go.sum"] = ""
	}
	for name, content := range files {
		writeFile(t, r, name, content)
	}
	r.must(t, "init", "--quiet", "--initial-branch=main")
	r.must(t, "config", "user.name", "A Maintainer")
	r.must(t, "config", "user.email", "maintainer@example.com")
	r.must(t, "add", ".")
	r.must(t, "commit", "--quiet", "--message=The fixture")
	for _, tag := range tags(must(published.ParseVersions("v0.0.1"))) {
		r.must(t, "tag", tag)
	}
	return r
}

func writeFile(t *testing.T, r repository, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	require.NoError(t, r.write(map[string][]byte{name: []byte(content)}))
}

// commitFile commits a file with some content.
func commitFile(t *testing.T, r repository, name, content string) {
	t.Helper()
	writeFile(t, r, name, content)
	r.must(t, "add", name)
	r.must(t, "commit", "--quiet", "--message="+name)
}

// must returns what git prints.
func (r repository) must(t *testing.T, args ...string) string {
	t.Helper()
	output, err := r.git(args...)
	require.NoError(t, err)
	return output
}

// state is all that a release which fails must not change.
func (r repository) state(t *testing.T) string {
	t.Helper()
	return strings.Join([]string{
		r.must(t, "for-each-ref"), r.must(t, "worktree", "list"), r.must(t, "status", "--porcelain"), r.must(t, "stash", "list"),
	}, "\n")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// releaseIn releases versions in r, with a directory for temporary files that is empty afterwards.
func releaseIn(t *testing.T, r repository, arguments string, output io.Writer) error {
	t.Helper()
	versions, err := published.ParseVersions(arguments)
	if err != nil {
		return err
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	err = release(r, versions, date, output)
	left, readErr := os.ReadDir(tmp)
	require.NoError(t, readErr)
	require.Empty(t, left)
	return err
}
