package published_test

import (
	"archive/zip"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// proxy is a directory that serves modules as GOPROXY=file://… does.
type proxy string

// file returns the path at which the go command looks for a file about m.
func (p proxy) file(m module.Version, extension string) string {
	return filepath.Join(string(p), filepath.FromSlash(m.Path), "@v", m.Version+extension)
}

// publish makes m of the module in a directory of the tree. Like a release, it leaves out nested modules,
// and each replace. A release that is rehearsed has left them out itself.
func (p proxy) publish(t *testing.T, m module.Version, directory string) {
	t.Helper()
	if *released != "" {
		repository, err := filepath.Abs(tree)
		require.NoError(t, err)
		goMod, err := os.ReadFile(filepath.Join(repository, directory, "go.mod"))
		require.NoError(t, err)
		p.write(t, m, goMod, func(w io.Writer) error { return modzip.CreateFromVCS(w, m, repository, "HEAD", directory) })
		return
	}
	dir := withoutReplace(t, filepath.Join(tree, directory))
	goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	p.write(t, m, goMod, func(w io.Writer) error { return modzip.CreateFromDir(w, m, dir) })
}

// withoutReplace returns a copy of a module whose go.mod replaces nothing.
func withoutReplace(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	file, err := modfile.Parse("go.mod", content, nil)
	require.NoError(t, err)
	if len(file.Replace) == 0 {
		return dir
	}
	for _, r := range slices.Clone(file.Replace) {
		require.NoError(t, file.DropReplace(r.Old.Path, r.Old.Version))
	}
	file.Cleanup()
	content, err = file.Format()
	require.NoError(t, err)
	tmp := t.TempDir()
	require.NoError(t, os.CopyFS(tmp, os.DirFS(dir)))
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "go.mod"), content, 0o644))
	return tmp
}

// publishMoved publishes the content of from as to, with each internal package under another path.
func (p proxy) publishMoved(t *testing.T, from, to module.Version) {
	t.Helper()
	goMod, err := os.ReadFile(p.file(from, ".mod"))
	require.NoError(t, err)
	before, err := zip.OpenReader(p.file(from, ".zip"))
	require.NoError(t, err)
	defer before.Close()
	p.write(t, to, goMod, func(w io.Writer) error {
		after := zip.NewWriter(w)
		for _, f := range before.File {
			if err := move(after, f, from, to); err != nil {
				return err
			}
		}
		return after.Close()
	})
	_, err = modzip.CheckZip(to, p.file(to, ".zip"))
	require.NoError(t, err)
}

// move copies a file of from's zip to to's zip. It moves the internal packages, and changes the
// imports.
func move(w *zip.Writer, f *zip.File, from, to module.Version) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(f.Name, from.String()+"/")
	if rest, ok := strings.CutPrefix(name, "internal/"); ok {
		name = "internal/moved/" + rest
	}
	moved, err := w.Create(to.String() + "/" + name)
	if err != nil {
		return err
	}
	if strings.HasSuffix(name, ".go") {
		content = []byte(strings.ReplaceAll(string(content), from.Path+"/internal/", from.Path+"/internal/moved/"))
	}
	_, err = moved.Write(content)
	return err
}

// write puts m into the proxy.
func (p proxy) write(t *testing.T, m module.Version, goMod []byte, archive func(io.Writer) error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(p.file(m, "")), 0o755))
	require.NoError(t, os.WriteFile(p.file(m, ".mod"), goMod, 0o644))
	info := fmt.Sprintf(`{"Version":%q,"Time":"2006-01-02T15:04:05Z"}`, m.Version)
	require.NoError(t, os.WriteFile(p.file(m, ".info"), []byte(info), 0o644))
	p.list(t, m)
	f, err := os.Create(p.file(m, ".zip"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, archive(f))
}

// list adds m's version to the versions of its module.
func (p proxy) list(t *testing.T, m module.Version) {
	t.Helper()
	path := filepath.Join(filepath.Dir(p.file(m, "")), "list")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintln(f, m.Version)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// fileURL returns the URL of an absolute path, for GOPROXY.
func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/…
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}
