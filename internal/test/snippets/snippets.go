// Package snippets holds documents to the code that they show.
package snippets

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var block = regexp.MustCompile("(?s)```go\n(.*?)```")

// Missing returns the blocks of Go in a document that stand in none of the sources. Indentation
// does not count. A document without blocks is an error.
func Missing(document string, sources ...string) (missing []string, err error) {
	var code strings.Builder
	for _, name := range sources {
		text, err := WithoutIndent(name)
		if err != nil {
			return nil, err
		}
		code.WriteString(text)
	}
	text, err := WithoutIndent(document)
	if err != nil {
		return nil, err
	}
	blocks := block.FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s shows no code", document)
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), b[1]) {
			missing = append(missing, b[1])
		}
	}
	return missing, nil
}

var indent = regexp.MustCompile(`(?m)^[ \t]+`)

// WithoutIndent returns a file's text, without its indentation.
func WithoutIndent(name string) (string, error) {
	content, err := os.ReadFile(name)
	return indent.ReplaceAllString(string(content), ""), err
}
