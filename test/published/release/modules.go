package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"

	"github.com/retryhttp/retryhttp/test/published"
)

// writeModules makes each nested module require the versions of the modules that are released. Those that are
// released themselves no longer replace the root, and their go.sum gets the root's checksums.
// After the release they are built against the tree again, from the files that writeModules returns.
func (r repository) writeModules(versions published.Versions) (again map[string][]byte, err error) {
	list, err := r.git("ls-files", "*/go.mod")
	if err != nil {
		return nil, err
	}
	again = make(map[string][]byte)
	for name := range strings.FieldsSeq(list) {
		content, err := os.ReadFile(r.path(name))
		if err != nil {
			return nil, err
		}
		required, released, err := edited(content, versions)
		if err != nil {
			return nil, err
		}
		if slices.Contains(published.Nested, path.Dir(name)) {
			if bytes.Equal(required, released) {
				return nil, fmt.Errorf("%s does not replace the root, as if this were the commit of a release", name)
			}
			again[name], required = required, released
		}
		if err := r.write(map[string][]byte{name: required}); err != nil {
			return nil, err
		}
	}
	sums, err := r.sums(versions[""])
	if err != nil {
		return nil, err
	}
	for _, directory := range published.Nested {
		name := directory + "/go.sum"
		if again[name], err = os.ReadFile(r.path(name)); err != nil {
			return nil, err
		}
		if err := r.write(map[string][]byte{name: insert(again[name], sums)}); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// edited returns a go.mod that requires versions of the modules of this repository, with and without their
// replacements.
func edited(goMod []byte, versions published.Versions) (with, without []byte, err error) {
	file, err := modfile.Parse("go.mod", goMod, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, required := range file.Require {
		if name, ok := ours(required.Mod.Path); ok {
			if err := file.AddRequire(required.Mod.Path, versions[name]); err != nil {
				return nil, nil, err
			}
		}
	}
	if with, err = file.Format(); err != nil {
		return nil, nil, err
	}
	for _, replaced := range file.Replace {
		if _, ok := ours(replaced.Old.Path); ok {
			if err := file.DropReplace(replaced.Old.Path, replaced.Old.Version); err != nil {
				return nil, nil, err
			}
		}
	}
	file.Cleanup()
	without, err = file.Format()
	return with, without, err
}

// ours returns the directory of a module that is released, and reports whether modulePath is one's.
func ours(modulePath string) (directory string, released bool) {
	directory, nested := strings.CutPrefix(modulePath, published.Root+"/")
	if !nested {
		return "", modulePath == published.Root
	}
	return directory, slices.Contains(published.Nested, directory)
}

// sums returns the lines of a go.sum about the root. Its zip has no nested module, whose go.sum these lines
// change, so the tree now has the files of the release.
func (r repository) sums(version string) (string, error) {
	if _, err := r.git("add", "--update"); err != nil {
		return "", err
	}
	tree, err := r.git("write-tree")
	if err != nil {
		return "", err
	}
	zipped, err := os.CreateTemp("", "release-*.zip")
	if err != nil {
		return "", err
	}
	defer os.Remove(zipped.Name())
	defer zipped.Close()
	if err := modzip.CreateFromVCS(zipped, module.Version{Path: published.Root, Version: version}, string(r), tree, ""); err != nil {
		return "", err
	}
	sum, err := dirhash.HashZip(zipped.Name(), dirhash.Hash1)
	if err != nil {
		return "", err
	}
	goMod, err := dirhash.Hash1([]string{"go.mod"}, func(name string) (io.ReadCloser, error) { return os.Open(r.path(name)) })
	return fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", published.Root, version, sum, goMod), err
}

// insert returns a go.sum with the root's lines, in the order of paths in which the go command keeps them.
func insert(goSum []byte, sums string) []byte {
	lines := slices.Collect(strings.Lines(string(goSum)))
	at := slices.IndexFunc(lines, func(line string) bool { return line > published.Root+" " })
	if at < 0 {
		at = len(lines)
	}
	return []byte(strings.Join(slices.Insert(lines, at, sums), ""))
}
