package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/snippets"
)

// atTheTop runs a test in the directory of the module, because the tests name files as documents do.
// TestMain could not: the go command would not learn of it, and would take an old result for documents
// that have changed.
func atTheTop(t *testing.T) {
	t.Helper()
	t.Chdir("../../..")
}

// leftOut reports whether a path is in a nested module, and this is the content of a module zip.
// A module zip has no nested modules. A checkout has all of them, and a file that is missing there
// is an error.
func leftOut(t *testing.T, path string) bool {
	t.Helper()
	top, _, _ := strings.Cut(filepath.ToSlash(filepath.Clean(path)), "/")
	if !slices.Contains([]string{"otelretry", "redisbudget", "retrylab", "test"}, top) {
		return false
	}
	for _, pattern := range []string{"*/go.mod", "*/*/go.mod"} {
		nested, err := filepath.Glob(pattern)
		require.NoError(t, err)
		if len(nested) > 0 {
			return false
		}
	}
	return true
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// documents returns the paths of the module's documents.
func documents(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return append(paths, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASE.md", "SECURITY.md",
		"testdata/conformance/README.md")
}

func TestDocsShowOnlyCodeThatIsTested(t *testing.T) {
	atTheTop(t)
	if leftOut(t, "redisbudget") {
		t.Skip("some of the code is in a nested module, which is not here")
	}
	sources, err := filepath.Glob("examples/*/main.go")
	require.NoError(t, err)
	sources = append(sources,
		"example_test.go", "example_choosing_test.go", "retrytest/example_test.go",
		"example_recipes_test.go", "example_body_test.go", "redisbudget/example_test.go",
		"retrylab/example_lab_test.go")
	for _, document := range []string{"README.md", "docs/choosing.md", "docs/lab.md", "docs/testing.md"} {
		missing, err := snippets.Missing(document, sources...)
		require.NoError(t, err)
		assert.Empty(t, missing, "of %s", document)
	}
	missing, err := snippets.Missing("docs/design.md", "transport.go")
	require.NoError(t, err)
	assert.Empty(t, missing, "the loop")
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	atTheTop(t)
	for _, document := range documents(t) {
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(read(t, document), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
			}
			if leftOut(t, target) {
				continue
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "from %s", document)
			if anchor != "" {
				assert.Contains(t, headings(t, target), anchor, "from %s to %s", document, target)
			}
		}
	}
}

// headings returns a document's headings, as links name them.
func headings(t *testing.T, document string) (anchors []string) {
	t.Helper()
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(t, document), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}
