package published_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/retryhttp/retryhttp/test/published"
)

const (
	tree = "../.."
	root = published.Root
)

var nested = published.Nested

// released are the versions that make release rehearses in the commit of the release.
var released = flag.String("released", "", "publish the last commit, which must be the release of these versions")

// release is a proxy with the modules of this tree.
type release struct {
	proxy    proxy
	versions published.Versions
	later    module.Version // the root again, with its internal packages under other paths
	env      []string       // of a go command that uses the proxy
}

var (
	scratch string // a directory that ends with the tests
	once    sync.Once
	shared  release
)

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "published"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// theRelease returns the release that all tests share, with its module cache.
func theRelease(t *testing.T) release {
	t.Helper()
	once.Do(func() { shared = newRelease(t) })
	require.NotEmpty(t, shared.env, "publishing has failed")
	return shared
}

// newRelease publishes the tree: the root as the version that the nested modules require, and those, unless
// this is a release, as other versions, since each has its own.
func newRelease(t *testing.T) release {
	t.Helper()
	version := required(t, nested[0])
	arguments := *released
	if arguments == "" {
		arguments = version
		for i, name := range nested {
			arguments += fmt.Sprintf(" %s=v0.0.%d", name, i+1)
		}
	}
	versions, err := published.ParseVersions(arguments)
	require.NoError(t, err)
	require.Equal(t, version, versions[""])
	r := release{
		proxy:    proxy(filepath.Join(scratch, "proxy")),
		versions: versions,
		later:    module.Version{Path: root, Version: semver.MajorMinor(version) + ".999"},
	}
	for _, name := range append([]string{""}, nested...) {
		r.proxy.publish(t, r.module(name), name)
	}
	r.proxy.publishMoved(t, r.module(""), r.later)
	r.env = r.environment(t)
	return r
}

// module returns the released module of a directory in the tree.
func (r release) module(directory string) module.Version {
	return module.Version{Path: path.Join(root, directory), Version: r.versions[directory]}
}

// environment gives the published modules a module cache of their own. The other modules come
// from the cache of the user, or from where the user has them from.
func (r release) environment(t *testing.T) []string {
	t.Helper()
	usual, err := command(".", os.Environ(), "env", "GOMODCACHE", "GOPROXY", "GONOSUMDB")
	require.NoError(t, err)
	values := strings.Split(usual+"\n", "\n")
	sources := []string{fileURL(string(r.proxy)), fileURL(filepath.Join(values[0], "cache", "download")), values[1]}
	return append(os.Environ(),
		"GOPROXY="+strings.Join(sources, ","),
		"GOMODCACHE="+filepath.Join(scratch, "cache"),
		"GOENV=off", "GOPRIVATE=", "GONOPROXY=", // the proxy serves all modules
		"GONOSUMDB="+strings.Trim(root+","+values[2], ","),
		"GOTOOLCHAIN=local", // another toolchain would be looked for in the new cache
		"GOWORK=off",
		// Without paths, what was compiled in one run serves the next one.
		"GOFLAGS=-trimpath -modcacherw -buildvcs=false",
	)
}

// required returns the version of the root that a nested module requires.
func required(t *testing.T, name string) string {
	t.Helper()
	for _, r := range goMod(t, name).Require {
		if r.Mod.Path == root {
			return r.Mod.Version
		}
	}
	require.Fail(t, "no requirement of the root", name)
	return ""
}

// goMod returns the go.mod of a directory in the tree.
func goMod(t *testing.T, directory string) *modfile.File {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(tree, directory, "go.mod"))
	require.NoError(t, err)
	file, err := modfile.Parse(directory, content, nil)
	require.NoError(t, err)
	return file
}

func TestNestedModulesRequireOneReleaseOfTheRoot(t *testing.T) {
	for _, name := range nested {
		version := required(t, name)
		assert.Equal(t, required(t, nested[0]), version, name)
		assert.True(t, semver.IsValid(version) && !module.IsPseudoVersion(version), "%s requires %s", name, version)
	}
}

// A new module either is released, or is one of those that no user imports.
func TestEachModuleThatUsersImportIsReleased(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(tree, "*", "go.mod"))
	require.NoError(t, err)
	var directories []string
	for _, file := range files {
		directories = append(directories, filepath.Base(filepath.Dir(file)))
	}
	assert.ElementsMatch(t, nested, directories)
}

