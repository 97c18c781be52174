package apikey

import (
	"regexp"
	"strings"
	"testing"
)

// scanner is the pattern of the documentation.
var scanner = regexp.MustCompile(`\bllmk_[0-9A-Za-z]{49}\b`)

func TestNewKeysAreValidAndDiffer(t *testing.T) {
	seen := make(map[string]bool)
	var digit [256]int
	for range 2000 {
		key := New()
		if !Valid(key) || !Looks(key) || scanner.FindString("KEY="+key+"\n") != key || seen[key] {
			t.Fatalf("%q is no new key", key)
		}
		seen[key] = true
		for i := len(Prefix); i < len(Prefix)+random; i++ {
			digit[key[i]]++
		}
	}
	// 86,000 digits: each some 1,387 times, give or take seven deviations
	for _, c := range []byte(digits) {
		if n := digit[c]; n < 1130 || n > 1650 {
			t.Errorf("digit %q comes up %d times", c, n)
		}
	}
}

func TestAKeyWithAnythingChangedIsNotValid(t *testing.T) {
	key := New()
	for i := range key {
		for _, c := range []byte(digits + "_- ") {
			if changed := key[:i] + string(c) + key[i+1:]; changed != key && Valid(changed) {
				t.Errorf("%q and %q are both valid", key, changed)
			}
		}
	}
	for _, s := range []string{"", Prefix, key[1:], key[:len(key)-1], key + "0", strings.ToUpper(key), " " + key} {
		if Valid(s) {
			t.Errorf("%q is valid", s)
		}
	}
}

func TestTheChecksumIsThatOfTheDocumentation(t *testing.T) {
	const exampleCheck = "0ohwaa" // by another implementation, in Python: zlib.crc32 and divmod
	const key = "llmk_0000000000000000000000000000000000000000000"
	if got := string(appendCheck([]byte(key))); got != key+exampleCheck {
		t.Errorf("got %q", got)
	}
}

func TestIDsDiffer(t *testing.T) {
	form := regexp.MustCompile(`^key-[a-km-np-z2-9]{16}$`)
	seen := make(map[string]bool)
	for range 1000 {
		id := NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%q is no new id", id)
		}
		seen[id] = true
	}
}

func FuzzValid(f *testing.F) {
	f.Add(New())
	f.Add(Prefix)
	f.Fuzz(func(t *testing.T, s string) {
		if Valid(s) && !scanner.MatchString(s) {
			t.Errorf("%q is valid and no scanner would see it", s)
		}
	})
}
