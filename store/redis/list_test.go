//go:build unix

package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// commands is how often a server was asked to do something.
func commands(t *testing.T, c *goredis.Client, name string) int {
	t.Helper()
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_"+name+":calls=%d,", &n); err == nil {
			return n
		}
	}
	return 0
}

// fillWith charges consumers of an instance one token more each.
func fillWith(t *testing.T, s *Store, instance string, n int) (entities []store.Entity) {
	t.Helper()
	var batches []store.Batch
	for i := range n {
		e := store.Entity{Instance: instance, Consumer: fmt.Sprintf("app-%04d", i)}
		entities = append(entities, e)
		batches = append(batches, store.Batch{Entity: e, Origin: "0123456789abcdef", Seq: 1, At: time.Now(), Lines: []store.Amount{{Rule: tokens, Amount: int64(i + 1)}}})
	}
	for part := range slices.Chunk(batches, 500) {
		for _, err := range s.Charge(t.Context(), part) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return entities
}

func TestPagesOfAListingTakeOneScan(t *testing.T) {
	const consumers, page = 2000, 50
	server, o := single(t)
	s, c := open(t, o), server.Client()
	want := fillWith(t, s, "pages", consumers)
	for _, more := range []int{0, 1} { // as of who asks for one more than fits
		before := commands(t, c, "scan")
		var got []store.Entity
		for after, ends := "", false; !ends; {
			list, err := s.Entities(t.Context(), "pages", after, page+more)
			if err != nil {
				t.Fatal(err)
			}
			ends = len(list) < page+more
			list = list[:min(page, len(list))]
			got = append(got, list...)
			if len(list) > 0 {
				after = list[len(list)-1].Consumer
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %d consumers, want %d", len(got), len(want))
		}
		// as many steps as all keys take, and some for how the server cuts them
		if n := commands(t, c, "scan") - before; n > consumers/scanned+2 {
			t.Errorf("%d steps of a scan", n)
		}
	}
}

// A listing that begins, or goes on elsewhere, finds what there is.
func TestListingsThatBeginFindWhatIsNew(t *testing.T) {
	_, o := single(t)
	s := open(t, o)
	fillWith(t, s, "new", 10)
	list := func(after string, n int) string {
		t.Helper()
		entities, err := s.Entities(t.Context(), "new", after, n)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entities {
			names = append(names, e.Consumer)
		}
		return strings.Join(names, " ")
	}
	if got := list("", 2); got != "app-0000 app-0001" {
		t.Errorf("got %s", got)
	}
	if err := s.Adjust(t.Context(), store.Entity{Instance: "new", Consumer: "app-0002a"}, store.Amount{Rule: tokens, Amount: 1}); err != nil {
		t.Fatal(err)
	}
	if got := list("app-0001", 3); got != "app-0002 app-0003 app-0004" {
		t.Errorf("gone on with: got %s", got)
	}
	if got := list("app-0002", 2); got != "app-0002a app-0003" {
		t.Errorf("from the middle: got %s", got)
	}
	if got := list("", 4); got != "app-0000 app-0001 app-0002 app-0002a" {
		t.Errorf("anew: got %s", got)
	}
}

func TestRestsAreFewAndOfLate(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	names := func(n int) []string { return strings.Fields("a b c d e f g h")[:n] }
	var rs rests
	next := func(suffix, after string, n int, at time.Time) string {
		got, ok := rs.next(suffix, "", after, n, at)
		if !ok {
			return "scan"
		}
		return strings.Join(got, "")
	}
	rs.keep(rest{"x", "", names(8), 2, false, at})
	for _, tt := range []struct {
		suffix, after string
		n             int
		at            time.Duration
		want          string
	}{
		{"y", "b", 2, 0, "scan"},            // another instance
		{"x", "d", 2, 0, "scan"},            // no page has ended there
		{"x", "b", 2, restFor, "scan"},      // too long ago
		{"x", "b", 2, -time.Second, "scan"}, // a clock that is put back
		{"x", "b", 3, 0, "cde"},
		{"x", "d", 3, 0, "efg"},
		{"x", "g", 2, 0, "scan"}, // there may be more behind the last
		{"x", "g", 1, 0, "h"},
		{"x", "h", 1, 0, "scan"},
	} {
		if got := next(tt.suffix, tt.after, tt.n, at.Add(tt.at)); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
	rs.keep(rest{"x", "", names(3), 1, true, at})
	if got := next("x", "a", 5, at); got != "bc" {
		t.Errorf("of all: got %s", got)
	}
	for i := range 2 * restLists {
		rs.keep(rest{fmt.Sprint(i), "", names(3), 1, true, at})
	}
	if len(rs.lists) != restLists || next("0", "a", 1, at) != "scan" {
		t.Errorf("%d lists are kept", len(rs.lists))
	}
	rs.keep(rest{"late", "", names(2), 2, true, at.Add(restFor)})
	if len(rs.lists) != 0 {
		t.Errorf("%d lists are kept that are out of date or told", len(rs.lists))
	}
}

func TestManyAreReadAsOne(t *testing.T) {
	server, o := single(t)
	s, c := open(t, o), server.Client()
	entities := fillWith(t, s, "many", 3*readMost/2)
	own(t, s, entities[3], tokens, 7)
	entities = append(entities, store.Entity{Instance: "many", Consumer: "nobody"}, store.Entity{Instance: "many"})
	if err := c.ScriptFlush(t.Context()).Err(); err != nil { // as a server that was restarted
		t.Fatal(err)
	}
	other := &store.Rule{ID: "of nobody", Window: tokens.Window}
	var readings []store.Reading
	for _, e := range entities {
		readings = append(readings, store.Reading{Entity: e, Rules: []*store.Rule{other, tokens}, Results: make([]store.Result, 2)})
	}
	readings[0].Rules, readings[0].Results = nil, nil
	if err := s.ReadAll(t.Context(), readings); err != nil {
		t.Fatal(err)
	}
	for i, r := range readings {
		want := make([]store.Result, len(r.Rules))
		if err := s.Read(t.Context(), r.Entity, r.Rules, want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Results, want) {
			t.Errorf("%s: got %+v, want %+v", r.Consumer, r.Results, want)
		}
		if i > 0 && i < 3*readMost/2 && (r.Results[1].Used != int64(i+1) || r.Results[1].Overridden != (i == 3)) {
			t.Errorf("%s: got %+v", r.Consumer, r.Results)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.ReadAll(ended, readings); err == nil {
		t.Error("it goes on for nobody")
	}
}
