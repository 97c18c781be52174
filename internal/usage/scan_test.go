package usage

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scanTree follows a few positions of each kind.
func scanTree() (*tree, []position, []int32) {
	positions := []position{
		{"word", word},
		{"raw", fragment},
		{"mark", mark},
		{"text", text},
		{"in.word", word},
		{"list[].word", word},
		{"list[].text", text},
		{"list[].list[].mark", mark},
		{"words[]", word},
		{"in.either either", text},
	}
	t := newTree()
	return t, positions, t.add(positions)
}

// scanned is a readable form of the documents in the pieces.
func scanned(pieces ...string) []string {
	t, positions, slots := scanTree()
	var got []string
	s := newScanner(t, func(d *document) {
		v := view{d, slots}
		var parts []string
		for i, p := range positions {
			v.each(i, func(element int32, kind byte, raw []byte) {
				if raw == nil {
					raw = []byte("(" + string(kind) + ")")
				}
				parts = append(parts, fmt.Sprintf("%s#%d=%s", p.path, element, raw))
			})
			if n := v.text(i); n > 0 {
				parts = append(parts, fmt.Sprintf("%s:%d", p.path, n))
			}
		}
		got = append(got, strings.Join(parts, " "))
	})
	for _, p := range pieces {
		s.feed([]byte(p))
	}
	if s.end() {
		got = append(got, "cut")
	}
	return got
}

