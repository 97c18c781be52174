package usage

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func newFields(tb testing.TB, paths ...string) *Fields {
	tb.Helper()
	f, err := NewFields(paths)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// readFields reads a response in which fields are sought, in pieces of a size.
func readFields(kind string, status int, body string, finished bool, size int, fields ...*Fields) Report {
	r := NewResponse()
	defer r.Release()
	for _, f := range fields {
		r.Seek(f)
	}
	r.Start(status, http.Header{"Content-Type": {kind}})
	for body != "" {
		piece := []byte(body[:min(size, len(body))])
		body = body[len(piece):]
		r.Write(piece)
		clear(piece)
	}
	return r.Close(finished)
}

func TestFieldsAreAddedUp(t *testing.T) {
	const sse, plain, lines = "text/event-stream", "application/json", "application/x-ndjson"
	for _, tc := range []struct {
		name, paths, kind, body string
		want                    int64
	}{
		{"one at the top", "tokens", plain, `{"text":"hi","tokens":12}`, 12},
		{"several", "meta.in meta.out", plain, `{"meta":{"in":3,"out":4},"in":100}`, 7},
		{"one of two", "meta.in meta.out", plain, `{"meta":{"out":4}}`, 4},
		{"a path within another", "cost cost.tokens", plain, `{"cost":{"tokens":4}}`, 4},
		{"every element", "parts.#.n", plain, `{"parts":[{"n":1},{"m":5},{"n":2},{"n":null}]}`, 3},
		{"elements of elements", "a.#.#.n", plain, `{"a":[[{"n":1},{"n":2}],[],[{"n":4}]]}`, 7},
		{"elements within objects within elements", "a.#.b.#.n", plain, `{"a":[{"b":[{"n":1}]},{"b":[{"n":2},{"n":8}]}]}`, 11},
		{"an array where an object is named", "a.n", plain, `{"a":[{"n":1}]}`, 0},
		{"an object where an array is named", "a.#.n", plain, `{"a":{"n":1}}`, 0},
		{"the last of a stream", "n", sse, events(`{"n":1}`, `{"n":2}`, `{"x":7}`, `{"n":5}`), 5},
		{"each field's last", "in out", sse, events(`{"in":9}`, `{"out":1}`, `{"out":3}`, "[DONE]"), 12},
		{"a count that goes down", "n", sse, events(`{"n":9}`, `{"n":5}`), 5},
		{"a null does not erase", "n", sse, events(`{"n":9}`, `{"n":null}`), 9},
		{"a zero does not erase", "n", sse, events(`{"n":9}`, `{"n":0}`), 9},
		{"elements are not added to those of another document", "a.#.n", sse, events(`{"a":[{"n":1}]}`, `{"a":[{"n":1},{"n":2}]}`), 3},
		{"lines", "n", lines, "{\"n\":1}\n{\"n\":4}\n", 4},
		{"an array of documents", "n", plain, `[{"n":1},{"n":6}]`, 6},
		{"frames", "n", "application/vnd.amazon.eventstream", string(frames(event("x", `{"n":1}`), chunk(`{"n":8}`))), 8},
		{"text behind JSON", "n", plain, `{"n":3} and more`, 3},
		{"escaped names", "n", plain, `{"\u006e":3}`, 3},
		{"names in another alphabet", "größe.総計", plain, `{"größe":{"総計":3}}`, 3},
		{"a name twice: the last", "a.n", plain, `{"a":{"n":3},"a":{"n":4}}`, 4},
		{"a name twice: the last lacks it", "a.n", plain, `{"a":{"n":3},"a":{}}`, 0},

		{"a float without a fraction", "n", plain, `{"n":12.0}`, 12},
		{"an exponent", "n", plain, `{"n":1.2e1}`, 12},
		{"digits in a string", "n", plain, `{"n":"12"}`, 12},
		{"a fraction is no count", "n", plain, `{"n":12.5}`, 0},
		{"text is no count", "n", plain, `{"n":"twelve"}`, 0},
		{"an object is no count", "n", plain, `{"n":{"n":3}}`, 0},
		{"negative is nothing", "n m", plain, `{"n":-12,"m":3}`, 3},
		{"beyond what is exact", "n", plain, `{"n":9007199254740993}`, 0},
		{"sums do not overflow", "n m", plain, `{"n":9007199254740992,"m":9007199254740992}`, maxCount},
		{"sums of elements do not overflow", "a.#.n", plain, `{"a":[` + strings.TrimSuffix(strings.Repeat(`{"n":9007199254740992},`, 3000), ",") + `]}`, maxCount},

		{"no JSON", "n", "text/plain", `n: 3`, 0},
		{"media", "n", "audio/wav", `{"n":3}`, 0},
		{"nothing", "n", plain, ``, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFields(t, strings.Fields(tc.paths)...)
			want := Usage{Input: tc.want}
			for _, size := range []int{1, 7, len(tc.body) + 1} {
				r := readFields(tc.kind, http.StatusOK, tc.body, true, size, f)
				if r.Usage != want || r.Found != (tc.want > 0) || r.Least != 0 {
					t.Errorf("in pieces of %d: got %+v, want %+v", size, r, want)
				}
			}
		})
	}
}

