package prices

import (
	"fmt"
	"time"
)

// Layer is what one source of prices holds.
type Layer struct {
	// Source names it for people: a package's name and version, a file's path or an
	// URL without what may be secret in it.
	Source string
	// AsOf is when its prices were collected, as far as the source tells; zero if
	// unknown.
	AsOf time.Time
	Rows []*Row
	// Faults are what the source says of models and could not be used.
	Faults []Fault
	// Held are the first of Faults, those whose prices moved so far from those of the last copy
	// that the last ones stay.
	Held []Fault
}

// Fault is a model whose prices are not used. The model is unknown then, or has the
// prices that a layer below gives it.
type Fault struct {
	Provider string // as in [Row.Provider]
	Key      string // as in [Row.Key]
	Reason   string
}

// String says it in one line.
func (f Fault) String() string {
	if f.Provider == "" {
		return fmt.Sprintf("model %q: %s", f.Key, f.Reason)
	}
	return fmt.Sprintf("model %q of provider %q: %s", f.Key, f.Provider, f.Reason)
}
