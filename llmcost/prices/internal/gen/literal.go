package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The package carries its data as a literal of JavaScript. It is read, not run, and its
// numbers stay the text that they are.

// number is a number as it is written.
type number string

// member is one of an object.
type member struct {
	name  string
	value any
}

// object has its members in the order in which they are written.
type object []member

// get is a member's value, or nil.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// maxDepth of arrays and objects inside each other.
const maxDepth = 64

// parseLiteral reads the literal at the start of src: an object, a []any, a string, a
// number, a bool or nil.
func parseLiteral(src string) (any, error) {
	p := parser{src: src}
	v, err := p.value(0)
	if err != nil {
		line := 1 + strings.Count(src[:min(p.at, len(src))], "\n")
		return nil, fmt.Errorf("line %d of the literal: %w", line, err)
	}
	return v, nil
}

type parser struct {
	src string
	at  int
}

func (p *parser) space() {
	for p.at < len(p.src) && strings.IndexByte(" \t\r\n", p.src[p.at]) >= 0 {
		p.at++
	}
}

// take skips white space and then the text, if it is there.
func (p *parser) take(text string) bool {
	p.space()
	if !strings.HasPrefix(p.src[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	p.space()
	if p.at == len(p.src) {
		return nil, errors.New("ends too early")
	}
	switch c := p.src[p.at]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"' || c == '\'' || c == '`':
		return p.text()
	case c == '-' || c == '.' || isDigit(c):
		return p.number()
	}
	words := []struct {
		text  string
		value any
	}{{"!0", true}, {"!1", false}, {"true", true}, {"false", false}, {"null", nil}}
	for _, w := range words {
		if p.take(w.text) {
			return w.value, nil
		}
	}
	return nil, fmt.Errorf("unexpected %q", p.src[p.at])
}

func (p *parser) object(depth int) (object, error) {
	p.at++
	o := object{}
	for !p.take("}") {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if !p.take(":") {
			return nil, fmt.Errorf("no colon after %q", name)
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(o, func(m member) bool { return m.name == name }) {
			return nil, fmt.Errorf("%q stands twice in one object", name)
		}
		o = append(o, member{name, v})
		if p.take(",") {
			continue
		}
		if !p.take("}") {
			return nil, fmt.Errorf("no comma after the value of %q", name)
		}
		break
	}
	return o, nil
}

func (p *parser) array(depth int) ([]any, error) {
	p.at++
	a := []any{}
	for !p.take("]") {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		a = append(a, v)
		if p.take(",") {
			continue
		}
		if !p.take("]") {
			return nil, errors.New("no comma between elements")
		}
		break
	}
	return a, nil
}

func (p *parser) name() (string, error) {
	p.space()
	if p.at < len(p.src) && strings.IndexByte("\"'", p.src[p.at]) >= 0 {
		return p.text()
	}
	start := p.at
	for p.at < len(p.src) && isNameByte(p.src[p.at]) {
		p.at++
	}
	if p.at == start {
		return "", errors.New("no name of a member")
	}
	return p.src[start:p.at], nil
}

func (p *parser) number() (number, error) {
	start := p.at
	for p.at < len(p.src) && strings.IndexByte("+-.eE0123456789", p.src[p.at]) >= 0 {
		p.at++
	}
	text := p.src[start:p.at]
	if f, err := strconv.ParseFloat(text, 64); err != nil || f > 1e18 || f < -1e18 {
		return "", fmt.Errorf("no number of a price table: %q", text)
	}
	return number(text), nil
}

// text reads a string between quotes of any of the three kinds.
func (p *parser) text() (string, error) {
	quote := p.src[p.at]
	p.at++
	var b strings.Builder
	for p.at < len(p.src) {
		c := p.src[p.at]
		switch {
		case c == quote:
			p.at++
			return b.String(), nil
		case quote == '`' && strings.HasPrefix(p.src[p.at:], "${"):
			return "", errors.New("a template with an expression")
		case c == '\n' && quote != '`':
			return "", errors.New("a line break in a string")
		case c != '\\':
			b.WriteByte(c)
			p.at++
		default:
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteString(r)
		}
	}
	return "", errors.New("a string without an end")
}

// escapes are those of one letter; what is not among them stands for itself.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", 'v': "\v", '\n': ""}

func (p *parser) escape() (string, error) {
	rest := p.src[p.at+1:]
	if rest == "" {
		return "", errors.New("a string without an end")
	}
	width := 0
	switch rest[0] {
	case 'x':
		width = 2
	case 'u':
		width = 4
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return "", fmt.Errorf("an octal escape: %q", rest[:1])
	}
	if width == 0 {
		if s, ok := escapes[rest[0]]; ok {
			p.at += 2
			return s, nil
		}
		_, n := utf8.DecodeRuneInString(rest)
		p.at += 1 + n
		return rest[:n], nil
	}
	if len(rest) <= width {
		return "", errors.New("a string without an end")
	}
	code, err := strconv.ParseUint(rest[1:1+width], 16, 16)
	if err != nil || code >= 0xd800 && code < 0xe000 {
		return "", fmt.Errorf("an escape that is not read: %q", rest[:1+width])
	}
	p.at += 2 + width
	return string(rune(code)), nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || c == '$' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
