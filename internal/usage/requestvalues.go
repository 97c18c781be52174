package usage

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// model reads a string that every upstream decodes alike, or null.
func (s *reqScanner) model() bool {
	if s.word("null") {
		return true
	}
	if s.peek() != '"' {
		s.bad = reqWrongType("model", "a string")
		return false
	}
	raw, size, ok := s.str()
	if !ok {
		return false
	}
	var model string
	if size == len(raw) {
		model = string(raw)
	} else {
		model = string(reqUnquote(make([]byte, 0, size), raw))
	}
	if !utf8.ValidString(model) || size < len(raw) && reqHasHalf(raw) {
		s.bad = reqWrongType("model", "valid UTF-8")
		return false
	}
	if s.r.Model == "" {
		s.r.Model = model
	} else {
		s.r.BodyModel = model
	}
	return true
}

// reqHasHalf finds half surrogates, which parsers decode each in their way.
func reqHasHalf(raw []byte) bool {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			i++
			continue
		}
		if r, n := reqRune(raw[i:]); n > 0 {
			if r == utf8.RuneError {
				return true
			}
			i += n
			continue
		}
		i += 2
	}
	return false
}

// flag reads true, false or null.
func (s *reqScanner) flag(name string) (v, ok bool) {
	switch {
	case s.word("true"):
		return true, true
	case s.word("false"), s.word("null"):
		return false, true
	}
	s.bad = reqWrongType(name, "true or false")
	return false, false
}

// streamOptions reads an object or null, and notes where an edit would go.
func (s *reqScanner) streamOptions() bool {
	e := &s.r.edit
	start := s.i
	if s.word("null") {
		e.options = reqSpan{start, s.i}
		return true
	}
	if s.peek() != '{' {
		s.bad = reqWrongType("stream_options", "an object")
		return false
	}
	s.i++
	e.options.at, e.optionsOpen, e.optionsEmpty = start, s.i, true
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			e.options.end = s.i
			return s.bad == nil
		}
		e.optionsEmpty = false
		name, same := s.name(raw)
		if string(name) != "include_usage" {
			if _, ok := s.compact(3); !ok {
				return false
			}
			continue
		}
		switch {
		case !same:
			s.bad = reqVariant("include_usage")
			return false
		case e.usage.at > 0:
			s.bad = reqDuplicate("include_usage")
			return false
		}
		at := s.i
		asked, ok := s.flag("include_usage")
		if !ok {
			return false
		}
		s.r.UsageAsked = asked
		e.usage = reqSpan{at, s.i}
	}
}

// count reads a whole number or null; set is false for null. Where endless is
// allowed, any negative number means it and reads as -1.
func (s *reqScanner) count(name string, endless bool) (n int64, set, ok bool) {
	c := s.peek()
	if c == 'n' && s.word("null") {
		return 0, false, true
	}
	if c == '-' || c-'0' <= 9 {
		lit, ok := s.scalar()
		if !ok {
			return 0, false, false
		}
		if endless && lit[0] == '-' {
			return -1, true, true
		}
		if n, ok = reqWhole(lit); ok {
			return n, true, true
		}
	}
	s.bad = reqWrongType(name, "a whole number from 0 to 9007199254740992")
	return 0, false, false
}

// reqWhole is the exact value of a JSON number that is whole, not negative and at
// most 2^53; 16.0 and 1.6e1 are 16.
func reqWhole(lit []byte) (int64, bool) {
	if lit[0] == '-' {
		return 0, false
	}
	if n, ok := countOfDigits(lit); ok { // as nearly all are
		return n, true
	}
	digits, exp := lit, 0
	if e := bytes.IndexAny(lit, "eE"); e >= 0 {
		var err error
		if exp, err = strconv.Atoi(string(lit[e+1:])); err != nil {
			return 0, false
		}
		digits = lit[:e]
	}
	point := len(digits)
	if p := bytes.IndexByte(digits, '.'); p >= 0 {
		point = p
	}
	// The digit at place p is worth 10^p; below 0 only zeros may stand.
	var n int64
	last, place := 0, point+exp
	for _, c := range digits {
		if c == '.' {
			continue
		}
		place--
		switch {
		case place < 0:
			if c != '0' {
				return 0, false
			}
		default:
			if n = n*10 + int64(c-'0'); n > 1<<53 {
				return 0, false
			}
			last = place
		}
	}
	if n == 0 {
		return 0, true
	}
	for ; last > 0; last-- {
		if n *= 10; n > 1<<53 {
			return 0, false
		}
	}
	return n, true
}
