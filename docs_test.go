package retryhttp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/snippets"
)

func TestDocsShowOnlyCodeThatIsTested(t *testing.T) {
	sources, err := filepath.Glob("examples/*/main.go")
	require.NoError(t, err)
	sources = append(sources, "example_test.go", "example_choosing_test.go", "example_hedge_test.go")
	for _, document := range []string{"README.md", "docs/choosing.md"} {
		missing, err := snippets.Missing(document, sources...)
		require.NoError(t, err)
		assert.Empty(t, missing, "of %s", document)
	}
}

func TestREADMEShowsWhatTheQuickstartPrints(t *testing.T) {
	output, err := snippets.WithoutIndent("examples/quickstart/output.txt")
	require.NoError(t, err)
	readme, err := snippets.WithoutIndent("README.md")
	require.NoError(t, err)
	assert.Contains(t, readme, "```\n"+output+"```")
}

// The README's tables must be the last reports' tables.
func TestREADMEHasTheTablesOfTheReports(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for document, heading := range map[string]string{
		"docs/simulation.md": "## An outage\n",
		"docs/benchmarks.md": "## At a glance\n",
	} {
		report, err := os.ReadFile(document)
		require.NoError(t, err)
		_, section, found := strings.Cut(string(report), heading)
		require.True(t, found, document)
		start := strings.Index(section, "| ")
		require.Positive(t, start, document)
		table, _, _ := strings.Cut(section[start:], "\n\n")
		require.Contains(t, string(readme), table)
	}
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	documents := []string{"README.md", "testdata/conformance/README.md"}
	more, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, document := range append(documents, more...) {
		content, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
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
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(content), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// Dependencies that only some users need, such as OpenTelemetry, are in nested
// modules.
func TestModuleDependsOnNoMoreThanTheREADMESays(t *testing.T) {
	content, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	var direct []string
	for _, line := range strings.Split(string(content), "\n") {
		module, version, found := strings.Cut(strings.TrimSpace(line), " v")
		if found && !strings.Contains(version, "indirect") {
			direct = append(direct, module)
		}
	}
	assert.ElementsMatch(t,
		[]string{"github.com/hashicorp/go-cleanhttp", "github.com/stretchr/testify", "golang.org/x/time"}, direct)
}
