package prices

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
)

// maxDocument is how long a table may be, in bytes: more than ten times the longest
// one that is published.
const maxDocument = 32 << 20

// errNoPrices is returned for a document in which no model has a price.
var errNoPrices = errors.New("no prices in it")

// parseDocument reads a table in either form, which it tells by itself, completes it by
// what vendors publish for all of their models, and takes out what cannot be right.
func parseDocument(data []byte, source string) (*Layer, error) {
	if len(data) > maxDocument {
		return nil, fmt.Errorf("more than %d MiB", maxDocument>>20)
	}
	parse := ParseLiteLLM
	if isGenAI(data) {
		parse = ParseGenAI
	}
	l, err := parse(data)
	if err != nil {
		return nil, err
	}
	l.Source = source
	more, err := builtinSupplement()
	if err != nil {
		return nil, err
	}
	if err := more.complete(l.Rows); err != nil {
		return nil, err
	}
	Guard(l)
	if len(l.Rows) == 0 {
		return nil, errNoPrices
	}
	for _, r := range l.Rows {
		if r.Source == "" {
			r.Source = source
		}
	}
	return l, nil
}

// isGenAI reports whether a document is in the form of genai-prices: a list, or an
// object that has the list as providers. LiteLLM's is an object of models.
func isGenAI(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n\ufeff")
	if bytes.HasPrefix(data, []byte("[")) {
		return true
	}
	return gjson.GetBytes(data, "providers").IsArray()
}
