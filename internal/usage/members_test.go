package usage

import (
	"bytes"
	"reflect"
	"strings"
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
		var got, want []oneMember
		ok := members(raw, func(name, v []byte) { got = append(got, oneMember{string(name), string(v), string(wordOf(v))}) })
		if ok != (len(raw) > 0 && raw[0] == '{' && gjson.ValidBytes(raw)) || ok != (validObject(raw) != nil) {
			t.Fatalf("object: %t of %q", ok, raw)
		}
		if !ok {
			return
		}
		gjson.ParseBytes(raw).ForEach(func(name, v gjson.Result) bool {
			want = append(want, oneMember{name.Str, v.Raw, v.Str})
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

// TestInvalidObjectsCountNothing has each reader of usage meet a mistake behind its counts.
func TestInvalidObjectsCountNothing(t *testing.T) {
	members := []string{
		`"prompt_tokens":5`, `"prompt_tokens_details":{"cached_tokens":2}`, `"cost":0.5`, `"search_context_size":"low"`, `"prompt_n":5`,
		`"inputTokens":5`, `"inputTokenCount":5`, `"input_tokens":5`, `"total_input_tokens":5`, `"total_tokens":5`,
	}
	for _, end := range []string{"", ",", ",}", `,"x":01}`, `,"x":{"y":}}`, `,"x":"`, "}}", `} x`, "\x01}"} {
		raw := []byte("{" + strings.Join(members, ",") + end)
		var n tokens
		var a anthropicTally
		_, converse := readConverse(raw)
		_, stats := readStats(raw)
		_, units := readCohereUnits(raw, raw)
		_, _, interaction := readInteractionUsage(raw)
		if readTokens(raw, &n) || n != (tokens{}) || converse || stats || units || interaction || a.merge(raw) ||
			!reflect.DeepEqual(a, anthropicTally{}) || readTimings(raw) != (Usage{}) || readMetrics(raw) != (Usage{}) {
			t.Errorf("%s: something was counted", raw)
		}
	}
}
