package apikeyauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A keys file is changed as text, so that comments, order and layout stay as they are:
// what is not to be changed is copied byte by byte.

// keysText is a keys file with the places of its parts.
type keysText struct {
	text    []byte
	plain   []byte // without comments; all is at the same place
	keys    []Key
	items   []item // of the list, one for each key
	listEnd int    // where its closing bracket is
}

// item is a part of a text, a member of an object with its name.
type item struct {
	name       string
	begin, end int // with the name
	value      int // where the value begins
}

// parseText reads a keys file. It must hold to all rules that the handler has.
func parseText(text []byte) (*keysText, error) {
	keys, err := parseKeys(text)
	if err != nil {
		return nil, err
	}
	if err := newIndexer(len(keys)).add(keys, true); err != nil {
		return nil, err
	}
	t := &keysText{text: text, plain: withoutComments(text), keys: keys}
	begin := 0
	if bytes.HasPrefix(text, byteOrderMark) {
		begin = len(byteOrderMark)
	}
	list := t.members(begin)[0] // the one there is
	t.listEnd = list.end - 1
	dec := json.NewDecoder(bytes.NewReader(t.plain[list.value:list.end]))
	_, _ = dec.Token() // what is parsed here has been parsed before
	for dec.More() {
		t.items = append(t.items, t.next(dec, list.value, ""))
	}
	return t, nil
}

// members are those of the object that begins behind a place.
func (t *keysText) members(begin int) (all []item) {
	dec := json.NewDecoder(bytes.NewReader(t.plain[begin:]))
	_, _ = dec.Token()
	for dec.More() {
		name, _ := dec.Token()
		at := begin + int(dec.InputOffset())
		m := t.next(dec, begin, name.(string))
		m.begin = bytes.LastIndexByte(t.plain[:at-1], '"') // of names without escapes
		all = append(all, m)
	}
	return all
}

func (t *keysText) next(dec *json.Decoder, offset int, name string) item {
	var raw json.RawMessage
	_ = dec.Decode(&raw)
	end := offset + int(dec.InputOffset())
	return item{strings.ToLower(name), end - len(raw), end, end - len(raw)}
}

// find is the place of the key of an id in the list.
func (t *keysText) find(id string) (int, error) {
	i := slices.IndexFunc(t.keys, func(k Key) bool { return k.ID == id })
	if i < 0 {
		return 0, fmt.Errorf("the file has no key %q", id)
	}
	return i, nil
}

// add returns the text with a key more, at the end of the list.
func (t *keysText) add(k *Key) ([]byte, error) {
	if len(t.items) == 0 {
		entry, err := entryOf(k, "    ", true)
		if err != nil {
			return nil, err
		}
		return t.with(edit{t.listEnd, t.listEnd, "\n    " + entry + "\n  "})
	}
	last := t.items[len(t.items)-1]
	indent := t.indent(last.begin)
	entry, err := entryOf(k, indent, bytes.ContainsRune(t.text[last.begin:last.end], '\n'))
	if err != nil {
		return nil, err
	}
	// what is said of the last key behind it stays with it
	at := last.end
	if n := bytes.IndexByte(t.text[at:t.listEnd], '\n'); n >= 0 && len(bytes.TrimSpace(t.plain[at:at+n])) == 0 {
		at += n
	}
	return t.with(edit{last.end, last.end, ","}, edit{at, at, "\n" + indent + entry})
}

func entryOf(k *Key, indent string, lines bool) (string, error) {
	var entry []byte
	var err error
	if lines {
		entry, err = json.MarshalIndent(k, indent, "  ")
	} else {
		entry, err = json.Marshal(k)
	}
	return string(entry), err
}

// indent is what a line begins with that has nothing else before a place.
func (t *keysText) indent(at int) string {
	line := t.text[bytes.LastIndexByte(t.text[:at], '\n')+1 : at]
	if len(bytes.Trim(line, " \t")) > 0 {
		return "    "
	}
	return string(line)
}

// rotate returns the text with another hash for a key, whose former one works until a
// time; empty for not at all.
func (t *keysText) rotate(id, hash, until string) ([]byte, error) {
	i, err := t.find(id)
	if err != nil {
		return nil, err
	}
	return t.rotateFrom(id, t.keys[i].Hash, hash, until)
}