// The go command runs no command of a module with a replace by its version. Who builds a nested module in a
// checkout of the release does so without changing its go.mod or its go.sum.
func TestReleaseIsComplete(t *testing.T) {
	if *released == "" {
		t.Skip("this is not the commit of a release")
	}
	r := theRelease(t)
	for _, name := range append([]string{""}, nested...) {
		assert.Empty(t, goMod(t, name).Replace, name)
	}
	for _, name := range nested {
		assert.Equal(t, r.versions[""], required(t, name), name)
		output, err := command(filepath.Join(tree, name), r.env, "mod", "tidy", "-diff")
		assert.NoError(t, err, "%s\n%s", name, output)
	}
}

// use makes the module of a stranger who gets some modules of this tree, and who then has the
// given version of the root. It builds, checks and tests that module.
func use(t *testing.T, r release, rootVersion string, modules ...module.Version) {
	t.Run(strings.ReplaceAll(fmt.Sprint(modules), "/", "_"), func(t *testing.T) {
		s := newStranger(t, r, modules...)
		require.Equal(t, rootVersion, s.run(t, "list", "-m", "-f", "{{.Version}}", root))
		s.run(t, "build", "./...")
		s.run(t, "vet", "./...", modules[0].Path+"/...")
		s.run(t, "test", "./...")
	})
}

// A stranger may use each module alone. With a nested module, a stranger may use a later root,
// which may have changed everything that it does not export.
func TestStrangersUseEachModule(t *testing.T) {
	r := theRelease(t)
	use(t, r, r.versions[""], r.module(""))
	use(t, r, r.later.Version, r.later)
	for _, name := range nested {
		use(t, r, r.versions[""], r.module(name))
		use(t, r, r.later.Version, r.module(name), r.later)
	}
}

// The documents tell users to run these commands by their version.
func TestStrangersRunCommandsByTheirVersion(t *testing.T) {
	r := theRelease(t)
	r.env = append(r.env, "GOSUMDB=off") // there is no go.sum whose checksums are known
	t.Run("retrylab", func(t *testing.T) {
		output := r.runByVersion(t, "retrylab", "cmd/retrylab",
			"-rate", "10", "-uptime", "1s", "-outage", "1s", "-seeds", "1", "-experiments", "outage")
		assert.Contains(t, output, "version: "+r.versions["retrylab"]+", ")
		assert.Contains(t, output, "\nOUTAGE\n")
		assert.Contains(t, output, "\nno retries ")
	})
	for _, example := range []struct{ module, command string }{{"", "examples/quickstart"}, {"redisbudget", "examples/fleet"}} {
		t.Run(path.Base(example.command), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(tree, example.module, example.command, "output.txt"))
			require.NoError(t, err)
			output := r.runByVersion(t, example.module, example.command)
			assert.Equal(t, strings.TrimSpace(string(want)), output)
		})
	}
}

// runByVersion runs a command with go run, and with go install. It returns what the installed command prints.
func (r release) runByVersion(t *testing.T, directory, name string, args ...string) string {
	t.Helper()
	bin := t.TempDir()
	versioned := path.Join(root, directory, name) + "@" + r.versions[directory]
	output, err := command(t.TempDir(), append(r.env, "GOBIN="+bin), "install", versioned)
	require.NoError(t, err, output)
	installed, err := exec.Command(filepath.Join(bin, path.Base(name)), args...).Output()
	require.NoError(t, err, "%s", installed)
	output, err = command(t.TempDir(), r.env, append([]string{"run", versioned}, args...)...)
	require.NoError(t, err, output)
	return strings.TrimSpace(string(installed))
}

// The root's module has neither the nested modules nor the history of its repository.
func TestPublishedRootPassesItsOwnTests(t *testing.T) {
	r := theRelease(t)
	s := newStranger(t, r, r.module(""))
	args := []string{"test", root}
	for _, name := range []string{"conformance", "docs", "secrets", "sockets"} {
		args = append(args, root+"/internal/test/"+name)
	}
	s.run(t, args...)
}
