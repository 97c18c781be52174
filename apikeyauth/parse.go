package apikeyauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// byteOrderMark may begin a keys file.
var byteOrderMark = []byte("\xef\xbb\xbf")

// parseKeys reads the JSON form of a keys file, {"keys": [...]}, which may have
// comments. It is strict: unknown and repeated members are errors. None of its errors repeats a value or a
// name from the file that could be a key.
func parseKeys(content []byte) ([]Key, error) {
	content = withoutComments(bytes.TrimPrefix(content, byteOrderMark))
	if err := checkMembers(content); err != nil {
		return nil, err
	}
	var doc struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := decodeStrict(content, &doc); err != nil {
		return nil, fmt.Errorf(`the file must be an object with the list "keys": %w`, err)
	}
	if doc.Keys == nil {
		return nil, errors.New(`the list "keys" is missing`)
	}
	keys := make([]Key, len(*doc.Keys))
	for i, raw := range *doc.Keys {
		if err := decodeStrict(raw, &keys[i]); err != nil {
			if checkName("id", keys[i].ID) == nil {
				return nil, fmt.Errorf("keys[%d] (id %q): %w", i, keys[i].ID, err)
			}
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
	}
	return keys, nil
}

// decodeStrict decodes JSON that is known to be well-formed and refuses unknown
// members. The decoder's own errors can quote the input, so they are put otherwise.
func decodeStrict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType):
		if wrongType.Field == "" {
			return fmt.Errorf("must be an object, not %s", kind(wrongType.Value))
		}
		return fmt.Errorf("field %q has the wrong type, %s", wrongType.Field, kind(wrongType.Value))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if name = strings.Trim(name, `"`); isPlainWord(name) {
			return fmt.Errorf("unknown field %q", name)
		}
		return errors.New("unknown field")
	}
	return err
}

// kind is the JSON type alone of a decoder's description such as "number 12".
func kind(description string) string {
	word, _, _ := strings.Cut(description, " ")
	return word
}

// isPlainWord tells whether a member's name may be shown: words of the grammar and
// slips of the pen look so, keys do not.
func isPlainWord(s string) bool {
	return len(s) <= 24 && !strings.ContainsFunc(s, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
}

// checkMembers refuses malformed JSON and objects that name a member twice, in any
// case, of which a decoder would silently take the last.
func checkMembers(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := walk(dec, 0); err != nil {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(b[:min(dec.InputOffset(), int64(len(b)))], []byte("\n")), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

var errJSON = errors.New("not valid JSON")

// maxDepth is more than any keys file needs.
const maxDepth = 8

// walk consumes one JSON value.
func walk(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return errJSON // the decoder's own error quotes the input
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return errors.New("nested too deeply")
	}
	members := map[string]bool{}
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return errJSON
			}
			folded := strings.ToLower(name.(string))
			if members[folded] {
				if isPlainWord(folded) {
					return fmt.Errorf("field %q is given twice", folded)
				}
				return errors.New("a field is given twice")
			}
			members[folded] = true
		}
		if err := walk(dec, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return errJSON
	}
	return nil
}
