package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/test/published"
)

func TestReleaseIsTwoCommitsOnABranch(t *testing.T) {
	r := newRepository(t)
	before := r.state(t)
	var output strings.Builder
	require.NoError(t, releaseIn(t, r, apart, &output))
	released := r.must(t, "rev-parse", "release-v0.1.0~1")
	ref := r.must(t, "for-each-ref", "refs/heads/release-v0.1.0") + "\n"
	assert.Equal(t, before, strings.Replace(r.state(t), ref, "", 1), "only the branch is new")
	assert.Equal(t, "release: build against this tree again\nrelease: v0.1.0",
		r.must(t, "log", "--format=%s", "main..release-v0.1.0"))
	assert.Equal(t, "A Maintainer maintainer@example.com", r.must(t, "log", "-1", "--format=%an %ae", released))

	assert.Equal(t, `# Changelog

## [Unreleased]

## [0.1.0] - 2026-01-02

### Added

- A name.

## [0.0.1] - 2025-12-31

- The first release.

[Unreleased]: https://github.com/retryhttp/retryhttp/compare/v0.1.0...HEAD
[0.1.0]: https://github.com/retryhttp/retryhttp/compare/v0.0.1...v0.1.0
[0.0.1]: https://github.com/retryhttp/retryhttp/releases/tag/v0.0.1`, r.must(t, "show", released+":CHANGELOG.md"))
	assert.Equal(t, `module github.com/retryhttp/retryhttp/otelretry

go 1.26.0

require github.com/retryhttp/retryhttp v0.1.0`, r.must(t, "show", released+":otelretry/go.mod"))

	// After the release, nothing has changed but the CHANGELOG and the versions that are required.
	numstat := strings.Split(r.must(t, "diff", "--numstat", "main", "release-v0.1.0"), "\n")
	assert.Equal(t, []string{
		"4\t1\tCHANGELOG.md", "1\t1\totelretry/go.mod", "1\t1\tredisbudget/go.mod", "1\t1\tretrylab/go.mod", "2\t2\ttest/zoo/go.mod",
	}, numstat)
	assert.Contains(t, r.must(t, "show", released+":test/zoo/go.mod"), `
replace (
	github.com/retryhttp/retryhttp => ../../
	github.com/retryhttp/retryhttp/otelretry => ../../otelretry
)

require (
	example.com/other v0.0.1 // indirect
	github.com/retryhttp/retryhttp v0.1.0 // indirect
	github.com/retryhttp/retryhttp/otelretry v0.4.0
)`)
}

// The commands that a release prints, run against the repository itself in the place of GitHub: the go
// command then fetches the modules by their tags.
func TestPrintedCommandsPublishModulesThatTheGoCommandTakes(t *testing.T) {
	r := newRepository(t)
	var output strings.Builder
	require.NoError(t, releaseIn(t, r, apart, &output))
	remote := filepath.Join(t.TempDir(), "remote.git")
	r.must(t, "init", "--quiet", "--bare", remote)
	r.must(t, "remote", "add", "origin", remote)
	_, printed, found := strings.Cut(output.String(), "in this order.\n")
	require.True(t, found)
	for line := range strings.Lines(printed) {
		if args, isGit := strings.CutPrefix(strings.TrimSpace(line), "git "); isGit {
			r.must(t, strings.Fields(args)...)
		}
	}
	assert.Equal(t, r.must(t, "rev-parse", "main"), repository(remote).must(t, "rev-parse", "main"))
	all := tags(must(published.ParseVersions(apart)))
	assert.ElementsMatch(t, all, strings.Fields(repository(remote).must(t, "tag")))
	for _, tag := range all {
		assert.Equal(t, r.must(t, "rev-parse", "main~1"), r.must(t, "rev-parse", tag), tag)
	}

	config := "[url \"" + remote + "\"]\n\tinsteadOf = https://" + published.Root + "\n"
	require.NoError(t, os.WriteFile(os.Getenv("GIT_CONFIG_GLOBAL"), []byte(config), 0o644))
	env := append(os.Environ(), "GOPROXY=direct", "GOSUMDB=off", "GOENV=off", "GOPRIVATE=", "GOMODCACHE="+t.TempDir(),
		"GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=-modcacherw -buildvcs=false -mod=readonly")
	run := func(dir string, args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, env
		got, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), got)
		return string(got)
	}
	assert.True(t, strings.HasSuffix(run(t.TempDir(), "run", published.Root+"/retrylab@v0.0.3"), "retryhttp\n"))
	checkout := filepath.Join(t.TempDir(), "checkout")
	r.must(t, "clone", "--quiet", "--branch=v0.1.0", remote, checkout)
	for _, name := range published.Nested {
		run(filepath.Join(checkout, name), "build", "-o", os.DevNull, ".")
		run(filepath.Join(checkout, name), "mod", "tidy", "-diff")
	}
}

func TestReleaseThatFailsLeavesNothingBehind(t *testing.T) {
	for name, content := range map[string]string{
		"broken":             "the rehearsal fails",
		"redisbudget/go.mod": "no go.mod",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			commitFile(t, r, name, content)
			before := r.state(t)
			require.Error(t, releaseIn(t, r, apart, io.Discard))
			assert.Equal(t, before, r.state(t))
		})
	}
}

