package limit

import (
	"errors"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// partError is what is wrong with one part of a config.
type partError struct {
	part string // as JSON has it: `models[0]`; or the word of a Caddyfile's line
	mute bool   // the text of err says already where it is
	err  error
}

// within says in which part of a config an error is.
func within(part string, err error) error { return &partError{part: part, err: err} }

// at is an error of a line, whose word stands in its text.
func at(word string, err error) error { return &partError{part: word, mute: true, err: err} }

// Error implements error.
func (e *partError) Error() string {
	if e.mute {
		return e.err.Error()
	}
	return e.part + ": " + e.err.Error()
}

// Unwrap returns what is wrong.
func (e *partError) Unwrap() error { return e.err }

// places are where the parts of a config stand in a Caddyfile, by part and the parts around
// it. What shows only when all has been read is told with the line that is wrong.
type places map[string]caddyfile.Dispenser

// mark notes that a part stands where the dispenser does; around is what it is part of.
func (p places) mark(around, part string, d *caddyfile.Dispenser) {
	p[around+"/"+part] = *d
}

// wrap tells of an error with the line of the innermost part that has one, in place of the
// part. start stands on the directive.
func (p places) wrap(start caddyfile.Dispenser, err error) error {
	path := ""
	for {
		var e *partError
		if !errors.As(err, &e) {
			return start.WrapErr(err)
		}
		path += "/" + e.part
		d, ok := p[path]
		if !ok {
			return start.WrapErr(err)
		}
		start, err = d, e.err
	}
}
