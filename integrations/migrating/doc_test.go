package migrating_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDocumentShowsOnlyCodeThatIsTested(t *testing.T) {
	sources, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, name := range sources {
		code.WriteString(withoutIndent(t, name))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(withoutIndent(t, "../../docs/migrating.md"), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		assert.Contains(t, code.String(), block[1])
	}
}

func withoutIndent(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(string(content), "")
}
