package usage

import (
	"bytes"
	"testing"

	"github.com/tidwall/gjson"
)

// oneMember is one as members and gjson tell it.
type oneMember struct{ name, raw, word string }

func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{}`, ` {"a":1}`, `{ "a" : -1.5e3 , "b":null,"a":true, "c" :false }`, `{"a":{"b":[1,"}"]},"c":[{"d":"]"},[]],"e":"f"}`,
		`{"\u0061\"":"\\","x":"\ud83d\ude00","":""}`, `{"a":"b`, `{"a":[`, `{"a"`, `{"a":1}x`, "{\"a\":1}\n", `[1]`, `{"a":1,}`,
		`{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":1e+}`, `{"a":1E-7,"b":0.5e9}`, `{"a":"\u12g4"}`, `{"a":"\x"}`, "{\"a\":\"\tb\"}", `{"a":tru}`, `{"a":nul`,
		`{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`, `{"a" 1}`, `{"a":1 "b":2}`, `{,}`, `{"a":}`, `{"a":"12345678\"90123456"}`, `{"12345678\"90123456":"\\"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		object := validObject(raw)
		if (object != nil) != (len(raw) > 0 && raw[0] == '{' && gjson.ValidBytes(raw)) {
			t.Fatalf("object: %t of %q", object != nil, raw)
		}
		var got, want []oneMember
		members(object, func(name, v []byte) { got = append(got, oneMember{string(name), string(v), string(wordOf(v))}) })
		gjson.ParseBytes(object).ForEach(func(name, v gjson.Result) bool {
			if object != nil {
				want = append(want, oneMember{name.Str, v.Raw, v.Str})
			}
			return true
		})
		if len(got) != len(want) {
			t.Fatalf("%q has %d members, want %d", raw, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q: got %+v, want %+v", raw, got[i], want[i])
			}
		}
		// what is not valid ends somewhere
		members(append([]byte("{"), raw...), func(_, v []byte) { elements(v, func([]byte) {}) })
	})
}

// TestElementsAreThoseOfGJSON has containers within an object.
func TestElementsAreThoseOfGJSON(t *testing.T) {
	for _, raw := range []string{
		`[]`, ` [ ] `, `[1,"a\"]",[2,[3]],{"b":4},null ]`, `{"a":1,"b":[2]}`, `7`, `"s"`, ``,
	} {
		var got, want []string
		elements(bytes.TrimSpace([]byte(raw)), func(v []byte) { got = append(got, string(v)) })
		if v := gjson.Parse(raw); v.IsArray() || v.IsObject() {
			v.ForEach(func(_, v gjson.Result) bool {
				want = append(want, v.Raw)
				return true
			})
		}
		if len(got) != len(want) {
			t.Fatalf("%q has the elements %q, want %q", raw, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q has the elements %q, want %q", raw, got, want)
			}
		}
	}
}

func TestFirstMemberOfANameIsFound(t *testing.T) {
	for _, tt := range []struct{ object, want string }{
		{`{"a":1}`, ""}, {`{"x":{"n":5},"n":1,"n":2}`, "1"}, {`{"\u006e":[1]}`, "[1]"}, {`[{"n":1}]`, ""}, {`3`, ""}, {``, ""},
	} {
		if got := string(memberOf([]byte(tt.object), "n")); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.object, got, tt.want)
		}
	}
}
