// Command release makes the commits of a release of all modules that users import. RELEASE.md says what a
// maintainer does before and after.
//
//	make release VERSION=v1.2.3
//	make release VERSION=v1.2.3 MODULES="otelretry=v0.4.0 redisbudget=v0.2.1 retrylab=v0.3.0"
//
// All of it happens in a temporary clone of the repository. The repository gets the new branch when the
// release has been rehearsed, and until then it gets nothing: what fails leaves nothing behind. A worktree
// would have to be removed, and golang.org/x/mod/zip does not take a worktree for a repository.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/test/published"
)

func main() {
	// An interrupt ends the command that runs for this one. The clone is then removed as after any failure.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	versions, err := published.ParseVersions(strings.Join(args, " "))
	if err != nil {
		return err
	}
	top, err := repository(".").git("rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	return release(repository(top), versions, time.Now(), os.Stdout)
}

// release makes a branch of r with two commits: the release, and a tree that is built against itself again.
func release(r repository, versions published.Versions, date time.Time, output io.Writer) error {
	if err := r.check(versions); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	clone, err := r.clone(filepath.Join(tmp, "clone"))
	if err != nil {
		return err
	}
	released, err := clone.commitBoth(versions, date, output)
	if err != nil {
		return err
	}
	if _, err := r.git("fetch", "--quiet", string(clone), "HEAD:"+branch(versions)); err != nil {
		return err
	}
	return r.printRest(versions, released, output)
}

// commitBoth makes the two commits, and rehearses the first of them, whose hash it returns.
func (r repository) commitBoth(versions published.Versions, date time.Time, output io.Writer) (released string, err error) {
	if err := r.writeDocuments(versions[""], date); err != nil {
		return "", err
	}
	again, err := r.writeModules(versions)
	if err != nil {
		return "", err
	}
	released, err = r.commit("release: " + versions[""])
	if err != nil {
		return "", err
	}
	if err := r.rehearse(versions, output); err != nil {
		return "", err
	}
	if err := r.write(again); err != nil {
		return "", err
	}
	_, err = r.commit("release: build against this tree again")
	return released, err
}

// rehearse publishes the modules of the last commit in a proxy of files, and builds programs of strangers
// against them.
func (r repository) rehearse(versions published.Versions, output io.Writer) error {
	fmt.Fprintf(output, "rehearsing %s, which takes a few minutes\n", versions[""])
	test := exec.Command("go", "test", "-count=1", "-timeout=20m", ".", "-args", "-released", versions.String())
	test.Dir = filepath.Join(string(r), "test", "published")
	test.Env = append(os.Environ(), "GOWORK=off")
	test.Stdout, test.Stderr = output, output
	if err := test.Run(); err != nil {
		return fmt.Errorf("the rehearsal of %s failed: %w", versions[""], err)
	}
	return nil
}
