package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocsHaveShortSentences(t *testing.T) {
	atTheTop(t)
	for _, document := range documents(t) {
		for _, sentence := range sentences(prose(read(t, document))) {
			assert.LessOrEqual(t, len(strings.Fields(sentence)), 35, "%s: %s", document, sentence)
		}
	}
}

func TestDocCommentsHaveShortSentences(t *testing.T) {
	atTheTop(t)
	for _, directory := range []string{".", "otelretry", "redisbudget", "retrylab"} {
		if leftOut(t, directory) {
			continue
		}
		comments := docComments(t, directory)
		require.Greater(t, len(comments), 5)
		for _, comment := range comments {
			for _, sentence := range sentences(comment) {
				assert.LessOrEqual(t, len(strings.Fields(sentence)), 35, "%s: %s", directory, sentence)
			}
		}
	}
}

// prose is a document without its code, its tables and its headings.
func prose(document string) string {
	document = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(document, "")
	document = regexp.MustCompile(`(?m)^(\||#|<!--).*$`).ReplaceAllString(document, "")
	return regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(document, "]")
}

// sentences splits a text at the ends of sentences, paragraphs and entries of lists.
func sentences(text string) []string {
	text = regexp.MustCompile(`(?m)^\s*- |^\t.*$`).ReplaceAllString(text, "\n\n")
	return regexp.MustCompile(`\n\s*\n|[.!?:;]\s+`).Split(text, -1)
}

// docComments returns the comments of what a package exports.
func docComments(t *testing.T, directory string) (comments []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	d, err := doc.NewFromFiles(fset, files, directory)
	require.NoError(t, err)
	comments = append(comments, d.Doc)
	functions := d.Funcs
	for _, typ := range d.Types {
		comments = append(comments, typ.Doc)
		ast.Inspect(typ.Decl, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				comments = append(comments, field.Doc.Text(), field.Comment.Text())
			}
			return true
		})
		functions = append(append(functions, typ.Funcs...), typ.Methods...)
	}
	for _, f := range functions {
		comments = append(comments, f.Doc)
	}
	return comments
}
