package examples

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/waiting"
)

func TestMain(m *testing.M) { waiting.Main(m, 4) }

func TestEveryExamplePrintsItsOutput(t *testing.T) {
	lookAtSources(t)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	bin := t.TempDir()
	// One build for all: linking at the same time is slow.
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./...")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	found := 0
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		found++
		name := entry.Name()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, name))
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			require.NoError(t, cmd.Run(), "%s", &stderr)
			if want, err := os.ReadFile(filepath.Join(name, "output.txt")); err == nil {
				assert.Equal(t, string(want), stdout.String())
				assert.Empty(t, stderr.String())
				return
			}
			// Measurements differ each time, and progress is printed meanwhile.
			want, err := os.ReadFile(filepath.Join(name, "output.regexp"))
			require.NoError(t, err, "every example has its output, or what it looks like, beside it")
			assert.Regexp(t, "^(?s:"+string(want)+")$", stdout.String())
			assert.NotEmpty(t, stderr.String())
		})
	}
	assert.NotZero(t, found)
}

// lookAtSources makes go test run this test again, instead of taking its result from the cache,
// when a source file has changed. go test does not see which files the compiler reads here. It
// sees the files that are listed here.
func lookAtSources(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		return err
	})
	require.NoError(t, err)
}
