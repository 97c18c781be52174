package usage

import (
	"testing"

	"github.com/tidwall/gjson"
)

// oneMember is one as members and gjson tell it.
type oneMember struct {
	name, raw, str string
	kind           gjson.Type
}

func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{}`, ` {"a":1}`, `{ "a" : -1.5e3 , "b":null,"a":true, "c" :false }`, `{"a":{"b":[1,"}"]},"c":[{"d":"]"},[]],"e":"f"}`,
		`{"\u0061\"":"\\","x":"\ud83d\ude00","":""}`, `{"a":"b`, `{"a":[`, `{"a"`, `{"a":1}x`, "{\"a\":1}\n", `[1]`, `{"a":1,}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v := parseObject(raw)
		if v.IsObject() != (len(raw) > 0 && raw[0] == '{' && gjson.ValidBytes(raw)) {
			t.Fatalf("object: %t of %q", v.IsObject(), raw)
		}
		var got, want []oneMember
		members(v, func(name string, v gjson.Result) { got = append(got, oneMember{name, v.Raw, v.Str, v.Type}) })
		if v.IsObject() {
			gjson.ParseBytes(raw).ForEach(func(name, v gjson.Result) bool {
				want = append(want, oneMember{name.Str, v.Raw, v.Str, v.Type})
				return true
			})
		}
		if len(got) != len(want) {
			t.Fatalf("%q has %d members, want %d", raw, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q: got %+v, want %+v", raw, got[i], want[i])
			}
		}
		// what is not valid ends somewhere
		members(gjson.Result{Type: gjson.JSON, Raw: "{" + string(raw)}, func(string, gjson.Result) {})
	})
}