func TestScannerFollowsPositions(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct {
		name, in string
		want     []string
	}{
		{"empty object", `{}`, []string{""}},
		{
			"values", `{"word":"a","raw":{"b":[1]},"mark":{"x":1},"text":"abc"}`,
			[]string{`word#0="a" raw#0={"b":[1]} mark#0=({) text:3`},
		},
		{"scalars", `{"word":-1.5e3,"raw":null,"mark":true,"text":7}`, []string{`word#0=-1.5e3 raw#0=null mark#0=(t)`}},
		{"spaced out", " {\n \"word\" : \"a\" ,\t\"in\" : { \"word\" : 1 } }\r\n", []string{`word#0="a" in.word#0=1`}},
		{"elements", `{"list":[{"word":1,"text":"a"},7,{"word":2,"text":"bc"}]}`, []string{`list[].word#3=2 list[].word#1=1 list[].text:3`}},
		{
			"elements of elements", `{"list":[{"list":[{"mark":1},{"mark":"x"}]},{"list":[{"mark":null}]}]}`,
			[]string{`list[].list[].mark#2=(n) list[].list[].mark#1=(") list[].list[].mark#1=(0)`},
		},
		{"scalars as elements", `{"words":["a","b"]}`, []string{`words[]#2="b" words[]#1="a"`}},
		{"text at two places", `{"in":{"either":"ab"},"either":"c"}`, []string{`in.either either:3`}},
		{"other places", `{"x":{"word":1},"list":{"word":2},"in":[{"word":3}],"words":"w"}`, []string{""}},
		{"strings that look like structure", `{"x":"\"},{\"word\":1","y":["]","\\"],"word":2}`, []string{"word#0=2"}},
		{"escaped name", `{"w\u006f\u0072d":1,"\"word":2}`, []string{"word#0=1"}},
		{"long name", `{"` + long + `":1,"word":2}`, []string{"word#0=2"}},
		{"too long a word keeps its type", `{"word":"` + long + `","in":{"word":[1]}}`, []string{`word#0=(") in.word#0=([)`}},
		{"equal names", `{"word":1,"word":2,"in":{"word":1},"in":{},"text":"abc","text":"d"}`, []string{"word#0=2 text:1"}},
		{"lines", "{\"word\":1}\n{\"word\":2}\n\n", []string{"word#0=1", "word#0=2"}},
		{"no gap", `{"word":1}{"word":2}`, []string{"word#0=1", "word#0=2"}},
		{"array", `[{"word":1},{"word":2} , 3, "x", [{"word":4}]]`, []string{"word#0=1", "word#0=2"}},
		{"record separators", "\x1e{\"word\":1}\n\x1e{\"word\":2}\n", []string{"word#0=1", "word#0=2"}},
		{"byte order mark", "\xEF\xBB\xBF{\"word\":1}", []string{"word#0=1"}},
		{"other values", `"a" 1 null [1,[2]] {"word":1}`, []string{"word#0=1"}},
		{"cut in a document", `{"word":1,"raw":{"x"`, []string{"word#0=1", "cut"}},
		{"cut in an array", `[{"word":1},`, []string{"word#0=1", "cut"}},
		{"syntax error", `{"word":1,,"raw":2} {"word":3}`, []string{"word#0=1"}},
		{"syntax error in a line", "{\"word\":1}\n{\"word\":2;}\n{\"word\":3}", []string{"word#0=1", "word#0=2", "word#0=3"}},
		{"wrong bracket", `{"word":1]`, []string{"word#0=1"}},
		{"no colon", `{"word" 1}`, []string{""}},
		{"no value", `{"word":}`, []string{""}},
		{"garbage", "\x00\xff}{", nil},
		{"deep", `{"x":` + strings.Repeat(`[{"a":`, 10_000) + "1" + strings.Repeat("}]", 10_000) + `,"word":1}`, []string{"word#0=1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := scanned(test.in); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if got := scanned(strings.Split(test.in, "")...); !reflect.DeepEqual(got, test.want) {
				t.Errorf("in bytes: got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestScannerRemembersRightly reads documents that begin alike, of which all but the
// first are read on from what is remembered, and compares with reading each alone.
func TestScannerRemembersRightly(t *testing.T) {
	member := rapid.SampledFrom([]string{
		`"word":"a"`, `"word":1`, `"raw":{"x":"y"}`, `"in":{"word":2,"either":"t"}`, `"list":[{"word":1,"text":"ab"},{"text":"c"}]`,
		`"text":"abc"`, `"text":"\u00e9"`, `"text":{"a":1}`, `"words":["a"]`, `"x":[1,"\\"]`, `"either":"q"`, `"list":[{"list":[{"mark":1}]}]`,
	})
	document := rapid.Custom(func(t *rapid.T) string {
		return "{" + strings.Join(rapid.SliceOfN(member, 0, 4).Draw(t, "members"), ",") + "}"
	})
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(document, 1, 3).Draw(t, "documents")
		all := rapid.SliceOfN(rapid.SampledFrom(some), 1, 12).Draw(t, "order")
		var want []string
		for _, d := range all {
			want = append(want, scanned(d)...)
		}
		if got := scanned(strings.Join(all, "")); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

func TestTreeRefusesMistakes(t *testing.T) {
	tests := []struct {
		name  string
		first position
		then  position
	}{
		{"two ways to keep", position{"a.b", word}, position{"a.b", text}},
		{"two positions in one that were one each", position{"a", text}, position{"b a", text}},
		{"too deep", position{"a", word}, position{strings.Repeat("a.", maxDepth) + "a", word}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tree := newTree()
			tree.add([]position{test.first})
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			tree.add([]position{test.then})
		})
	}
}

func TestSearchesFindTheFirst(t *testing.T) {
	alphabet := rapid.SampledFrom([]byte("aab{}[]\"\\\x00\x01\xa2\xdc\xfb"))
	rapid.Check(t, func(t *rapid.T) {
		pad := rapid.SampledFrom([]int{0, 7, 31, 500, 511, 512, 1500}).Draw(t, "pad")
		p := append(make([]byte, pad), rapid.SliceOfN(alphabet, 0, 40).Draw(t, "bytes")...)
		if got, want := indexSpecial(p), bytes.IndexAny(p, `"\`); got != want {
			t.Fatalf("special of %q: got %d, want %d", p, got, want)
		}
		if got, want := indexBracket(p), bytes.IndexAny(p, `"[]{}`); got != want {
			t.Fatalf("bracket of %q: got %d, want %d", p, got, want)
		}
	})
}

func FuzzScan(f *testing.F) {
	for _, s := range samples(f) {
		if len(s.body) < 4096 {
			f.Add(s.body, uint8(7))
		}
	}
	f.Add([]byte(`{"word":"a","word":{"x":[}]},"l\u0069st":[{"text":"\ud83d\ude00"}]}[{"raw":1},`), uint8(1))
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		want := scanned(string(body))
		var pieces []string
		for rest := string(body); rest != ""; {
			n := min(len(rest), int(size)+1)
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got := scanned(pieces...); !reflect.DeepEqual(got, want) {
			t.Errorf("in pieces %q\nwhole     %q", got, want)
		}
	})
}
