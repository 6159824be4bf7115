package integrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each client of the table has an Example here, and each Example has a client in the table.
func TestTheTableOfClientsIsThatOfTheExamples(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var examples []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if regexp.MustCompile(`(?m)^func Example_`).Match(content) {
			examples = append(examples, file)
		}
	}
	require.NotEmpty(t, examples)
	document, err := os.ReadFile("../../docs/sdks.md")
	require.NoError(t, err)
	var rows []string
	links := regexp.MustCompile(`\[Example\]\(\.\./test/integrations/([^)]+)\) \|\n`)
	for _, link := range links.FindAllStringSubmatch(string(document), -1) {
		rows = append(rows, link[1])
	}
	assert.ElementsMatch(t, examples, rows)
}
