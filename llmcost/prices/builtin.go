package prices

import (
	_ "embed"
	"sync"
)

// The generated table and what it lacks.
//
//go:generate go run ./internal/gen
var (
	//go:embed builtin.json
	builtinJSON []byte
	//go:embed supplement.json
	supplementJSON []byte
)

// Builtin returns the prices that come with the program: a table of genai-prices and a
// supplement that is kept by hand. It is read once; callers share it, and must not
// change it.
func Builtin() *Layer { return builtinLayer() }

var builtinLayer = sync.OnceValue(func() *Layer {
	l, err := parseBuiltin(builtinJSON, supplementJSON)
	if err != nil {
		panic("reading the built-in prices: " + err.Error())
	}
	return l
})

// builtinSupplement is shared by the built-in table and those that are loaded.
var builtinSupplement = sync.OnceValues(func() (*supplement, error) { return parseSupplement(supplementJSON) })

func parseBuiltin(table, more []byte) (*Layer, error) {
	l, err := ParseGenAI(table)
	if err != nil {
		return nil, err
	}
	for _, r := range l.Rows {
		r.Source = l.Source
	}
	s, err := parseSupplement(more)
	if err != nil {
		return nil, err
	}
	if l.Rows, err = s.apply(l.Rows); err != nil {
		return nil, err
	}
	return l, nil
}
