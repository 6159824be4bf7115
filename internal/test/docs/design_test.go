package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests and files that docs/design.md names must exist.
func TestDesignNamesTestsAndFilesThatExist(t *testing.T) {
	atTheTop(t)
	require.Greater(t, assertNamesTests(t, "docs/design.md"), 150)
	for _, before := range []string{"## The files\n", "The engines have packages", "The tests of the whole"} {
		files := table(t, "docs/design.md", before)
		require.NotEmpty(t, files)
		for cell := range files {
			for path := range strings.SplitSeq(cell, " · ") {
				if path != "floor" && path != "package" && path != "directory" && path != "" && !leftOut(t, path) {
					_, err := os.Stat(strings.TrimSuffix(path, "/…"))
					assert.NoError(t, err)
				}
			}
		}
	}
}

// The tests that SECURITY.md names must exist.
func TestThreatModelNamesTestsThatExist(t *testing.T) {
	atTheTop(t)
	require.Greater(t, assertNamesTests(t, "SECURITY.md"), 30)
}

// assertNamesTests asserts that the tests which a document names exist, and returns how many it names.
func assertNamesTests(t *testing.T, document string) (named int) {
	t.Helper()
	for _, line := range strings.Split(read(t, document), "\n") {
		directory := "." // until the line names another one: `redisbudget`: `TestX`
		for _, name := range regexp.MustCompile("`([A-Za-z0-9_/.]+)`").FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(name[1], "Test") && !strings.HasPrefix(name[1], "Fuzz") {
				directory = name[1]
				continue
			}
			named++
			if leftOut(t, directory) {
				continue
			}
			exists := strings.Contains(testsIn(t, directory), "func "+name[1]+"(")
			assert.True(t, exists, "%s in %s", name[1], directory)
		}
	}
	return named
}

// testsIn returns the source of a directory's tests.
func testsIn(t *testing.T, directory string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*_test.go"))
	require.NoError(t, err)
	var source strings.Builder
	for _, path := range paths {
		source.WriteString(read(t, path))
	}
	return source.String()
}
