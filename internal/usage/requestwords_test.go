package usage

import "testing"

func TestUsualNamesMeanWhatTheyMeanElsewhere(t *testing.T) {
	at := make(map[uint8]string)
	for _, name := range reqUsual {
		raw := []byte(name)
		if other, taken := at[reqHash(raw)]; taken {
			t.Errorf("%q stands where %q does", name, other)
		}
		at[reqHash(raw)] = name
		if !reqFolded(raw) || len(name) > reqLongestUsual {
			t.Errorf("%q is no folded name, or too long", name)
		}
		want := reqWordAs(name)
		if got := reqWordOf(raw); got == nil || *got != want {
			t.Errorf("%q is known as %+v, want %+v", name, got, want)
		}
	}
	for _, name := range []string{"", "Model", "mode", "models", `mod\u0065l`, "mesſages"} {
		if got := reqWordOf([]byte(name)); got != nil {
			t.Errorf("%q is known as %+v", name, got)
		}
	}
}
