package docs_test

import (
	"flag"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

var update = flag.Bool("update", false, "write testdata/api.txt anew")

// testdata/api.txt shows in review what a change does to the API.
func TestAPIIsAsListed(t *testing.T) {
	atTheTop(t)
	const list = "testdata/api.txt"
	api := exportedAPI(t, "")
	for _, line := range exportedAPI(t, "retrytest") {
		api = append(api, "retrytest: "+line)
	}
	if *update {
		require.NoError(t, os.WriteFile(list, []byte(strings.Join(api, "\n")+"\n"), 0o644))
	}
	listed := strings.Split(strings.TrimSuffix(read(t, list), "\n"), "\n")
	assert.Empty(t, without(api, listed), "not in the list")
	assert.Empty(t, without(listed, api), "in the list alone")
	assert.True(t, slices.Equal(api, listed), "go test ./internal/test/docs -run TestAPI -update writes the file anew")
}

// without returns the lines that others do not have.
func without(lines, others []string) (rest []string) {
	for _, line := range lines {
		if !slices.Contains(others, line) {
			rest = append(rest, line)
		}
	}
	return rest
}

func TestAPIConstants(t *testing.T) {
	atTheTop(t)
	assert.Equal(t, []retryhttp.Class{0, 1, 2},
		[]retryhttp.Class{retryhttp.Final, retryhttp.Retryable, retryhttp.Unprocessed})
	assert.Equal(t,
		[]retryhttp.Stop{
			"final", "not-idempotent", "body", "attempts", "deadline", "retry-after", "budget", "canceled", "nested",
		},
		[]retryhttp.Stop{
			retryhttp.StopFinal, retryhttp.StopNotIdempotent, retryhttp.StopBody, retryhttp.StopAttempts,
			retryhttp.StopDeadline, retryhttp.StopRetryAfter, retryhttp.StopBudget, retryhttp.StopCanceled,
			retryhttp.StopNested,
		})
}

// exportedAPI returns the exported declarations of the package in dir, one a line. Fields,
// constants, constructors and methods follow their type.
func exportedAPI(t *testing.T, dir string) (lines []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, source := range paths {
		if !strings.HasSuffix(source, "_test.go") {
			file, err := parser.ParseFile(fset, source, nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	pkg, err := doc.NewFromFiles(fset, files, path.Join("github.com/retryhttp/retryhttp", dir))
	require.NoError(t, err)

	source := func(node any) string {
		var text strings.Builder
		require.NoError(t, format.Node(&text, fset, node))
		return strings.Join(strings.Fields(text.String()), " ")
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			for _, spec := range v.Decl.Specs {
				lines = append(lines, v.Decl.Tok.String()+" "+source(spec))
			}
		}
	}
	funcs := func(list []*doc.Func) {
		for _, f := range list {
			lines = append(lines, source(f.Decl))
		}
	}
	members := func(head string, list *ast.FieldList, incomplete bool) {
		if incomplete {
			lines = append(lines, head+" with unexported members")
		} else {
			lines = append(lines, head)
		}
		for _, field := range list.List {
			if len(field.Names) == 0 { // embedded
				lines = append(lines, head+", "+source(field.Type))
			}
			for _, name := range field.Names {
				lines = append(lines, head+", "+name.Name+" "+source(field.Type))
			}
		}
	}
	values(pkg.Consts)
	values(pkg.Vars)
	funcs(pkg.Funcs)
	for _, typ := range pkg.Types {
		spec := typ.Decl.Specs[0].(*ast.TypeSpec)
		switch def := spec.Type.(type) {
		case *ast.StructType:
			members("type "+typ.Name+" struct", def.Fields, def.Incomplete)
		case *ast.InterfaceType:
			members("type "+typ.Name+" interface", def.Methods, def.Incomplete)
		default:
			lines = append(lines, "type "+source(spec))
		}
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	return lines
}
