package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// dataStart stands before the literal in the package's program.
const dataStart = "const E = "

// convert makes the built-in table of the package's program: genai-prices' own form
// without what no price is made of, a model a line, so that a new version reads well
// in a diff. Models without any price are left out: they are unknown, not free.
func convert(program []byte, source, day string) ([]byte, error) {
	_, rest, found := strings.Cut(string(program), dataStart)
	if !found {
		return nil, fmt.Errorf("no %q in the program", dataStart)
	}
	v, err := parseLiteral(rest)
	if err != nil {
		return nil, err
	}
	providers, ok := v.([]any)
	if !ok || len(providers) == 0 {
		return nil, errors.New("the literal is no list of providers")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"as_of\":%s,\"source\":%s,\"providers\":[\n", encode(day), encode(source))
	for i, p := range providers {
		if i > 0 {
			b.WriteString(",\n")
		}
		if err := writeProvider(&b, p); err != nil {
			return nil, err
		}
	}
	b.WriteString("\n]}\n")
	if !json.Valid(b.Bytes()) {
		return nil, errors.New("the result is no JSON: a number that JSON writes in another way")
	}
	return b.Bytes(), nil
}

func writeProvider(b *bytes.Buffer, v any) error {
	p, _ := v.(object)
	id, _ := p.get("id").(string)
	models, ok := p.get("models").([]any)
	if id == "" || !ok {
		return errors.New("a provider without id or models")
	}
	fmt.Fprintf(b, "{\"id\":%s,", encode(id))
	if others := p.get("fallback_model_providers"); others != nil {
		b.WriteString("\"fallback_model_providers\":")
		write(b, others)
		b.WriteByte(',')
	}
	b.WriteString("\"models\":[")
	first := true
	for _, v := range models {
		m, _ := v.(object)
		name, _ := m.get("id").(string)
		if name == "" {
			return fmt.Errorf("a model of provider %q without id", id)
		}
		prices := m.get("prices")
		switch o := prices.(type) {
		case object:
			if len(o) == 0 {
				continue
			}
		case []any:
		default:
			return fmt.Errorf("model %q of provider %q has no prices", name, id)
		}
		slim := object{{"id", name}}
		if match := exact(m.get("match"), name); match != nil {
			slim = append(slim, member{"match", match})
		}
		if window := m.get("context_window"); window != nil {
			slim = append(slim, member{"context_window", window})
		}
		slim = append(slim, member{"prices", sorted(prices)})
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteByte('\n')
		write(b, slim)
	}
	b.WriteString("\n]}")
	return nil
}

// exact keeps of a match clause what names a model literally and differs from its id.
// Patterns go: a name that is only like another has no price here.
func exact(v any, id string) any {
	clauses, _ := v.(object)
	if len(clauses) != 1 {
		return nil
	}
	switch c := clauses[0]; c.name {
	case "or":
		parts, _ := c.value.([]any)
		var kept []any
		for _, part := range parts {
			if k := exact(part, id); k != nil {
				kept = append(kept, k)
			}
		}
		switch len(kept) {
		case 0:
			return nil
		case 1:
			return kept[0]
		}
		return object{{"or", kept}}
	case "equals", "starts_with", "contains", "ends_with":
		if text, _ := c.value.(string); text == "" || text == id {
			return nil
		}
		return clauses
	}
	return nil
}

// sorted orders members by name, all the way down.
func sorted(v any) any {
	switch v := v.(type) {
	case object:
		o := make(object, len(v))
		for i, m := range v {
			o[i] = member{m.name, sorted(m.value)}
		}
		slices.SortFunc(o, func(a, b member) int { return strings.Compare(a.name, b.name) })
		return o
	case []any:
		a := make([]any, len(v))
		for i, e := range v {
			a[i] = sorted(e)
		}
		return a
	}
	return v
}

// write encodes a value as JSON without white space, fractions as they were written.
func write(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(encode(m.name))
			b.WriteByte(':')
			write(b, m.value)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, e)
		}
		b.WriteByte(']')
	case number:
		b.WriteString(plain(v))
	default:
		b.WriteString(encode(v))
	}
}

// plain writes a whole number without the exponent that minifiers like, and any other
// as it is.
func plain(n number) string {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok || !r.IsInt() {
		return string(n)
	}
	return r.Num().String()
}

// encode is the JSON of a string, a bool or nil.
func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "null"
	}
	return strings.TrimSuffix(b.String(), "\n")
}
