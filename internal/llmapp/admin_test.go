package llmapp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// limit is a handler that registers an instance.
func limit(name string, key ...string) string {
	in, err := json.Marshal(map[string]any{"handler": "test_limit", "role": "limiter", "instance": name, "key": key})
	if err != nil {
		panic(err)
	}
	return string(in)
}

// charge has a consumer use tokens, and hold one call if held.
func charge(t testing.TB, a *App, instance, consumer string, tokens int64, held bool) {
	t.Helper()
	rules := testRules()
	e := store.Entity{Instance: instance, Consumer: consumer}
	if err := a.Counters().Adjust(t.Context(), e, store.Amount{Rule: rules[0].Store, Amount: tokens}); err != nil {
		t.Fatal(err)
	}
	if !held {
		return
	}
	ticket, err := a.Counters().Reserve(t.Context(), &store.Reservation{
		Entity: e, Known: true, Lease: time.Hour,
		Takes: []store.Take{{Rule: rules[0].Store, Limit: 1000, Need: 1, Hold: 50}, {Rule: rules[1].Store, Limit: 3, Need: 1, Hold: 1}},
	}, make([]store.Result, 2))
	if err != nil || ticket == nil {
		t.Fatalf("not admitted (%v)", err)
	}
	t.Cleanup(func() { a.Counters().Settle(ticket, nil) })
}

// usageOf asks for a page of usage, and where the next one is.
func usageOf(t testing.TB, target string) (rows []usageRow, next string) {
	t.Helper()
	w, status, err := ask(t, http.MethodGet, target)
	if err != nil || status != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: got %d, %v", target, status, err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &rows); err != nil || rows == nil {
		t.Fatalf("%s: %s (%v)", target, w.Body, err)
	}
	if link := w.Header().Get("Link"); link != "" {
		var ok bool
		if next, ok = strings.CutSuffix(link, `>; rel="next"`); !ok || next[0] != '<' {
			t.Fatalf("the link is %s", link)
		}
		next = next[1:]
	}
	return rows, next
}

// names are the instances and consumers of rows, each once.
func names(rows []usageRow) []string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = r.Instance + " " + r.Consumer
	}
	return slices.Compact(all)
}

func TestUsageRows(t *testing.T) {
	a := mustRun(t, config(t, route("", limit("rows", "{http.vars.a}")), "", ""))
	charge(t, a, "rows", "shop", 300, true)
	rows, next := usageOf(t, "/llm/usage?instance=rows")
	if next != "" || len(rows) != 2 {
		t.Fatalf("got %+v and %q", rows, next)
	}
	now := time.Now()
	tokens, concurrent := rows[0], rows[1]
	if tokens.WindowStart == nil || tokens.ResetsAt == nil || tokens.WindowStart.After(now) || !tokens.ResetsAt.After(*tokens.WindowStart) ||
		tokens.WindowStart.Location() != time.UTC || tokens.WindowStart.Hour() != 0 {
		t.Errorf("the window is %v to %v", tokens.WindowStart, tokens.ResetsAt)
	}
	tokens.WindowStart, tokens.ResetsAt = nil, nil
	if want := (usageRow{Instance: "rows", Rule: "tokens per day", Consumer: "shop", Unit: "tokens", Limit: amount{n: 1000}, Used: amount{n: 300}, Reserved: amount{n: 50}, Remaining: amount{n: 650}}); tokens != want {
		t.Errorf("got  %+v\nwant %+v", tokens, want)
	}
	if want := (usageRow{Instance: "rows", Rule: "concurrent", Consumer: "shop", Unit: "concurrent", Limit: amount{n: 3}, Reserved: amount{n: 1}, Remaining: amount{n: 2}}); concurrent != want {
		t.Errorf("got  %+v\nwant %+v", concurrent, want)
	}

	w, _, _ := ask(t, http.MethodGet, "/llm/usage?instance=rows")
	var members []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &members); err != nil {
		t.Fatal(err)
	}
	want := []string{"consumer", "instance", "limit", "model", "remaining", "reserved", "resets_at", "rule", "unit", "used", "window_start"}
	if got := slices.Sorted(maps.Keys(members[0])); !slices.Equal(got, want) {
		t.Errorf("got the members %q, want %q", got, want)
	}
}

