package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// writeDocuments moves the unreleased entries of the CHANGELOG to a section of the version. A candidate leaves
// them to its release. The README must not deny that there is a release.
func (r repository) writeDocuments(version string, date time.Time) error {
	readme, err := os.ReadFile(r.path("README.md"))
	if err != nil {
		return err
	}
	const denial = "no release yet"
	if strings.Contains(strings.Join(strings.Fields(string(readme)), " "), denial) {
		return fmt.Errorf("README.md says that there is %q: change it in a commit before the release", denial)
	}
	changelog, err := os.ReadFile(r.path("CHANGELOG.md"))
	if err != nil {
		return err
	}
	changed, err := moved(string(changelog), version, date)
	if err != nil || semver.Prerelease(version) != "" {
		return err
	}
	return r.write(map[string][]byte{"CHANGELOG.md": []byte(changed)})
}

var (
	// The entries end at the next section, at the definitions of links, or at the end.
	unreleased = regexp.MustCompile(`(?ms)^## \[Unreleased\]\n(.*?)(^## |^\[[^\]]+\]: |\z)`)
	comparison = regexp.MustCompile(`(?m)^\[Unreleased\]: (.*/compare/)(.+)\.\.\.HEAD$`)
	entry      = regexp.MustCompile(`(?m)^[^#\s]`)
)

// moved returns a CHANGELOG whose unreleased entries belong to a version.
func moved(changelog, version string, date time.Time) (string, error) {
	found := unreleased.FindStringSubmatchIndex(changelog)
	if found == nil || !entry.MatchString(changelog[found[2]:found[3]]) {
		return "", errors.New("CHANGELOG.md has nothing under [Unreleased]")
	}
	number := strings.TrimPrefix(version, "v")
	heading := fmt.Sprintf("\n## [%s] - %s\n", number, date.Format(time.DateOnly))
	changelog = changelog[:found[2]] + heading + changelog[found[2]:]
	return comparison.ReplaceAllString(changelog,
		"[Unreleased]: ${1}"+version+"...HEAD\n["+number+"]: ${1}${2}..."+version), nil
}
