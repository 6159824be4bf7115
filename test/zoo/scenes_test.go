package zoo

import (
	"fmt"
	"net/http"
)

// method is a request's method, with or without a key.
type method struct {
	name       string
	key        string
	repeatable bool
}

var methods = []method{
	{"GET", "", true},
	{"PUT", "", true},
	{"POST", "c0ffee", true},
	{"POST", "", false},
}

func (m method) String() string {
	if m.key != "" {
		return m.name + " with a key"
	}
	return m.name
}

// scene is an animal, a request, and what the server does to it.
type scene struct {
	animal *animal
	kind   *kind
	method method
	fault  *mishap
	bodies bool // with all that the Policy can do about response bodies

	hedging *hedging // nil: nothing is hedged
}

func (s scene) String() string {
	return fmt.Sprintf("%s/%s/%v/%s", s.animal.name, s.kind.name, s.method, s.fault.name)
}

// scenes crosses all animals, kinds of bodies and faults with methods.
func scenes(methods []method) []scene {
	var all []scene
	for a := range animals {
		for k := range kinds {
			for _, m := range methods {
				for f := range mishaps {
					s := scene{animal: &animals[a], kind: &kinds[k], method: m, fault: &mishaps[f]}
					if s.possible() {
						all = append(all, s)
					}
				}
			}
		}
	}
	return all
}

func (s scene) possible() bool {
	switch {
	case s.method.name == http.MethodGet && s.kind.size > 0:
		return false
	case s.fault.needsBody && s.kind.size == 0:
		return false
	case s.animal.rewinds && s.kind.shared:
		return false // the look for the end may take all that was rewound, without the Transport as well
	}
	return s.method.name == http.MethodGet || !s.animal.reads
}

func (s scene) size() int {
	if s.fault.needsBody && s.kind.size == medium {
		return large
	}
	return s.kind.size
}

// repeatable reports whether the Transport may send the request again, and can.
func (s scene) repeatable() bool {
	if !s.method.repeatable || s.animal.byMethod && s.method.key != "" {
		return false
	}
	if s.animal.readsAhead && s.kind.shared {
		return false
	}
	return s.kind.form == fresh || s.kind.form == inPlace && !s.animal.hides || s.size() <= max(kept, s.animal.keeps)
}

// wrapped reports whether the Transport owns the body that the caller gave.
func (s scene) wrapped() bool {
	return !s.animal.above && s.kind.form != fresh && (s.method.repeatable || s.fault.hangs)
}

// closes reports whether the animal closes the body that it is given, and whether it
// closes all that GetBody returns.
func (s scene) closes() (first, all bool) {
	a := s.animal
	first = !a.forgets && (!a.forgetsFirst || s.kind.form != fresh)
	return first, first && !a.forgetsFirst && !a.forgetsMore
}
