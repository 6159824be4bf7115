package docs_test

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reader of the package's documentation finds what a zero field means in one table.
func TestTableOfZeroValuesHasEachFieldThatHasADefault(t *testing.T) {
	atTheTop(t)
	_, files := rootFiles(t)
	fields := map[string][]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, isType := n.(*ast.TypeSpec)
			if !isType {
				return true
			}
			if s, isStruct := spec.Type.(*ast.StructType); isStruct {
				for _, field := range s.Fields.List {
					_, isFunction := field.Type.(*ast.FuncType)
					boolean, _ := field.Type.(*ast.Ident)
					if isFunction || boolean != nil && boolean.Name == "bool" {
						continue
					}
					for _, name := range field.Names {
						if name.IsExported() && name.Name != "Logger" {
							fields[spec.Name.Name] = append(fields[spec.Name.Name], name.Name)
						}
					}
				}
			}
			return true
		})
	}
	rows, of := map[string][]string{}, ""
	_, table, found := strings.Cut(read(t, "transport.go"), "// # Zero and negative values\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "// # ")
	for line := range strings.Lines(table) {
		switch row, isRow := strings.CutPrefix(line, "//\t"); {
		case !isRow || strings.HasPrefix(row, "   "):
		case strings.HasPrefix(row, "  "):
			rows[of] = append(rows[of], strings.Fields(row)[0])
		default:
			of = strings.TrimSpace(row)
		}
	}
	for _, name := range []string{"Policy", "TokenBucket", "Gate", "Hedge"} {
		assert.ElementsMatch(t, fields[name], rows[name], name)
	}
}
