package llmusage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// endpoint is an admin endpoint that answers with pages of one row, n in all.
func endpoint(t *testing.T, n int) (address string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RequestURI())
		i := 0
		if _, err := fmt.Sscan(r.URL.Query().Get("after"), &i); err != nil {
			i = 0
		}
		if i+1 < n {
			q := r.URL.Query()
			q.Set("after", fmt.Sprint(i+1))
			w.Header().Set("Link", "<"+r.URL.Path+"?"+q.Encode()+`>; rel="next"`)
		}
		if n == 0 {
			io.WriteString(w, "[]\n")
			return
		}
		fmt.Fprintf(w, `[{"instance":"in","rule":"tokens per hour","consumer":"app-%d","model":"","unit":"tokens","limit":100,"used":%d,"reserved":0,"remaining":%d,"window_start":null,"resets_at":null}]`, i, i, 100-i)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), asked
}

func TestAllPagesAreRead(t *testing.T) {
	address, asked := endpoint(t, 3)
	var out bytes.Buffer
	p := printer{of: query{address: address, instance: "in", consumer: "a&b"}, out: &out, now: time.Now}
	if err := p.table(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 4 || !strings.Contains(out.String(), "app-2") {
		t.Errorf("got\n%s", &out)
	}
	want := "[/llm/usage?consumer=a%26b&instance=in /llm/usage?after=1&consumer=a%26b&instance=in /llm/usage?after=2&consumer=a%26b&instance=in]"
	if got := fmt.Sprint(*asked); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}

	out.Reset()
	if err := p.json(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 5 || !strings.HasPrefix(got, "[\n{\"instance\":\"in\"") || !strings.HasSuffix(got, "}\n]\n") {
		t.Errorf("got %s", got)
	}
}

func TestNothingIsCounted(t *testing.T) {
	address, _ := endpoint(t, 0)
	var out bytes.Buffer
	p := printer{of: query{address: address}, out: &out, now: time.Now}
	if err := p.table(); err != nil || out.String() != "Nothing is counted yet.\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	out.Reset()
	if err := p.json(); err != nil || out.String() != "[\n]\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestWrongAnswersAreErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"an error", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"error":"no instance \"x\""}`)
		}, `no instance`},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, "reading /llm/usage"},
		{"other JSON", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[{"limit":{}}]`) }, "reading row 0"},
		{"pages in a circle", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", `</llm/usage?after=x>; rel="next"`)
			io.WriteString(w, "[]")
		}, "do not end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := httptest.NewServer(tc.answer)
			defer s.Close()
			p := printer{of: query{address: strings.TrimPrefix(s.URL, "http://")}, out: io.Discard, now: time.Now}
			if err := p.table(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestNextPage(t *testing.T) {
	for _, tc := range []struct{ link, want string }{
		{"", ""},
		{`</llm/usage?after=a%2Fb>; rel="next"`, "/llm/usage?after=a%2Fb"},
		{`</llm/usage?after=a>; rel="prev"`, ""},
		{`<http://other.test/llm/usage?after=a>; rel="next"`, ""},
		{`</config/?x>; rel="next"`, ""},
		{`/llm/usage?after=a; rel="next"`, ""},
	} {
		if got := nextPage([]string{tc.link}); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.link, got, tc.want)
		}
	}
}

var errFull = errors.New("the disk is full")

// full takes so many writes.
type full struct {
	text bytes.Buffer
	room int
}

func (f *full) Write(p []byte) (int, error) {
	if f.room--; f.room < 0 {
		return 0, errFull
	}
	return f.text.Write(p)
}

func TestWatchGoesOn(t *testing.T) {
	address, _ := endpoint(t, 1)
	out := &full{room: 3}
	p := printer{of: query{address: address}, out: out, look: look{terminal: true, width: 80}, now: time.Now}
	var slept []time.Duration
	err := p.watch(time.Minute, func(d time.Duration) {
		slept = append(slept, d)
		p.of.address = address
		if len(slept) == 1 {
			p.of.address = "127.0.0.1:0" // as if it were away for once
		}
	})
	if !errors.Is(err, errFull) || len(slept) != 3 || slept[0] != time.Minute {
		t.Errorf("got %v after %v", err, slept)
	}
	if got := out.text.String(); strings.Count(got, emptied) != 3 || strings.Count(got, "CONSUMER") != 2 || strings.Count(got, "Error: ") != 1 {
		t.Errorf("got %q", got)
	}

	p.of.address = "127.0.0.1:0"
	if err := p.watch(time.Minute, func(time.Duration) { t.Error("it waits for what was never there") }); err == nil {
		t.Error("no error")
	}
}

// Watching takes a tenth of the time at most, however many consumers there are.
func TestWatchRestsTheLongerTheLongerARoundTakes(t *testing.T) {
	address, _ := endpoint(t, 1)
	at, took := noon, []time.Duration{0, 100 * time.Millisecond, 30 * time.Second, time.Millisecond}
	reads := 0
	p := printer{of: query{address: address}, out: &full{room: len(took)}}
	p.now = func() time.Time { // before a round, for its table, and after it
		if reads++; reads%3 == 2 {
			at = at.Add(took[min(reads/3, len(took)-1)])
		}
		return at
	}
	var slept []time.Duration
	if err := p.watch(2*time.Second, func(d time.Duration) { slept = append(slept, d) }); !errors.Is(err, errFull) {
		t.Error(err)
	}
	if want := []time.Duration{2 * time.Second, 2 * time.Second, 270 * time.Second, 2 * time.Second}; !slices.Equal(slept, want) {
		t.Errorf("slept %v, want %v", slept, want)
	}
}
