package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func testAdjust(f *fixture) {
	for _, r := range []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1)} {
		e := f.consumer("app")
		f.adjust(e, r, 0)
		f.adjust(e, r, 70)
		f.refuse(e, charge(r, 100, 31))
		f.adjust(e, r, 50) // past the limit
		f.expect(e, r, 120, 0)
		f.adjust(e, r, -30)
		f.expect(e, r, 90, 0)
		f.adjust(e, r, -140)
		f.expect(e, r, -50, 0)
		k, _ := f.admit(e, hold(r, 100, 150))
		f.refuse(e, hold(r, 100, 1))
		f.store.Settle(k, []int64{150})
		f.expect(e, r, 100, 0)
	}
}

func testRead(f *fixture) {
	ctx := context.Background()
	e := f.consumer("app")
	r, calls, unused := f.fixed("tokens", decade), f.none("calls"), f.fixed("unused", decade)
	f.adjust(e, r, 30)
	_, taken := f.admit(e, hold(r, 100, 20), hold(calls, 5, 1))

	results := make([]store.Result, 3)
	for range 2 { // the second finds the same: nothing was taken
		// What was there before is overwritten.
		results[0] = store.Result{Limit: 1, Got: 1, Exceeded: true, RetryAfter: time.Hour}
		if err := f.store.Read(ctx, e, []*store.Rule{r, calls, unused}, results); err != nil {
			f.Fatalf("reading: %v", err)
		}
		got := results[0]
		if got.Used != 30 || got.Held != 20 || !got.WindowStart.Equal(taken[0].WindowStart) || !got.ResetAt.Equal(taken[0].ResetAt) {
			f.Errorf("got %+v, want what was taken: %+v", got, taken[0])
		}
		if got.Limit != 0 || got.Got != 0 || got.Exceeded || got.RetryAfter != 0 {
			f.Errorf("got %+v, want no limit", got)
		}
		if got := results[1]; got.Used != 0 || got.Held != 1 || !got.ResetAt.IsZero() {
			f.Errorf("calls: got %+v", got)
		}
		if got := results[2]; got.Used != 0 || got.Held != 0 || got.ResetAt.Sub(got.WindowStart) != decade {
			f.Errorf("unused: got %+v", got)
		}
	}

	if err := f.store.Read(ctx, f.consumer("nobody"), []*store.Rule{r}, results[:1]); err != nil {
		f.Fatalf("reading: %v", err)
	}
	if results[0].Used != 0 || results[0].Held != 0 {
		f.Errorf("nobody: got %+v", results[0])
	}
	if got := f.list("", 10); !slices.Equal(got, []string{"app"}) {
		f.Errorf("reading made counters: %q", got)
	}
}

// list returns a page of the instance's consumers.
func (f *fixture) list(after string, n int) []string {
	f.Helper()
	return f.listed(f.store.Entities, after, n)
}

func (f *fixture) listed(list func(ctx context.Context, instance, after string, n int) ([]store.Entity, error), after string, n int) []string {
	f.Helper()
	entities, err := list(context.Background(), f.instance, after, n)
	if err != nil {
		f.Fatalf("listing: %v", err)
	}
	var names []string
	for _, e := range entities {
		if e.Instance != f.instance {
			f.Errorf("listed %+v of another instance", e)
		}
		names = append(names, e.Consumer)
	}
	return names
}

// pages returns all of the instance's consumers, read n at a time.
func (f *fixture) pages(n int) []string {
	f.Helper()
	var all []string
	for after := ""; ; {
		page := f.list(after, n)
		if len(page) > n {
			f.Fatalf("a page of %d has %d", n, len(page))
		}
		if len(page) == 0 {
			return all
		}
		if page[0] <= after {
			f.Fatalf("the page after %q starts with %q", after, page[0])
		}
		all = append(all, page...)
		after = page[len(page)-1]
	}
}