// rotateFrom is rotate where the hash that works until a time may be another than the
// current one.
func (t *keysText) rotateFrom(id, before, hash, until string) ([]byte, error) {
	i, err := t.find(id)
	if err != nil {
		return nil, err
	}
	members := t.members(t.items[i].begin)
	current := members[memberAt(members, "hash")]
	quoted, err := json.Marshal(hash)
	if err != nil {
		return nil, err
	}
	edits := []edit{{current.value, current.end, string(quoted)}}
	former := memberAt(members, "previous")
	switch {
	case until == "" && former >= 0:
		edits = append(edits, t.cut(members, former)...)
	case until != "":
		previous, err := json.Marshal(Previous{Hash: before, Until: until})
		if err != nil {
			return nil, err
		}
		if former >= 0 {
			edits = append(edits, edit{members[former].value, members[former].end, string(previous)})
			break
		}
		edits = append(edits, t.behind(current, `"previous": `+string(previous)))
	}
	return t.with(edits...)
}

// memberAt is where a member of that name stands, -1 if there is none.
func memberAt(members []item, name string) int {
	return slices.IndexFunc(members, func(m item) bool { return m.name == name })
}

// behind puts a member behind another, in a line of its own if that has one.
func (t *keysText) behind(m item, member string) edit {
	between := ", "
	if line := t.text[bytes.LastIndexByte(t.text[:m.begin], '\n')+1 : m.begin]; len(bytes.Trim(line, " \t")) == 0 && len(line) > 0 {
		between = ",\n" + string(line)
	}
	return edit{m.end, m.end, between + member}
}

// enable returns the text with a key turned on or off.
func (t *keysText) enable(id string, on bool) ([]byte, error) {
	i, err := t.find(id)
	if err != nil {
		return nil, err
	}
	members := t.members(t.items[i].begin)
	switch stated := memberAt(members, "disabled"); {
	case t.keys[i].Disabled == !on:
		return t.text, nil
	case on:
		return t.with(t.cut(members, stated)...)
	case stated >= 0:
		return t.with(edit{members[stated].value, members[stated].end, "true"})
	}
	return t.with(t.behind(members[memberAt(members, "hash")], `"disabled": true`))
}

// remove returns the text without a key.
func (t *keysText) remove(id string) ([]byte, error) {
	i, err := t.find(id)
	if err != nil {
		return nil, err
	}
	return t.with(t.cut(t.items, i)...)
}

// cut takes an item out of a list, and one comma with it. A line of which nothing is
// left goes, too.
func (t *keysText) cut(items []item, i int) []edit {
	begin, end := items[i].begin, items[i].end
	var comma []edit
	switch {
	case i+1 < len(items):
		at := end + bytes.IndexByte(t.plain[end:], ',')
		if len(bytes.TrimSpace(t.text[end:at])) == 0 {
			end = at + 1
		} else {
			comma = []edit{{at, at + 1, ""}}
		}
	case i > 0 && len(bytes.Trim(t.text[items[i-1].end:begin], ", \t")) == 0: // with the space before it
		return []edit{{items[i-1].end, end, ""}}
	case i > 0:
		at := items[i-1].end + bytes.IndexByte(t.plain[items[i-1].end:], ',')
		comma = []edit{{at, at + 1, ""}}
	}
	line := bytes.LastIndexByte(t.text[:begin], '\n') + 1
	blank := func(b []byte) bool { return len(bytes.Trim(b, " \t\r")) == 0 }
	if n := bytes.IndexByte(t.text[end:], '\n'); n >= 0 && line > 0 && blank(t.text[line:begin]) && blank(t.text[end:end+n]) {
		begin, end = line, end+n+1
	}
	return append(comma, edit{begin, end, ""})
}

// edit replaces a part of a text.
type edit struct {
	begin, end int
	text       string
}

var errEdited = errors.New("the file cannot be changed without breaking it: change it by hand")

// with returns the text with edits, which do not overlap. It must hold to the rules as
// the one before did.
func (t *keysText) with(edits ...edit) ([]byte, error) {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.begin - b.begin })
	var out []byte
	at := 0
	for _, e := range edits {
		if e.begin < at {
			return nil, errEdited
		}
		out = append(append(out, t.text[at:e.begin]...), e.text...)
		at = e.end
	}
	out = append(out, t.text[at:]...)
	if _, err := parseText(out); err != nil {
		return nil, err
	}
	return out, nil
}
