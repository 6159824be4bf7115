package published

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// Root is the path of the module in the root of this repository.
const Root = "github.com/retryhttp/retryhttp"

// Nested are the directories of the other modules that users import. They are released together with the
// root, and each has a version of its own.
var Nested = []string{"otelretry", "redisbudget", "retrylab"}

// Versions are the versions of a release by the module's directory, which is "" for the root.
type Versions map[string]string

// ParseVersions reads the root's version and those of nested modules, such as v1.2.3 otelretry=v0.4.0. A
// nested module that is not named has the root's version, which must be a v0 then: a v1 is a promise.
func ParseVersions(arguments string) (Versions, error) {
	v := Versions{}
	for argument := range strings.FieldsSeq(arguments) {
		name, version, named := strings.Cut(argument, "=")
		if !named {
			name, version = "", argument
		}
		if named && !slices.Contains(Nested, name) {
			return nil, fmt.Errorf("%s is no module: there are %s", name, strings.Join(Nested, ", "))
		}
		if v[name] != "" {
			return nil, fmt.Errorf("there are two versions: %s and %s", v[name], version)
		}
		if semver.Canonical(version) != version {
			return nil, fmt.Errorf("%s is no version like v1.2.3 or v1.2.3-rc.1", version)
		}
		if err := module.Check(path.Join(Root, name), version); err != nil { // from v2 on, the path has another end
			return nil, err
		}
		v[name] = version
	}
	if v[""] == "" {
		return nil, fmt.Errorf("which version? make release VERSION=v1.2.3")
	}
	for _, name := range Nested {
		if v[name] == "" && semver.Major(v[""]) != "v0" {
			return nil, fmt.Errorf("which version of %s? make release VERSION=%s MODULES=%s=v0.1.0", name, v[""], name)
		}
		if v[name] == "" {
			v[name] = v[""]
		}
	}
	return v, nil
}

// String returns what ParseVersions reads.
func (v Versions) String() string {
	all := []string{v[""]}
	for _, name := range Nested {
		all = append(all, name+"="+v[name])
	}
	return strings.Join(all, " ")
}