func TestFieldsStandBackBehindFormats(t *testing.T) {
	mine, none := newFields(t, "mine"), newFields(t, "absent")
	for _, tc := range []struct {
		name, body string
		fields     []*Fields
		want       Usage
		found      bool
	}{
		{"a format that reports tokens", `{"mine":5,"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, []*Fields{mine}, Usage{Input: 1, Output: 2}, true},
		{"a format that reports none", `{"mine":5,"model":"m","choices":[{"message":{"content":"x"}}]}`, []*Fields{mine}, Usage{Input: 5}, true},
		{"a format that reports zeros", `{"mine":5,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, []*Fields{mine}, Usage{Input: 5}, true},
		{"a format that reports no tokens but images", `{"mine":5,"data":[{"url":"u"}]}`, []*Fields{mine}, Usage{Input: 5, Images: 1}, true},
		{"zeros alone", `{"mine":0}`, []*Fields{mine}, Usage{}, false},
		{"the first fields that are found", `{"mine":5,"theirs":7}`, []*Fields{none, mine, newFields(t, "theirs")}, Usage{Input: 5}, true},
		{"the same fields twice", `{"mine":5}`, []*Fields{mine, mine}, Usage{Input: 5}, true},
		{"no fields", `{"mine":5}`, nil, Usage{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := readFields("application/json", http.StatusOK, tc.body, true, 9, tc.fields...)
			if r.Usage != tc.want || r.Found != tc.found {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestFieldsOfACutResponseAreTheLeast(t *testing.T) {
	f := newFields(t, "n")
	r := readFields("text/event-stream", http.StatusOK, events(`{"n":40}`), false, 9, f)
	if r.Found || r.Complete || r.Least != 40 || r.Usage != (Usage{}) {
		t.Errorf("got %+v", r)
	}
	r = readFields("application/json", http.StatusInternalServerError, `{"n":40}`, false, 9, f)
	if !r.Found || !r.Failed || r.Usage.Input != 40 {
		t.Errorf("an error that reports: got %+v", r)
	}
}

func TestFieldsAreForgottenBetweenResponses(t *testing.T) {
	f := newFields(t, "n", "a.#.n")
	for range 100 {
		readFields("application/json", http.StatusOK, `{"n":40,"a":[{"n":1},{"n":`, true, 9, f)
		if r := readFields("application/json", http.StatusOK, `{"n":2}`, true, 9, f); r.Usage.Input != 2 {
			t.Fatalf("got %+v", r)
		}
		if r := readFields("application/json", http.StatusOK, `{"n":2}`, true, 9); r.Found {
			t.Fatalf("without fields: got %+v", r)
		}
	}
}

func TestFieldsServeManyResponsesAtOnce(t *testing.T) {
	f := newFields(t, "n")
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for range 50 {
				r := readFields("text/event-stream", http.StatusOK, events(fmt.Sprintf(`{"n":%d}`, i+1)), true, 5, f)
				if r.Usage.Input != i+1 {
					t.Errorf("got %+v, want %d", r, i+1)
				}
			}
		})
	}
	wg.Wait()
}

func TestFieldsAreChecked(t *testing.T) {
	many := make([]string, maxFields+1)
	for i := range many {
		many[i] = fmt.Sprintf("n%d", i)
	}
	deep := strings.TrimSuffix(strings.Repeat("a.", maxFieldParts), ".")
	long := strings.Repeat("n", maxFieldName)
	for _, tc := range []struct {
		name  string
		paths []string
		want  string // in the error; empty if there is none
	}{
		{"a name", []string{"tokens"}, ""},
		{"all letters that may stand in one", []string{"$a_b-c:D9.é"}, ""},
		{"as deep as can be", []string{deep}, ""},
		{"as long as can be", []string{long}, ""},
		{"as many as can be", many[1:], ""},
		{"as many of the deepest", func() (paths []string) {
			for i := range maxFields {
				paths = append(paths, fmt.Sprintf("n%d%s", i, deep[1:]))
			}
			return paths
		}(), ""},

		{"none", nil, "no field"},
		{"too many", many, "17 fields are more than 16"},
		{"too deep", []string{deep + ".a"}, "deeper than 15"},
		{"too long", []string{long + "n"}, "longer than 42 bytes"},
		{"twice", []string{"a.b", "c", "a.b"}, `"a.b" is named twice`},
		{"empty", []string{""}, "empty name"},
		{"an empty name", []string{"a..b"}, `"a..b" has an empty name`},
		{"a dot at the end", []string{"a."}, "empty name"},
		{"# at the top", []string{"#.n"}, "begins with #"},
		{"# at the end", []string{"a.#"}, "ends with #"},
		{"an index", []string{"a.0.n"}, "index 0"},
		{"a query", []string{`a.#(b=="c").n`}, "only letters"},
		{"a wildcard", []string{"a.*.n"}, "only letters"},
		{"another wildcard", []string{"a?"}, "only letters"},
		{"a modifier", []string{"a.@this"}, "only letters"},
		{"a pipe", []string{"a|b"}, "only letters"},
		{"an escape", []string{`a\.b`}, "only letters"},
		{"a multipath", []string{"{a,b}"}, "only letters"},
		{"brackets", []string{"a[].b"}, "only letters"},
		{"a blank", []string{"a b"}, "only letters"},
		{"no text", []string{"a\xff"}, "only letters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewFields(tc.paths)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// A document of any shape is read as encoding/json would: a field is the sum of all
// numbers that its path leads to.
func TestFieldsAgreeWithAParser(t *testing.T) {
	names := []string{"a", "b", "n"}
	paths := []string{"n", "a.n", "a.#.n", "a.b.n", "b.#.a.n", "b.#.#.n"}
	var value *rapid.Generator[any]
	value = rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(
			rapid.Map(rapid.IntRange(-5, 1000), func(n int) any { return n }),
			rapid.Just[any](nil), rapid.Just[any]("12"), rapid.Just[any](`}"n":1`), rapid.Just[any](1.5),
			rapid.Map(rapid.MapOfN(rapid.SampledFrom(names), value, 0, 3), func(m map[string]any) any { return m }),
			rapid.Map(rapid.SliceOfN(value, 0, 3), func(s []any) any { return s }),
		)
	})
	object := rapid.MapOfN(rapid.SampledFrom(names), value, 1, 3)
	fields := make([]*Fields, len(paths))
	for i, path := range paths {
		fields[i] = newFields(t, path)
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := object.Draw(t, "document")
		body, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range paths {
			want := follow(doc, strings.Split(path, "."))
			f := newFieldReader(fields[i])
			size := rapid.IntRange(1, 20).Draw(t, "size")
			for rest := body; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				f.scan.feed(rest[:min(size, len(rest))])
			}
			f.scan.end()
			if got := f.total(); got != want {
				t.Fatalf("%s of %s: got %d, want %d", path, body, got, want)
			}
		}
	})
}

// follow adds up the counts to which a path leads.
func follow(v any, path []string) (sum int64) {
	switch v := v.(type) {
	case map[string]any:
		if len(path) > 0 && path[0] != "#" {
			return follow(v[path[0]], path[1:])
		}
	case []any:
		if len(path) == 0 || path[0] != "#" {
			return 0
		}
		for _, e := range v {
			sum += follow(e, path[1:])
		}
		return sum
	case int:
		if len(path) == 0 {
			return int64(max(0, v))
		}
	case string:
		if len(path) == 0 && v == "12" {
			return 12
		}
	}
	return 0
}

func FuzzFields(f *testing.F) {
	f.Add("usage.total", `{"usage":{"total":3}}`)
	f.Add("a.#.n b", "data: {\"a\":[{\"n\":1}],\"b\":2}\n\n")
	f.Add("a.#.#.n", "{\"a\":[[{\"n\":1}]]}\n{\"a\":{}}")
	f.Fuzz(func(t *testing.T, paths, body string) {
		fields, err := NewFields(strings.Split(paths, " "))
		if err != nil {
			return
		}
		whole := readFields("application/json", http.StatusOK, body, true, math.MaxInt, fields)
		if pieces := readFields("application/json", http.StatusOK, body, true, 1, fields); whole.Usage != pieces.Usage {
			t.Errorf("got %+v whole and %+v in pieces", whole.Usage, pieces.Usage)
		}
		if whole.Usage.Input < 0 || whole.Least < 0 {
			t.Errorf("got %+v", whole)
		}
	})
}

// BenchmarkFields is an event of 1 KB, read by the formats alone and for fields besides.
func BenchmarkFields(b *testing.B) {
	data := []byte("data: " + `{"output":"` + strings.Repeat("Hello there, ", 75) + `","meta":{"in":3,"out":4}}` + "\n\n")
	f := newFields(b, "meta.in", "meta.out")
	for _, bc := range []struct {
		name   string
		fields []*Fields
	}{{"formats", nil}, {"fields", []*Fields{f}}} {
		b.Run(bc.name, func(b *testing.B) {
			r := NewResponse()
			defer r.Release()
			for _, f := range bc.fields {
				r.Seek(f)
			}
			r.Start(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				r.Write(data)
			}
		})
	}
}
