package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"reflect"
	"strings"
	"testing"
)

func TestALiteralIsRead(t *testing.T) {
	tests := []struct {
		name, src string
		want      any
	}{
		{"names bare and quoted", `{a: 1, "b-c": 2, 'd': 3}`, object{{"a", number("1")}, {"b-c", number("2")}, {"d", number("3")}}},
		{"numbers stay text", `[0.075, 1e-3, 2e5, -1]`, []any{number("0.075"), number("1e-3"), number("2e5"), number("-1")}},
		{"minified booleans", `[!0, !1, true, false, null]`, []any{true, false, true, false, nil}},
		{"escapes", `"a\\.b\n\u20ac\x41\""`, "a\\.b\n€A\""},
		{"a template without an expression", "`two\nlines`", "two\nlines"},
		{"trailing commas and what follows", "[1,],\n const x = f()", []any{number("1")}},
		{"empty ones", `{a: {}, b: []}`, object{{"a", object{}}, {"b", []any{}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseLiteral(tt.src)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
}

func TestWhatIsNoLiteralIsRefused(t *testing.T) {
	tests := []struct{ name, src, want string }{
		{"nothing", ``, "ends too early"},
		{"a call", `[f()]`, "unexpected"},
		{"an expression in a template", "`${x}`", "expression"},
		{"no end", `{a: [1, 2`, "no comma"},
		{"a name twice", `{a: 1, a: 2}`, "twice"},
		{"two numbers in one", `[1-2]`, "no number"},
		{"a number that would fill the memory", `[1e999999]`, "no number"},
		{"an octal escape", `"\7"`, "octal"},
		{"half a pair", `"\ud83d"`, "not read"},
		{"depth", strings.Repeat("[", 1000), "too deeply"},
		{"the line is told", "{a: 1,\n b: ?}", "line 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseLiteral(tt.src)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestConvertKeepsWhatPricesAreMadeOf(t *testing.T) {
	const program = `import x from "y";
const E = [{id: "acme", name: "Acme", fallback_model_providers: ["x", "y"], extractors: [{root: "usage"}], models: [
  {id: "b-1", description: "long", match: {or: [{equals: "b-1"}, {equals: "b-one"}, {regex: "^b-\\d$"}]},
   context_window: 2e5, prices: {output_mtok: 0.075, input_mtok: {base: 1, tiers: [{start: 272e3, price: 2}]}}},
  {id: "a-1", match: {contains: "a-1"}, prices: [{prices: {input_mtok: 2}}, {constraint: {start_date: "2026-01-01"}, prices: {input_mtok: 1}}]},
  {id: "nothing", match: {equals: "nothing"}, prices: {}},
]}], J = {};`
	const want = `{"as_of":"2026-02-03","source":"pkg@1","providers":[
{"id":"acme","fallback_model_providers":["x","y"],"models":[
{"id":"b-1","match":{"equals":"b-one"},"context_window":200000,"prices":{"input_mtok":{"base":1,"tiers":[{"price":2,"start":272000}]},"output_mtok":0.075}},
{"id":"a-1","prices":[{"prices":{"input_mtok":2}},{"constraint":{"start_date":"2026-01-01"},"prices":{"input_mtok":1}}]}
]}
]}
`
	got, err := convert([]byte(program), "pkg@1", "2026-02-03")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestConvertRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, program := range map[string]string{
		"no data":             `const F = []`,
		"no list":             `const E = {}`,
		"no provider":         `const E = []`,
		"a provider unnamed":  `const E = [{models: []}]`,
		"a model unnamed":     `const E = [{id: "a", models: [{prices: {x: 1}}]}]`,
		"a model unpriced":    `const E = [{id: "a", models: [{id: "b"}]}]`,
		"numbers not of JSON": `const E = [{id: "a", models: [{id: "b", prices: {x: .5}}]}]`,
	} {
		if got, err := convert([]byte(program), "s", "d"); err == nil {
			t.Errorf("%s: no error, but %q", name, got)
		}
	}
}

func TestUnpackTakesTheFilesNamed(t *testing.T) {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, name := range []string{"one", "two"} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Size: 3, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := unpack(b.Bytes(), "two")
	if err != nil || len(files) != 1 || string(files["two"]) != "two" {
		t.Errorf("got %q, %v", files, err)
	}
	if _, err := unpack(b.Bytes(), "three"); err == nil || !strings.Contains(err.Error(), `"three"`) {
		t.Errorf("of a file that is missing: %v", err)
	}
}

func FuzzParseLiteral(f *testing.F) {
	f.Add(`[{id: "a", models: [{id: 'b', prices: {x: 1e-3}}]}]`)
	f.Add("`a${b}`")
	f.Add(`"\u00e9\`)
	f.Fuzz(func(t *testing.T, src string) {
		v, err := parseLiteral(src)
		if err != nil {
			return
		}
		var b bytes.Buffer
		write(&b, sorted(v))
	})
}
