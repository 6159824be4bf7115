package retryhttp_test

import (
	"cmp"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
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
	const list = "testdata/api.txt"
	api := strings.Join(exportedAPI(t), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(list, []byte(api), 0o644))
	}
	want, err := os.ReadFile(list)
	require.NoError(t, err)
	assert.Equal(t, string(want), api, "go test -run TestAPI -update . writes the file anew")
}

func TestAPIConstants(t *testing.T) {
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

// exportedAPI returns the package's exported declarations, one a line. Fields,
// constants and methods follow their type.
func exportedAPI(t *testing.T) (lines []string) {
	t.Helper()
	const aType, aConstant, aMethod = 0, 1, 2
	type entry struct {
		name string // of the function or type
		kind int
		line string
	}
	var entries []entry
	fset := token.NewFileSet()
	source := func(node any) string {
		var text strings.Builder
		require.NoError(t, format.Node(&text, fset, node))
		return strings.Join(strings.Fields(text.String()), " ")
	}
	members := func(name, kind string, list *ast.FieldList) {
		unexported := ""
		separator, method := " ", ""
		if kind == "interface" {
			separator, method = "", "func"
		}
		var lines []string
		for _, field := range list.List {
			if len(field.Names) == 0 { // embedded
				lines = append(lines, source(field.Type))
			}
			for _, member := range field.Names {
				if !member.IsExported() {
					unexported = " with unexported fields"
					continue
				}
				lines = append(lines, member.Name+separator+strings.TrimPrefix(source(field.Type), method))
			}
		}
		head := "type " + name + " " + kind
		entries = append(entries, entry{name, aType, head + unexported})
		for _, line := range lines {
			entries = append(entries, entry{name, aType, head + ", " + line})
		}
	}
	value := func(spec *ast.ValueSpec, tok token.Token, typ ast.Expr) {
		require.Len(t, spec.Names, 1, "one a line")
		if name := spec.Names[0]; name.IsExported() {
			line, key := tok.String()+" "+name.Name, name.Name
			if typ != nil {
				key = source(typ)
				line += " " + key
			}
			if len(spec.Values) > 0 {
				line += " = " + source(spec.Values[0])
			}
			entries = append(entries, entry{key, aConstant, line})
		}
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				key, kind := decl.Name.Name, aType
				if decl.Recv != nil {
					key, kind = strings.TrimPrefix(source(decl.Recv.List[0].Type), "*"), aMethod
				}
				if decl.Name.IsExported() && ast.IsExported(key) {
					decl.Body = nil
					entries = append(entries, entry{key, kind, source(decl)})
				}
			case *ast.GenDecl:
				var typ ast.Expr // that a group of constants shares
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						if spec.Type != nil || len(spec.Values) > 0 {
							typ = spec.Type
						}
						value(spec, decl.Tok, typ)
					case *ast.TypeSpec:
						if !spec.Name.IsExported() {
							continue
						}
						switch def := spec.Type.(type) {
						case *ast.StructType:
							members(spec.Name.Name, "struct", def.Fields)
						case *ast.InterfaceType:
							members(spec.Name.Name, "interface", def.Methods)
						default:
							entries = append(entries, entry{spec.Name.Name, aType, "type " + source(spec)})
						}
					}
				}
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		if order := cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind)); order != 0 || a.kind != aMethod {
			return order
		}
		return strings.Compare(a.line, b.line) // methods of one type
	})
	for _, e := range entries {
		lines = append(lines, e.line)
	}
	return lines
}
