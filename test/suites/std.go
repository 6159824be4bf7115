package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The tests of the standard library can import nothing but the standard library. So the library and what it
// imports become packages of it, in the overlay.

// inStd changes the imports.
var inStd = strings.NewReplacer(
	`"github.com/retryhttp/retryhttp`, `"retryinstd`,
	`"github.com/hashicorp/go-cleanhttp"`, `"retryinstd/cleanhttp"`,
	`"golang.org/x/time/rate"`, `"retryinstd/rate"`,
)

// prepareStd makes the overlay.
func (b *bench) prepareStd() error {
	if err := os.MkdirAll(b.source, 0o700); err != nil {
		return err
	}
	overlay := map[string]string{}
	if err := b.addToStd(overlay, "../..", "."); err != nil {
		return err
	}
	err := filepath.WalkDir("../../internal", func(dir string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case d.Name() == "test" || d.Name() == "testdata":
			return filepath.SkipDir
		}
		within, err := filepath.Rel("../..", dir)
		return errors.Join(err, b.addToStd(overlay, dir, within))
	})
	for _, imported := range []string{"github.com/hashicorp/go-cleanhttp", "golang.org/x/time/rate"} {
		described, listErr := b.goIn("../..", "", "list", "-f", "{{.Dir}}", imported)
		dir := strings.TrimSpace(string(described))
		err = errors.Join(err, listErr, b.addToStd(overlay, dir, strings.TrimPrefix(filepath.Base(imported), "go-")))
	}
	return errors.Join(err, b.overlay(overlay))
}

// addToStd adds a package in dir to the overlay.
func (b *bench) addToStd(overlay map[string]string, dir, as string) error {
	std, err := b.stdSource()
	names, globErr := filepath.Glob(filepath.Join(dir, "*.go"))
	if err = errors.Join(err, globErr); err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file := b.path(filepath.Join("std", as, filepath.Base(name)))
		overlay[filepath.Join(std, "retryinstd", as, filepath.Base(name))] = file
		err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(inStd.Replace(string(source))), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}
