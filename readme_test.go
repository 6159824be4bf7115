package retryhttp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadmeShowsOnlyCodeThatIsTested(t *testing.T) {
	sources, err := filepath.Glob("examples/*/main.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, name := range append(sources, "example_test.go") {
		code.WriteString(withoutIndent(t, name))
	}
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(withoutIndent(t, "README.md"), -1)
	require.NotEmpty(t, snippets)
	for _, snippet := range snippets {
		assert.Contains(t, code.String(), snippet[1])
	}
}

func TestReadmeShowsWhatTheQuickstartPrints(t *testing.T) {
	output := withoutIndent(t, "examples/quickstart/output.txt")
	assert.Contains(t, withoutIndent(t, "README.md"), "```\n"+output+"```")
}

func withoutIndent(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(string(content), "")
}

// What the README has of the comparison is what the last run of it wrote.
func TestREADMEHasTheTableOfTheComparison(t *testing.T) {
	report, err := os.ReadFile("docs/benchmarks.md")
	require.NoError(t, err)
	_, glance, found := strings.Cut(string(report), "## At a glance\n")
	require.True(t, found)
	start := strings.Index(glance, "| ")
	require.Positive(t, start)
	table, _, _ := strings.Cut(glance[start:], "\n\n")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), table)
}
