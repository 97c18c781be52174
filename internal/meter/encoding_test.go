package meter

import (
	"net/http"
	"slices"
	"testing"
)

func TestCodingsThatWouldHideTheUseAreNotAskedFor(t *testing.T) {
	for _, tc := range []struct {
		name      string
		got, want []string
	}{
		{"none", nil, nil},
		{"all readable", []string{"gzip, deflate, br;q=0.5, zstd"}, []string{"gzip, deflate, br;q=0.5, zstd"}},
		{"one unknown", []string{"dcb, gzip;q=0.8"}, []string{"gzip;q=0.8"}},
		{"on several lines", []string{"dcb", "GZIP", "br"}, []string{"GZIP, br"}},
		{"none readable", []string{"dcb, dcz"}, []string{"identity"}},
		{"anything", []string{"*"}, []string{"identity"}},
		{"empty", []string{""}, []string{"identity"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			if tc.got != nil {
				h["Accept-Encoding"] = tc.got
			}
			limitEncodings(h)
			if !slices.Equal(h["Accept-Encoding"], tc.want) {
				t.Errorf("got %q, want %q", h["Accept-Encoding"], tc.want)
			}
		})
	}
}

func TestOneCallersBodiesLeaveRoomForOthers(t *testing.T) {
	m := New()
	m.SetOptions(Options{MaxBody: 10, MaxBuffered: 1000})
	for m.bodies.take("a", 10) {
	}
	if n := m.bodies.used.Load(); n != 250 {
		t.Errorf("one caller took %d of 1000", n)
	}
	if !m.bodies.take("b", 250) {
		t.Error("another found no room")
	}
	m.bodies.release("a", 250)
	m.bodies.release("b", 250)
	if len(m.bodies.by) != 0 || m.bodies.used.Load() != 0 {
		t.Errorf("%d callers and %d bytes are left", len(m.bodies.by), m.bodies.used.Load())
	}
	// the largest body has room twice, while it is copied
	m.SetOptions(Options{MaxBody: 100, MaxBuffered: 300})
	if !m.bodies.take("a", 202) {
		t.Error("the largest body has no room")
	}
	m.bodies.release("a", 202)
}