func testEntities(f *fixture) {
	r := f.fixed("tokens", decade)
	if got := f.list("", 10); len(got) != 0 {
		f.Errorf("an unknown instance lists %q", got)
	}
	var want []string
	for i := range 1000 {
		name := fmt.Sprint("app-", i*7919%1000)
		want = append(want, name)
		f.adjust(f.consumer(name), r, 1)
	}
	slices.Sort(want)
	f.adjust(store.Entity{Instance: f.instance}, r, 1)
	f.adjust(store.Entity{Instance: f.instance + "x", Consumer: "app-other"}, r, 1)
	f.adjust(store.Entity{Instance: f.instance[:len(f.instance)-1], Consumer: "app-other"}, r, 1)

	for _, n := range []int{1000, 1001, 333, 64, 7} {
		if got := f.pages(n); !slices.Equal(got, want) {
			f.Errorf("in pages of %d: got %d consumers, want %d in ascending order", n, len(got), len(want))
		}
	}
	if got := f.list("app-5", 2); !slices.Equal(got, []string{"app-50", "app-500"}) {
		f.Errorf("after app-5: got %q", got)
	}
	if got := f.list("app-4z, which is none", 1); !slices.Equal(got, []string{"app-5"}) {
		f.Errorf("after a key that is none: got %q", got)
	}
	if got := f.list("z", 5); len(got) != 0 {
		f.Errorf("after the last: got %q", got)
	}
	if got := f.list("", 0); len(got) != 0 {
		f.Errorf("none asked for: got %q", got)
	}
}

// oddNames are keys that an encoding of theirs must not confuse.
func oddNames() []string {
	return []string{
		"default", "a", "a:", ":a", "a:b", "a b", "a\nb", "a\x00", "a\x00b", "\x00", "\xff", "\xff\xfe", "{a}", "}{", "a}",
		"*", "?", "[a]", "%", "%00", `"`, `\`, `\x00`, "ä", "a\u0308", "🙂", "A", " ", "a ", "0", "-1", "nil", "null",
		strings.Repeat("k", 64), strings.Repeat("k", 65), strings.Repeat("k", 4096), strings.Repeat("k", 4095) + "l",
	}
}

func testOddEntities(f *fixture) {
	r := f.fixed("tokens", decade)
	want := oddNames()
	for _, name := range want {
		f.adjust(f.consumer(name), r, 1)
	}
	slices.Sort(want)
	if got := f.pages(5); !slices.Equal(got, want) {
		f.Errorf("got %q, want %q", got, want)
	}
}

func testIsolation(f *fixture) {
	a, b := f.fixed("tokens", decade), f.fixed("tokens:day", decade)
	var entities []store.Entity
	for _, instance := range []string{f.instance, f.instance + ":a", f.instance + "\x00", "{" + f.instance + "}", strings.ToUpper(f.instance)} {
		entities = append(entities, store.Entity{Instance: instance})
		for _, name := range oddNames() {
			entities = append(entities, store.Entity{Instance: instance, Consumer: name})
		}
	}
	for i, e := range entities {
		f.adjust(e, a, int64(i)*2+1)
		f.adjust(e, b, int64(i)*2+2)
		f.admit(e, hold(a, 1_000_000, int64(i)+1))
	}
	for i, e := range entities {
		results := look(f, f.store, e, a, b)
		if results[0].Used != int64(i)*2+1 || results[0].Held != int64(i)+1 || results[1].Used != int64(i)*2+2 || results[1].Held != 0 {
			f.Errorf("%q: got %+v in place %d", e, results, i)
		}
	}
}

func testRuleIDs(f *fixture) {
	e := f.consumer("app")
	k, _ := f.admit(e, hold(f.fixed("tokens", decade), 100, 10), charge(f.fixed("requests", decade), 10, 1))
	f.admit(e, hold(f.fixed("tokens", decade), 100, 20)) // equal, of a later config
	f.expect(e, f.fixed("tokens", decade), 0, 30)
	f.store.Settle(k, []int64{5, 0})
	f.expect(e, f.fixed("tokens", decade), 5, 20)
	f.expect(e, f.fixed("requests", decade), 0, 0)
	f.expect(e, f.fixed("tokens ", decade), 0, 0)
	f.expect(e, f.fixed("Tokens", decade), 0, 0)
	for i := range 300 {
		f.adjust(e, f.fixed(fmt.Sprint("model ", i), decade), int64(i)+1)
	}
	for i := range 300 {
		f.expect(e, f.fixed(fmt.Sprint("model ", i), decade), int64(i)+1, 0)
	}
	f.expect(e, f.fixed("tokens", decade), 5, 20)
}
