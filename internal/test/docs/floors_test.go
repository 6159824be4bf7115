package docs_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The floors of docs/design.md: a file uses its own floor and the floors below it.
func TestFilesUseTheirFloorAndTheFloorsBelow(t *testing.T) {
	atTheTop(t)
	floors := floorsOf(t)
	fset, files := rootFiles(t)
	uses := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", compiled(t))}
	pkg, err := config.Check("github.com/retryhttp/retryhttp", fset, files, uses)
	require.NoError(t, err)

	names := 0
	for name, used := range uses.Uses {
		if used.Pkg() != pkg || !used.Pos().IsValid() {
			continue
		}
		names++
		from := filepath.Base(fset.Position(name.Pos()).Filename)
		to := filepath.Base(fset.Position(used.Pos()).Filename)
		assert.LessOrEqual(t, floors[from], floors[to], "%s uses %s, of %s", from, name.Name, to)
	}
	require.Greater(t, names, 1000)
	for _, file := range files {
		name := filepath.Base(fset.Position(file.Pos()).Filename)
		assert.Contains(t, floors, name, "a file without a floor")
		delete(floors, name)
	}
	assert.Empty(t, floors, "floors of files that are gone")
}

// compiled returns what the compiler has exported of each package that the root imports. To check them from their
// sources would take seconds.
func compiled(t *testing.T) func(path string) (io.ReadCloser, error) {
	t.Helper()
	list, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	return func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) }
}

// floorsOf returns the floor of each file, from the top. The top floor is 0.
func floorsOf(t *testing.T) map[string]int {
	t.Helper()
	floors := map[string]int{}
	for floor, row := range rowsOf(t, "docs/design.md", "## The files\n") {
		for file := range strings.SplitSeq(row[0], " · ") {
			if strings.HasSuffix(file, ".go") {
				floors[file] = floor
			}
		}
	}
	return floors
}

func rootFiles(t *testing.T) (fset *token.FileSet, files []*ast.File) {
	t.Helper()
	fset = token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(fset, path, nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	return fset, files
}
