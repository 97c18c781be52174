package apikeyauth

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// annotated is a keys file as people write them.
var annotated = `// keys of the gateway, see the wiki
{
	/* the list
	   of all */
	"keys": [
		// team A, ask "Ann"
		{"id": "a", "hash": "` + hashOf("key-a") + `"}, // since May
		{
			"id": "b", // team B: http://b.example/*
			"hash": "` + hashOf("key-b") + `",
			/* gold, */ "group": "gold"
		},
		{"id": "c", "hash": "` + hashOf("key-c") + `", "previous": {"hash": "` + hashOf("key-c-old") + `", "until": "2026-07-01"}, "models": ["a//b", "/*"]} // team C
	] // that is all
}
`

func parsedText(t testing.TB, text string) *keysText {
	t.Helper()
	kt, err := parseText([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return kt
}

// lines are those of a text that another has not, in order.
func lines(of, without string) (all []string) {
	rest := strings.Split(without, "\n")
	for line := range strings.SplitSeq(of, "\n") {
		if i := slices.Index(rest, line); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			continue
		}
		all = append(all, line)
	}
	return all
}

func TestChangesOfAKeysFileLeaveTheRestAsItIs(t *testing.T) {
	d := hashOf("key-d")
	for _, tc := range []struct {
		name        string
		change      func(*keysText) ([]byte, error)
		gone, added []string // lines
	}{
		{
			"a key more", func(kt *keysText) ([]byte, error) { return kt.add(&Key{ID: "d", Hash: d}) },
			[]string{`		{"id": "c", "hash": "` + hashOf("key-c") + `", "previous": {"hash": "` + hashOf("key-c-old") + `", "until": "2026-07-01"}, "models": ["a//b", "/*"]} // team C`},
			[]string{
				`		{"id": "c", "hash": "` + hashOf("key-c") + `", "previous": {"hash": "` + hashOf("key-c-old") + `", "until": "2026-07-01"}, "models": ["a//b", "/*"]}, // team C`,
				`		{"id":"d","hash":"` + d + `"}`,
			},
		},
		{
			"a rotation in one line", func(kt *keysText) ([]byte, error) { return kt.rotate("a", d, "2026-08-01T00:00:00Z") },
			[]string{`		{"id": "a", "hash": "` + hashOf("key-a") + `"}, // since May`},
			[]string{`		{"id": "a", "hash": "` + d + `", "previous": {"hash":"` + hashOf("key-a") + `","until":"2026-08-01T00:00:00Z"}}, // since May`},
		},
		{
			"a rotation in several", func(kt *keysText) ([]byte, error) { return kt.rotate("b", d, "2026-08-01T00:00:00Z") },
			[]string{`			"hash": "` + hashOf("key-b") + `",`},
			[]string{`			"hash": "` + d + `",`, `			"previous": {"hash":"` + hashOf("key-b") + `","until":"2026-08-01T00:00:00Z"},`},
		},
		{
			"a rotation without grace", func(kt *keysText) ([]byte, error) { return kt.rotate("b", d, "") },
			[]string{`			"hash": "` + hashOf("key-b") + `",`},
			[]string{`			"hash": "` + d + `",`},
		},
		{
			"another rotation", func(kt *keysText) ([]byte, error) { return kt.rotate("c", d, "2026-08-01T00:00:00Z") },
			[]string{`		{"id": "c", "hash": "` + hashOf("key-c") + `", "previous": {"hash": "` + hashOf("key-c-old") + `", "until": "2026-07-01"}, "models": ["a//b", "/*"]} // team C`},
			[]string{`		{"id": "c", "hash": "` + d + `", "previous": {"hash":"` + hashOf("key-c") + `","until":"2026-08-01T00:00:00Z"}, "models": ["a//b", "/*"]} // team C`},
		},
		{
			"another rotation, without grace", func(kt *keysText) ([]byte, error) { return kt.rotate("c", d, "") },
			[]string{`		{"id": "c", "hash": "` + hashOf("key-c") + `", "previous": {"hash": "` + hashOf("key-c-old") + `", "until": "2026-07-01"}, "models": ["a//b", "/*"]} // team C`},
			[]string{`		{"id": "c", "hash": "` + d + `",  "models": ["a//b", "/*"]} // team C`},
		},
		{
			"the first key less", func(kt *keysText) ([]byte, error) { return kt.remove("a") },
			[]string{`		{"id": "a", "hash": "` + hashOf("key-a") + `"}, // since May`},
			[]string{`		 // since May`},
		},
		{
			"a key of several lines less", func(kt *keysText) ([]byte, error) { return kt.remove("b") },
			[]string{`		{`, `			"id": "b", // team B: http://b.example/*`, `			"hash": "` + hashOf("key-b") + `",`, `			/* gold, */ "group": "gold"`, `		},`},
			nil,
		},
		{
			"the last key less", func(kt *keysText) ([]byte, error) { return kt.remove("c") },
			[]string{`		},`, `		{"id": "c", "hash": "` + hashOf("key-c") + `", "previous": {"hash": "` + hashOf("key-c-old") + `", "until": "2026-07-01"}, "models": ["a//b", "/*"]} // team C`},
			[]string{`		}`, `		 // team C`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := tc.change(parsedText(t, annotated))
			if err != nil {
				t.Fatal(err)
			}
			parsedText(t, string(out))
			if got := lines(annotated, string(out)); !slices.Equal(got, tc.gone) {
				t.Errorf("these lines are gone: %q\nwant %q", got, tc.gone)
			}
			if got := lines(string(out), annotated); !slices.Equal(got, tc.added) {
				t.Errorf("these lines are new: %q\nwant %q", got, tc.added)
			}
		})
	}
}

func TestChangesOfKeysFilesOfAllForms(t *testing.T) {
	bom := string(byteOrderMark)
	entryA := entry("a", "key-a")
	for _, text := range []string{
		emptyKeysFile, `{"keys":[]}`, `{"keys":[ ]}`, "{\"keys\":[\n// none\n]}", bom + `{"keys":[]}`,
		file(entryA), bom + file(entryA), file(entryA, entry("b", "key-b")), annotated,
		"{\"KEYS\":[" + entryA + "\r\n]}\r\n", `{"keys":[` + entryA + `/* , */]}`, `{"keys":[` + entryA + "//,\n," + entry("b", "key-b") + "/*,*/\n]}",
	} {
		kt := parsedText(t, text)
		more, err := kt.add(&Key{ID: "new", Hash: hashOf("key-new")})
		if err != nil {
			t.Errorf("adding to %q: %v", text, err)
			continue
		}
		if ids, want := idsOf(t, more), append(idsOf(t, []byte(text)), "new"); !slices.Equal(ids, want) {
			t.Errorf("added to %q: got %q", text, more)
		}
		// what was added can be rotated and removed, and so can all others
		for _, id := range idsOf(t, more) {
			for _, until := range []string{"2026-08-01", ""} {
				rotated, err := parsedText(t, string(more)).rotate(id, hashOf("rotated"), until)
				if err != nil {
					t.Errorf("rotating %s in %q: %v", id, more, err)
					continue
				}
				k := parsedText(t, string(rotated)).keys[slices.Index(idsOf(t, rotated), id)]
				if k.Hash != hashOf("rotated") || (k.Previous != nil) != (until != "") {
					t.Errorf("rotated %s in %q: got %q", id, more, rotated)
				}
				again, err := parsedText(t, string(rotated)).rotate(id, hashOf("again"), "")
				if err != nil || bytes.Contains(again, []byte(hashOf("rotated"))) {
					t.Errorf("rotated %s again in %q: got %q, %v", id, rotated, again, err)
				}
			}
			fewer, err := parsedText(t, string(more)).remove(id)
			if err != nil || slices.Contains(idsOf(t, fewer), id) || len(idsOf(t, fewer)) != len(idsOf(t, more))-1 {
				t.Errorf("removed %s from %q: got %q, %v", id, more, fewer, err)
			}
		}
	}
}

func idsOf(t testing.TB, text []byte) (ids []string) {
	t.Helper()
	for _, k := range parsedText(t, string(text)).keys {
		ids = append(ids, k.ID)
	}
	return ids
}

func TestChangesOfAKeysFileKeepToTheRules(t *testing.T) {
	kt := parsedText(t, annotated)
	for _, tc := range []struct {
		name, want string
		change     func() ([]byte, error)
	}{
		{"id that is there", "id is already that of keys[0]", func() ([]byte, error) { return kt.add(&Key{ID: "a", Hash: hashOf("x")}) }},
		{"secret that is there", "hash is already that of keys[1]", func() ([]byte, error) { return kt.add(&Key{ID: "x", Hash: hashOf("key-b")}) }},
		{"id that is not there", `no key "x"`, func() ([]byte, error) { return kt.rotate("x", hashOf("x"), "") }},
		{"removing one that is not there", `no key "x"`, func() ([]byte, error) { return kt.remove("x") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if out, err := tc.change(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
}

func TestComments(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"a // b\nc", "a     \nc"},
		{"a /* b\nc */ d", "a     \n     d"},
		{`"// no" /* yes */`, `"// no"          `},
		{`"\" /* no */" // yes`, `"\" /* no */"       `},
		{"/* unended", "          "},
		{"/*/ 1 */2", "        2"},
		{"/", "/"},
		{`"unended //`, `"unended //`},
	} {
		if got := string(withoutComments([]byte(tc.text))); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

// FuzzKeysText changes whatever is a keys file, and finds all other keys as they were.
func FuzzKeysText(f *testing.F) {
	f.Add([]byte(annotated))
	f.Add([]byte(emptyKeysFile))
	f.Add([]byte(file(entry("a", "key-a"), entry("b", "key-b"))))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n := len(withoutComments(text)); n != len(text) {
			t.Fatalf("%d bytes have become %d", len(text), n)
		}
		kt, err := parseText(text)
		if err != nil {
			return
		}
		same := func(out []byte, but string) {
			after, err := parseText(out)
			if err != nil {
				t.Fatalf("%q has become %q: %v", text, out, err)
			}
			var were, are []string
			for _, k := range kt.keys {
				if k.ID != but {
					were = append(were, fmt.Sprintf("%+v", k))
				}
			}
			for _, k := range after.keys {
				if k.ID != but {
					are = append(are, fmt.Sprintf("%+v", k))
				}
			}
			if len(were) != len(are) {
				t.Fatalf("%q has become %q", text, out)
			}
		}
		const id = "an id that is in no seed"
		if out, err := kt.add(&Key{ID: id, Hash: hashOf("fuzz")}); err == nil {
			same(out, id)
		}
		for _, k := range kt.keys {
			if out, err := kt.rotate(k.ID, hashOf("fuzz"), "2026-08-01"); err == nil {
				same(out, k.ID)
			} else {
				t.Logf("rotating: %v", err)
			}
			for _, on := range []bool{false, true} {
				if out, err := kt.enable(k.ID, on); err == nil {
					same(out, k.ID)
				} else {
					t.Logf("enabling: %v", err)
				}
			}
			out, err := kt.remove(k.ID)
			if err != nil {
				t.Fatalf("removing %q from %q: %v", k.ID, text, err)
			}
			same(out, k.ID)
		}
	})
}
