package usage

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Fields are places in responses whose counts add up to the tokens of a call, as an
// operator names them for an API that no format of this package covers. They may be
// used by any number of goroutines.
type Fields struct {
	tree    *tree
	slots   []int32
	many    []bool // by field: it lies in elements of an array
	readers sync.Pool
}

const (
	// maxFields bounds the fields of a config, so that nodes of their tree have
	// numbers.
	maxFields = 16
	// maxFieldParts is how many names and # a path may have: the document itself is a
	// container, too.
	maxFieldParts = maxDepth - 1
	// maxFieldName is the longest name in a path, in bytes. With each letter as
	// \uXXXX it is what the scanner keeps of a name.
	maxFieldName = maxName / len(`\uXXXX`)
)

// NewFields compiles the paths of fields. They are gjson's as far as a response can be
// followed while it passes: member names joined by dots, and # for every element of the
// array before it, as in "usage.total" or "results.#.tokens". Names are made of
// letters, digits, "_", "-", "$" and ":". The error quotes the path and states the rule.
func NewFields(paths []string) (*Fields, error) {
	if len(paths) == 0 {
		return nil, errors.New("no field is named")
	}
	if len(paths) > maxFields {
		return nil, fmt.Errorf("%d fields are more than %d", len(paths), maxFields)
	}
	f := &Fields{tree: newTree()}
	positions := make([]position, len(paths))
	seen := make(map[string]bool)
	for i, path := range paths {
		if err := checkField(path); err != nil {
			return nil, fmt.Errorf("field %q %w", path, err)
		}
		if seen[path] {
			return nil, fmt.Errorf("field %q is named twice", path)
		}
		seen[path] = true
		positions[i] = position{strings.ReplaceAll(path, ".#", "[]"), word}
		f.many = append(f.many, strings.Contains(path, "#"))
	}
	f.slots = f.tree.add(positions)
	f.readers.New = func() any { return newFieldReader(f) }
	return f, nil
}

// checkField states what is wrong with a path.
func checkField(path string) error {
	parts := strings.Split(path, ".")
	if len(parts) > maxFieldParts {
		return fmt.Errorf("is deeper than %d names", maxFieldParts)
	}
	for i, part := range parts {
		switch {
		case part == "":
			return errors.New("has an empty name")
		case part == "#" && i == 0:
			return errors.New("begins with #: an array at the top is read as one document after another")
		case part == "#" && i == len(parts)-1:
			return errors.New("ends with #, which would be a number of elements: it must end with a name")
		case part == "#":
		case strings.Trim(part, "0123456789") == "":
			return fmt.Errorf("has the index %s: elements are not told apart, write # for all of them", part)
		case len(part) > maxFieldName:
			return fmt.Errorf("has a name longer than %d bytes", maxFieldName)
		case strings.ContainsFunc(part, notInFieldName):
			return fmt.Errorf("has the name %q: only letters, digits, _, -, $ and : are followed, and # for every element", part)
		}
	}
	return nil
}

// notInFieldName keeps out what gjson gives a meaning of its own, so that no path means
// something else here than there.
func notInFieldName(r rune) bool {
	return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-$:", r)
}

// fieldReader looks for fields in one response.
type fieldReader struct {
	of   *Fields
	scan scanner
	last []optional // of each field
}

func newFieldReader(of *Fields) *fieldReader {
	f := &fieldReader{of: of, last: make([]optional, len(of.slots))}
	f.scan = newScanner(of.tree, f.take)
	return f
}

// release makes f as good as new and keeps it for another response.
func (f *fieldReader) release() {
	f.scan.abandon()
	f.scan.doc.shrink()
	f.scan.lines = false
	clear(f.last)
	f.of.readers.Put(f)
}

// take reads a document. Streams say a count again, when it has grown, so the last one
// counts; a null or zero does not erase it. Elements of an array are things apart, and
// are added up.
func (f *fieldReader) take(d *document) {
	v := view{d, f.of.slots}
	for i, many := range f.of.many {
		n := v.number(i)
		if many {
			n = optional{}
			v.each(i, func(_ int32, _ byte, raw []byte) {
				if m, ok := countOf(raw); ok {
					n = optional{min(n.n+m, maxCount), true}
				}
			})
		}
		if n.known && (n.n > 0 || !f.last[i].known) {
			f.last[i] = n
		}
	}
}

// total is what all fields add up to.
func (f *fieldReader) total() (n int64) {
	for _, field := range f.last {
		n = min(n+field.n, maxCount)
	}
	return n
}

// Seek has fields looked for where the formats that the package knows report no tokens:
// what they add up to is then reported as Input. The first fields sought of which any
// is found count. It must be called before Start.
func (r *Response) Seek(f *Fields) {
	for _, other := range r.fields {
		if other.of == f {
			return
		}
	}
	r.fields = append(r.fields, f.readers.Get().(*fieldReader))
}

// takeFields puts what was sought into the report. Nothing but zeros is no report: where
// the text of an answer is unknown, they cannot be told from an omission.
func (r *Response) takeFields() {
	if r.report.Found && r.report.Usage.Total() > 0 || len(r.report.Other) > 0 {
		return
	}
	for _, f := range r.fields {
		n := f.total()
		if n == 0 {
			continue
		}
		if r.report.Complete || r.report.Failed {
			r.report.Usage.Input, r.report.Found = n, true
		} else {
			r.report.Least = n
		}
		return
	}
}