func TestUsageFilters(t *testing.T) {
	a := mustRun(t, config(t, route("", limit("filter-a", "{http.vars.a}"), limit("filter-b", "{http.vars.a}"), limit("filter-shared")), "", ""))
	for _, consumer := range []string{"ann", "bob", "c/d%2F&e"} {
		charge(t, a, "filter-a", consumer, 1, false)
	}
	charge(t, a, "filter-b", "bob", 2, false)
	charge(t, a, "filter-shared", "", 3, false)
	for _, tc := range []struct {
		name, query string
		want        []string
	}{
		{"all", "", []string{"filter-a ann", "filter-a bob", "filter-a c/d%2F&e", "filter-b bob", "filter-shared "}},
		{"an instance", "?instance=filter-a", []string{"filter-a ann", "filter-a bob", "filter-a c/d%2F&e"}},
		{"a shared instance", "?instance=filter-shared", []string{"filter-shared "}},
		{"a consumer", "?consumer=bob", []string{"filter-a bob", "filter-b bob"}},
		{"both", "?instance=filter-b&consumer=bob", []string{"filter-b bob"}},
		{"a consumer with odd bytes", "?instance=filter-a&consumer=" + url.QueryEscape("c/d%2F&e"), []string{"filter-a c/d%2F&e"}},
		{"a consumer of a shared instance", "?instance=filter-shared&consumer=bob", []string{}},
		{"a consumer that has used nothing", "?instance=filter-b&consumer=new", []string{"filter-b new"}},
		{"after a consumer", "?instance=filter-a&after=filter-a/ann", []string{"filter-a bob", "filter-a c/d%2F&e"}},
		{"after an instance", "?after=filter-b/", []string{"filter-b bob", "filter-shared "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rows, _ := usageOf(t, "/llm/usage"+tc.query)
			if got := names(rows); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUsageIsPaged(t *testing.T) {
	defer func(n int) { pageSize = n }(pageSize)
	a := mustRun(t, config(t, route("", limit("page-a", "{k}"), limit("page-b", "{k}"), limit("page-c"), limit("page-d/%?&", "{k}"), limit("page-e")), "", ""))
	var all []string
	for _, in := range []string{"page-a", "page-b", "page-d/%?&"} {
		for i := range 5 {
			consumer := fmt.Sprintf("%d/%%<\"> é", i)
			charge(t, a, in, consumer, 1, false)
			all = append(all, in+" "+consumer)
		}
	}
	all = append(all, "page-c ", "page-e ")
	slices.SortFunc(all, strings.Compare)

	for size := 1; size <= len(all)+1; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			pageSize = size
			var got []string
			pages := 0
			for next := "/llm/usage"; next != ""; pages++ {
				if pages > 2*len(all) {
					t.Fatal("the pages do not end")
				}
				var rows []usageRow
				rows, next = usageOf(t, next)
				if n := len(names(rows)); n > size {
					t.Errorf("a page of %d", n)
				}
				got = append(got, names(rows)...)
			}
			if !slices.Equal(got, all) {
				t.Errorf("got  %q\nwant %q", got, all)
			}
			if size > len(all) && pages != 1 {
				t.Errorf("%d pages", pages)
			}
		})
	}
	t.Run("within a filter", func(t *testing.T) {
		pageSize = 2
		rows, next := usageOf(t, "/llm/usage?instance=page-b")
		for next != "" {
			var more []usageRow
			more, next = usageOf(t, next)
			rows = append(rows, more...)
		}
		if got := names(rows); !slices.Equal(got, all[5:10]) {
			t.Errorf("got %q, want %q", got, all[5:10])
		}
	})
}

func TestAdminRefuses(t *testing.T) {
	mustRun(t, config(t, route("", limit("refuses")), "", ""))
	for _, tc := range []struct {
		name, method, target string
		status               int
		want                 string
	}{
		{"an unknown parameter", "GET", "/llm/usage?instances=a", 400, `"instances"`},
		{"an unknown instance", "GET", "/llm/usage?instance=nobody", 404, `"nobody"`},
		{"a cursor without an instance", "GET", "/llm/usage?after=x", 400, "after"},
		{"a cursor that cannot be read", "GET", "/llm/usage?after=%25zz/a", 400, "after"},
		{"a cursor whose consumer cannot be read", "GET", "/llm/usage?after=a/%25zz", 400, "after"},
		{"writing usage", "POST", "/llm/usage", 405, "POST"},
		{"writing limits", "PUT", "/llm/limits", 405, "PUT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, status, err := ask(t, tc.method, tc.target)
			if err == nil || status != tc.status || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %d, %v; want %d", status, err, tc.status)
			}
			if w.Body.Len() > 0 {
				t.Errorf("got %s beside the error", w.Body)
			}
		})
	}
}

