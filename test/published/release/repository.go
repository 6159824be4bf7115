package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/retryhttp/retryhttp/test/published"
)

// repository is the directory of a checkout.
type repository string

// git runs git, and returns what it prints. What git prints about an error is in the error.
func (r repository) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = string(r)
	var output, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &failure
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(failure.String()))
	}
	return strings.TrimSpace(output.String()), nil
}

// last returns the newest version of each module among the ancestors of HEAD. A later version on another
// branch does not matter to a release from a branch of an older version.
func (r repository) last() (published.Versions, error) {
	last := published.Versions{}
	tags, err := r.git("tag", "--merged", "HEAD")
	for tag := range strings.FieldsSeq(tags) {
		name, version := "", tag
		if directory, nested := path.Split(tag); directory != "" {
			name, version = path.Clean(directory), nested
		}
		if semver.Compare(version, last[name]) > 0 { // what is no version is the least
			last[name] = version
		}
	}
	return last, err
}

// check returns why r cannot have a release of versions.
func (r repository) check(versions published.Versions) error {
	last, err := r.last()
	if err != nil {
		return err
	}
	for _, name := range append([]string{""}, published.Nested...) {
		if semver.Compare(versions[name], last[name]) <= 0 {
			return fmt.Errorf("%s is not newer than %s", tag(name, versions[name]), tag(name, last[name]))
		}
	}
	names, err := r.git("for-each-ref", "--format=%(refname:short)", "refs/tags", "refs/heads")
	if err != nil {
		return err
	}
	for _, name := range append(tags(versions), branch(versions)) {
		if slices.Contains(strings.Fields(names), name) {
			return fmt.Errorf("there is a tag or a branch %s", name)
		}
	}
	changed, err := r.git("status", "--porcelain")
	if err == nil && changed != "" {
		err = errors.New("the tree has changes that are not committed: git status lists them")
	}
	return err
}

// clone returns a clone of HEAD, with the author of r's commits.
func (r repository) clone(dir string) (repository, error) {
	args := []string{"clone", "--quiet", "--shared"}
	for _, key := range []string{"user.name", "user.email"} {
		if value, err := r.git("config", key); err == nil {
			args = append(args, "--config", key+"="+value)
		}
	}
	_, err := r.git(append(args, ".", dir)...)
	return repository(dir), err
}

// commit commits all changes, and returns the hash of the commit.
func (r repository) commit(message string) (string, error) {
	if _, err := r.git("commit", "--quiet", "--all", "--message", message); err != nil {
		return "", err
	}
	return r.git("rev-parse", "HEAD")
}

func (r repository) path(name string) string {
	return filepath.Join(string(r), filepath.FromSlash(name))
}

// write writes files by their paths in r.
func (r repository) write(files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(r.path(name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func branch(versions published.Versions) string { return "release-" + versions[""] }

// tag returns the tag of a module in a directory.
func tag(directory, version string) string { return path.Join(directory, version) }

// tags returns the tags of a release. The root's tag comes first.
func tags(versions published.Versions) []string {
	all := []string{tag("", versions[""])}
	for _, name := range published.Nested {
		all = append(all, tag(name, versions[name]))
	}
	return all
}

// printRest prints what a maintainer has to do after the release has been rehearsed.
func (r repository) printRest(versions published.Versions, released string, output io.Writer) error {
	current, err := r.git("rev-parse", "--abbrev-ref", "HEAD")
	if err != nil {
		return err
	}
	all, version := tags(versions), versions[""]
	fmt.Fprintf(output, `
The branch %[1]s has the release, %.12[2]s, and a commit after it. Look at both:

git log -p -2 %[1]s

Then run these commands one by one. RELEASE.md says why in this order.

git merge --ff-only %[1]s
git push origin %[3]s
git tag %[4]s %[2]s
git push origin %[4]s
GOPROXY=https://proxy.golang.org go list -m %[5]s@%[4]s
`, branch(versions), released, current, version, published.Root)
	for _, tag := range all[1:] {
		fmt.Fprintf(output, "git tag %s %s\n", tag, released)
	}
	_, err = fmt.Fprintf(output, `git push origin %[1]s
go run %[2]s/retrylab/cmd/retrylab@%[3]s -experiments outage
git branch -d %[4]s

Soon after, https://pkg.go.dev/%[2]s@%[5]s has the documentation.
`, strings.Join(all[1:], " "), published.Root, versions["retrylab"], branch(versions), version)
	return err
}
