package published_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
)

// stranger is a module of somebody else, which uses modules of this tree.
type stranger struct {
	dir string
	env []string
}

// newStranger returns a module that uses the first of modules, and that gets all of them with
// what they require. Its files are in testdata.
func newStranger(t *testing.T, r release, modules ...module.Version) stranger {
	t.Helper()
	s := stranger{t.TempDir(), r.env}
	used := modules[0].Path
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(filepath.Join("testdata", path.Base(used)))))
	// Checksums that are known need not be asked for.
	sums, err := os.ReadFile(filepath.Join(tree, strings.TrimPrefix(used, root), "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "go.sum"), sums, 0o644))
	s.run(t, "mod", "init", "stranger.example/program")
	get := []string{"get"}
	for _, m := range modules {
		get = append(get, m.String())
	}
	s.run(t, get...)
	s.run(t, "mod", "tidy")
	return s
}

// run runs the go command in the stranger's module, and returns what it prints.
func (s stranger) run(t *testing.T, args ...string) string {
	t.Helper()
	output, err := command(s.dir, s.env, args...)
	require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), output)
	return output
}

// command runs the go command in dir. With an error, it returns also what the command printed
// about it.
func command(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	var output, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &failure
	err := cmd.Run()
	if err != nil {
		output.WriteString(failure.String())
	}
	return strings.TrimSpace(output.String()), err
}
