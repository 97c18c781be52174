package usage

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAskUsage(t *testing.T) {
	tests := []struct {
		name     string
		ep       Endpoint
		in, want string // want is empty where nothing may change
	}{
		{"absent", epChat, `{"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{"absent, with white space", epChat, `{ "stream": true }`, `{"stream_options":{"include_usage":true}, "stream": true }`},
		{"null", epChat, `{"stream":true,"stream_options": null }`, `{"stream":true,"stream_options": {"include_usage":true} }`},
		{"empty", epChat, `{"stream_options":{ },"stream":true}`, `{"stream_options":{"include_usage":true },"stream":true}`},
		{
			"other members", epChat, `{"stream":true,"stream_options":{"include_obfuscation":false}}`,
			`{"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`,
		},
		{"false", epChat, `{"stream":true,"stream_options":{"include_usage":false}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{"null within", epChat, `{"stream":true,"stream_options":{"a":[1],"include_usage":null}}`, `{"stream":true,"stream_options":{"a":[1],"include_usage":true}}`},
		{"legacy completions", epCompletions, `{"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{
			"large numbers and duplicates elsewhere", epChat, `{"seed":12345678901234567890,"x":1,"x":2,"stream":true}`,
			`{"stream_options":{"include_usage":true},"seed":12345678901234567890,"x":1,"x":2,"stream":true}`,
		},
		{"asked already", epChat, `{"stream":true,"stream_options":{"include_usage":true}}`, ``},
		{"no stream", epChat, `{"stream":false}`, ``},
		{"no stream, with options", epChat, `{"stream_options":{}}`, ``},
		{"responses", epResponses, `{"stream":true}`, ``},
		{"messages", epMessages, `{"stream":true}`, ``},
		{"unknown API", Endpoint{}, `{"stream":true}`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.in)
			body := []byte(tt.in)
			got, ok := r.AskUsage(body)
			if string(body) != tt.in {
				t.Error("the body given was changed")
			}
			if ok != (tt.want != "") {
				t.Fatalf("edited: %t, got %s", ok, got)
			}
			if want := tt.want; ok && string(got) != want || !ok && string(got) != tt.in {
				t.Errorf("got %s, want %s", got, want)
			}
			if _, again := r.AskUsage(got); again {
				t.Error("a second time edits again")
			}
		})
	}
}

func TestWriteCap(t *testing.T) {
	tests := []struct {
		name     string
		ep       Endpoint
		in, want string
	}{
		{"chat", epChat, `{"model":"m"}`, `{"max_completion_tokens":7,"model":"m"}`},
		{"chat, nothing there", epChat, `{}`, `{"max_completion_tokens":7}`},
		{"chat, null", epChat, `{"max_completion_tokens":null}`, `{"max_completion_tokens":7}`},
		{"chat, the older name", epChat, `{"max_tokens" : null}`, `{"max_tokens" : 7}`},
		{"chat, both names", epChat, `{"max_tokens":null,"max_completion_tokens":null}`, `{"max_tokens":null,"max_completion_tokens":7}`},
		{"chat, a foreign name", epChat, `{"max_output_tokens":1}`, `{"max_completion_tokens":7,"max_output_tokens":1}`},
		{"completions", epCompletions, `{"model":"m"}`, `{"max_tokens":7,"model":"m"}`},
		{"responses", epResponses, `{"model":"m"}`, `{"max_output_tokens":7,"model":"m"}`},
		{"messages", epMessages, `{"max_tokens":null}`, `{"max_tokens":7}`},
		{"a cap is there", epChat, `{"max_tokens":3}`, ``},
		{"a cap of zero is there", epMessages, `{"max_tokens":0}`, ``},
		{"a cap without end is there", epChat, `{"n_predict":-1}`, ``},
		{"embeddings", epEmbeddings, `{"model":"m"}`, ``},
		{"unknown API", Endpoint{}, `{"model":"m"}`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.in)
			got, ok := r.WriteCap([]byte(tt.in), 7)
			if ok != (tt.want != "") {
				t.Fatalf("edited: %t, got %s", ok, got)
			}
			if !ok {
				return
			}
			if string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if r.Cap != 7 || r.CapImplied {
				t.Errorf("cap %d, implied %t, want 7", r.Cap, r.CapImplied)
			}
		})
	}
	for _, n := range []int64{-1, 0, 1<<53 + 1} {
		if _, ok := parse(t, epChat, `{}`).WriteCap([]byte(`{}`), n); ok {
			t.Errorf("wrote a cap of %d", n)
		}
	}
}