func TestAdminWithoutTheApp(t *testing.T) {
	if err := run(t, config(t, route("", respond), "", "")); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"/llm/usage", "/llm/limits"} {
		if _, status, err := ask(t, http.MethodGet, target); status != 404 || err == nil {
			t.Errorf("%s: got %d, %v", target, status, err)
		}
	}
}

func TestHeadIsAnswered(t *testing.T) {
	mustRun(t, config(t, route("", limit("head")), "", ""))
	for _, target := range []string{"/llm/usage", "/llm/limits"} {
		if _, status, err := ask(t, http.MethodHead, target); status != 200 || err != nil {
			t.Errorf("%s: got %d, %v", target, status, err)
		}
	}
}

func TestLimitsAreListed(t *testing.T) {
	mustRun(t, config(t, route("", limit("list-b"), limit("list-a", "{http.auth.user.id}")), "", ""))
	w, status, err := ask(t, http.MethodGet, "/llm/limits")
	if err != nil || status != 200 {
		t.Fatalf("got %d, %v", status, err)
	}
	const rules = `"rules":[{"rule":"tokens per day","unit":"tokens","limit":1000},{"rule":"concurrent","unit":"concurrent","limit":3,"shadow":true}]}`
	want := `{"store":"memory","limits":[` +
		`{"instance":"list-a","directive":"token_limit","shared":false,"key":["{http.auth.user.id}"],"mode":"",` + rules + `,` +
		`{"instance":"list-b","directive":"token_limit","shared":true,"mode":"",` + rules + `]}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// errCounters is a store that cannot be reached.
type errCounters struct{ store.Counters }

func (errCounters) Entities(context.Context, string, string, int) ([]store.Entity, error) {
	return nil, fmt.Errorf("dialing: %w", store.ErrUnavailable)
}

func (errCounters) Read(context.Context, store.Entity, []*store.Rule, []store.Result) error {
	return fmt.Errorf("dialing: %w", store.ErrUnavailable)
}

func TestUsageOfAStoreThatIsAway(t *testing.T) {
	a := mustRun(t, config(t, route("", limit("away", "{k}"), limit("away-shared")), "", ""))
	counters := a.shared.counters
	a.shared.counters = errCounters{counters}
	defer func() { a.shared.counters = counters }()
	for _, instance := range []string{"away", "away-shared"} {
		if _, status, err := ask(t, http.MethodGet, "/llm/usage?instance="+instance); status != 503 || err == nil {
			t.Errorf("%s: got %d, %v", instance, status, err)
		}
	}
}

// FuzzCursor holds a cursor to lead to where it came from.
func FuzzCursor(f *testing.F) {
	f.Add("a", "b")
	f.Add("a/b", "%2F")
	f.Add("", "")
	f.Add("é\x00", "<>;\"")
	f.Fuzz(func(t *testing.T, in, consumer string) {
		c := cursor{in, consumer}
		got, err := parseCursor(c.String())
		if err != nil || got != c {
			t.Errorf("%+v is %q and becomes %+v (%v)", c, c.String(), got, err)
		}
		if strings.ContainsAny(url.Values{"after": {c.String()}}.Encode(), "<>\r\n\"") {
			t.Errorf("%+v breaks the header field", c)
		}
		// whatever is asked for, it is read or refused
		if got, err := parseCursor(in); err != nil && got.consumer != "" {
			t.Errorf("%q is read as %+v beside %v", in, got, err)
		}
	})
}