func TestReleaseIsRefused(t *testing.T) {
	for _, c := range []struct {
		version string
		prepare func(t *testing.T, r repository)
		reason  string
	}{
		{"0.1.0", nil, "0.1.0 is no version like v1.2.3 or v1.2.3-rc.1"},
		{"v0.1", nil, "v0.1 is no version like v1.2.3 or v1.2.3-rc.1"},
		{"v0.1.0+build", nil, "v0.1.0+build is no version like v1.2.3 or v1.2.3-rc.1"},
		{"v2.0.0", nil, published.Root + "@v2.0.0: invalid version: should be v0 or v1, not v2"},
		{"v0.0.1", nil, "v0.0.1 is not newer than v0.0.1"},
		{"v0.0.1-rc.1", nil, "v0.0.1-rc.1 is not newer than v0.0.1"},
		{"v0.1.0 otelretry=v0.0.1", nil, "otelretry/v0.0.1 is not newer than otelretry/v0.0.1"},
		{"v0.1.0 other=v0.1.0", nil, "other is no module: there are otelretry, redisbudget, retrylab"},
		{"v0.1.0 v0.1.1", nil, "there are two versions: v0.1.0 and v0.1.1"},
		{"otelretry=v0.1.0", nil, "which version? make release VERSION=v1.2.3"},
		{"v1.0.0 otelretry=v0.2.0 redisbudget=v0.2.0", nil,
			"which version of retrylab? make release VERSION=v1.0.0 MODULES=retrylab=v0.1.0"},
		{"v0.1.0", func(t *testing.T, r repository) {
			r.must(t, "tag", "retrylab/v0.1.0", r.must(t, "commit-tree", "-m", "elsewhere", "HEAD^{tree}"))
		}, "there is a tag or a branch retrylab/v0.1.0"},
		{"v0.1.0", func(t *testing.T, r repository) { r.must(t, "branch", "release-v0.1.0") }, "there is a tag or a branch release-v0.1.0"},
		{"v0.1.0", func(t *testing.T, r repository) { writeFile(t, r, "retryhttp.go", "package changed\n") },
			"the tree has changes that are not committed: git status lists them"},
		{"v0.1.0", func(t *testing.T, r repository) { writeFile(t, r, "new.go", "package retryhttp\n") },
			"the tree has changes that are not committed: git status lists them"},
		{"v0.1.0", func(t *testing.T, r repository) {
			commitFile(t, r, "CHANGELOG.md", strings.Replace(changelog, "- A name.\n", "", 1))
		}, "CHANGELOG.md has nothing under [Unreleased]"},
		{"v0.1.0", func(t *testing.T, r repository) {
			commitFile(t, r, "CHANGELOG.md", "## [Unreleased]\n\n[Unreleased]: https://example.com/compare/v0.0.1...HEAD\n")
		}, "CHANGELOG.md has nothing under [Unreleased]"},
		{"v0.1.0", func(t *testing.T, r repository) { commitFile(t, r, "CHANGELOG.md", "# Changelog\n") },
			"CHANGELOG.md has nothing under [Unreleased]"},
		{"v0.1.0", func(t *testing.T, r repository) { commitFile(t, r, "README.md", "There is no\nrelease yet.\n") },
			`README.md says that there is "no release yet": change it in a commit before the release`},
		{"v0.1.0", func(t *testing.T, r repository) {
			commitFile(t, r, "redisbudget/go.mod", "module "+published.Root+"/redisbudget\n\nrequire "+published.Root+" v0.0.1\n")
		}, "redisbudget/go.mod does not replace the root, as if this were the commit of a release"},
	} {
		t.Run(c.version+" "+c.reason, func(t *testing.T) {
			r := newRepository(t)
			if c.prepare != nil {
				c.prepare(t, r)
			}
			before := r.state(t)
			err := releaseIn(t, r, c.version, io.Discard)
			require.EqualError(t, err, c.reason)
			assert.Equal(t, before, r.state(t))
		})
	}
	assert.ErrorContains(t, command([]string{""}), "make release VERSION=v1.2.3")
}

func TestCandidateLeavesItsEntriesToTheRelease(t *testing.T) {
	r := newRepository(t)
	require.NoError(t, r.writeDocuments("v0.1.0-rc.1", date))
	assert.Empty(t, r.must(t, "status", "--porcelain"))
	require.NoError(t, r.writeDocuments("v0.1.0", date))
	assert.NotEmpty(t, r.must(t, "status", "--porcelain"))
}

// A tag of a nested module is none of the root's, and a tag of another branch is not of this line of versions.
func TestReleaseIsNewerThanTheRootsLastVersionOfItsBranch(t *testing.T) {
	r := newRepository(t)
	r.must(t, "tag", "otelretry/v0.9.9")
	r.must(t, "tag", "v0.0.2-rc.1")
	r.must(t, "checkout", "--quiet", "-b", "other")
	commitFile(t, r, "new.go", "package retryhttp\n")
	r.must(t, "tag", "v0.3.0")
	r.must(t, "checkout", "--quiet", "main")
	last, err := r.last()
	require.NoError(t, err)
	assert.Equal(t, published.Versions{"": "v0.0.2-rc.1", "otelretry": "v0.9.9", "redisbudget": "v0.0.1", "retrylab": "v0.0.1"}, last)
	for _, root := range []string{"v0.0.2", "v0.1.0-rc.1"} {
		assert.NoError(t, r.check(must(published.ParseVersions(root+" otelretry=v0.10.0"))))
	}
}

func TestInsertKeepsTheOrderOfGoSum(t *testing.T) {
	const before, sums, after = "github.com/redis/go-redis/v9 v9.23.0 h1:a\n", published.Root + " v0.1.0 h1:b\n",
		published.Root + "/otelretry v0.1.0 h1:c\ngo.yaml.in/yaml/v3 v3.0.5 h1:d\n"
	assert.Equal(t, before+sums+after, string(insert([]byte(before+after), sums)))
	assert.Equal(t, before+sums, string(insert([]byte(before), sums)))
	assert.Equal(t, sums, string(insert(nil, sums)))
}