func TestEditsTakeOnlyTheirOwnBody(t *testing.T) {
	r := parse(t, epChat, `{"stream":true}`)
	if got, ok := r.AskUsage([]byte(`{"stream":true,"a":1}`)); ok {
		t.Errorf("edited another body to %s", got)
	}
}

// drawBody draws the text of a body that can be edited, members in any order.
func drawBody(t *rapid.T) string {
	members := []string{`"stream":true`}
	optional := func(label string, choices ...string) {
		if c := rapid.SampledFrom(append(choices, "")).Draw(t, label); c != "" {
			members = append(members, c)
		}
	}
	optional("options", `"stream_options":null`, `"stream_options":{}`, `"stream_options": { "x":[{}] , "y":"}" }`,
		`"stream_options":{"include_usage":false}`, `"stream_options":{"x":1,"include_usage": null ,"z":"\""}`)
	optional("max_tokens", `"max_tokens":null`, `"max_tokens":5`)
	optional("max_completion_tokens", `"max_completion_tokens": null`, `"max_completion_tokens":9`)
	optional("max_output_tokens", `"max_output_tokens":null`, `"max_output_tokens":100`)
	optional("model", `"model":"m\u00e9"`)
	optional("n", `"n":3`)
	optional("seed", `"seed":12345678901234567890`)
	for i := range rapid.IntRange(0, 2).Draw(t, "others") {
		doc, err := json.Marshal(drawJSON(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, `"`+[]string{"messages", "x"}[i]+`":`+string(doc))
	}
	gap := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "gap")
	members = rapid.Permutation(members).Draw(t, "order")
	return gap + "{" + gap + strings.Join(members, gap+","+gap) + gap + "}" + gap
}

func TestEditsChangeOnlyTheirMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ep := rapid.SampledFrom([]Endpoint{epChat, epCompletions, epResponses, epMessages}).Draw(t, "endpoint")
		in := drawBody(t)
		r, err := ParseRequest(ep, nil, []byte(in))
		if err != nil {
			t.Fatalf("ParseRequest(%s) = %v", in, err)
		}
		limit := rapid.Int64Range(1, 1<<53).Draw(t, "limit")
		body, want := []byte(in), *r
		ask := func() {
			edited, ok := r.AskUsage(body)
			if expected := ep.API == OpenAIChat || ep.API == OpenAICompletions; ok != expected {
				t.Fatalf("AskUsage(%s): edited %t, want %t", body, ok, expected)
			}
			body = edited
			want.UsageAsked = ok
		}
		write := func() {
			edited, ok := r.WriteCap(body, limit)
			if expected := want.Cap == 0 || want.CapImplied; ok != expected {
				t.Fatalf("WriteCap(%s): edited %t, want %t", body, ok, expected)
			}
			body = edited
			want.Cap, want.CapImplied = r.Cap, r.CapImplied
		}
		if rapid.Bool().Draw(t, "usage first") {
			ask()
			write()
		} else {
			write()
			ask()
		}
		if !json.Valid(body) {
			t.Fatalf("%s was edited to %s, which is not JSON", in, body)
		}
		again, err := ParseRequest(ep, nil, body)
		if err != nil {
			t.Fatalf("%s was edited to %s, which is refused: %v", in, body, err)
		}
		got := *again
		if got.edit.size != r.edit.size || got.edit.open != r.edit.open || got.edit.options.end < r.edit.options.end {
			t.Fatalf("%s: noted %+v, parsed %+v", body, r.edit, got.edit)
		}
		got.edit, want.edit = reqEdit{}, reqEdit{}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s was edited to %s\nparsed %+v\nwant   %+v", in, body, got, want)
		}
		sameButEdited(t, in, string(body))
	})
}

// sameButEdited checks that every member that no edit concerns has the same bytes.
func sameButEdited(t *rapid.T, before, after string) {
	var was, is map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal([]byte(before), &was), json.Unmarshal([]byte(after), &is)); err != nil {
		t.Fatal(err)
	}
	for _, edited := range []string{"stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if old := string(was[edited]); len(old) > 0 && old[0] >= '0' && old[0] <= '9' && old != string(is[edited]) {
			t.Fatalf("%s was edited to %s, over a cap", before, after)
		}
		delete(was, edited)
		delete(is, edited)
	}
	if !maps.EqualFunc(was, is, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
		t.Fatalf("%s was edited to %s, other members too", before, after)
	}
}
