package main

import (
	_ "embed"
	"strings"
)

// hookSource is a file of a package's tests, which sets http.WrapForSuites.
//
//go:embed hook.txt
var hookSource string

// hook returns the file for a package.
func (b *bench) hook(name string) []byte {
	if b.std && name == "http" {
		name = "http_test" // net/http itself cannot import the library
	}
	source := strings.Replace(hookSource, "package hook", "package "+name, 1)
	if b.std {
		source = inStd.Replace(source)
	}
	return []byte(source)
}
