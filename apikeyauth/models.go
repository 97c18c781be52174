package apikeyauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
)

// Models is a list of globs of model names, in which "*" stands for any characters,
// "/" too. They are compared as those of the model blocks of limiters: without regard to
// case, with the name as it was sent and with its normal form, which has no path and
// provider before it and no variant or date behind. A name without a "*" that says more,
// such as a date, allows no more than it says.
// The list ["none"] allows no model. An absent list allows all; an empty one is
// refused, because it could mean either.
type Models []string

// noModels is the word for an allowlist that allows nothing.
const noModels = "none"

// UnmarshalJSON implements [json.Unmarshaler]. An empty list and null come out as an
// empty list, never as an absent one, so that neither can pass for "all".
func (m *Models) UnmarshalJSON(b []byte) error {
	list := []string{}
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.New("models must be a list of strings")
	}
	*m = append(Models{}, list...)
	return nil
}

// allowlist is a compiled [Models]; nil allows every model.
type allowlist struct{ globs []modelname.Glob }

func (m Models) compile() (*allowlist, error) {
	if m == nil {
		return nil, nil
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("models must not be empty: list globs, or %q; leave it out to allow all", noModels)
	}
	if len(m) == 1 && m[0] == noModels {
		return &allowlist{}, nil
	}
	a := &allowlist{globs: make([]modelname.Glob, len(m))}
	for i, s := range m {
		switch {
		case s == "":
			return nil, errors.New("models must not contain an empty glob")
		case s == noModels:
			return nil, fmt.Errorf("models: %q must stand alone", noModels)
		case slices.Contains(m[:i], s):
			return nil, fmt.Errorf("models: glob %q is given twice", s)
		}
		a.globs[i] = modelname.ForModels(s)
	}
	return a, nil
}

// allows tells whether the list names the model; an empty name never is.
func (a *allowlist) allows(model string) bool {
	if a == nil {
		return true
	}
	if model == "" {
		return false
	}
	as := strings.ToLower(model)
	if slices.ContainsFunc(a.globs, func(g modelname.Glob) bool { return g.Match(as) }) {
		return true
	}
	forms := modelname.Forms(model)
	return slices.ContainsFunc(a.globs, func(g modelname.Glob) bool { return g.MatchAny(forms) })
}
