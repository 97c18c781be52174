package llmapp

import (
	"slices"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestRegister(t *testing.T) {
	rules := testRules()
	other := func(change func(r *RuleInfo)) []RuleInfo {
		rs := testRules()
		change(&rs[0])
		return rs
	}
	pool := func(key []string, rs []RuleInfo) *instance {
		return &instance{pool: "gpu", key: key, mode: "reserve", rules: rs}
	}
	for _, tc := range []struct {
		name   string
		first  *instance
		second *instance
		want   []string // parts of the error; nil if there is none
	}{
		{"two names", &instance{name: "a"}, &instance{name: "b"}, nil},
		{"two unnamed ones by different keys", &instance{id: "x"}, &instance{id: "y"}, nil},
		{"a name twice", &instance{name: "a"}, &instance{name: "a"}, []string{`the name "a" stands here twice`, "share a"}},
		{
			"two unnamed ones by the same key", &instance{id: "x", key: []string{"{a}", "{b}"}}, &instance{id: "x", key: []string{"{a}", "{b}"}},
			[]string{"two unnamed token_limit", "({a} {b})", "give each a name"},
		},
		{"two unnamed ones for all", &instance{id: "x"}, &instance{id: "x"}, []string{"two unnamed token_limit", "shared by all callers", "give each a name"}},
		{"a pool", pool(nil, rules), pool(nil, rules), nil},
		{"a pool of named members", &instance{name: "a", pool: "gpu", rules: rules}, &instance{name: "b", pool: "gpu", rules: rules}, nil},
		{"a pool with two keys", pool([]string{"{a}"}, rules), pool([]string{"{b}"}, rules), []string{"share gpu", "same rules", "their keys differ"}},
		{"a pool with one key", pool([]string{"{a}"}, rules), pool(nil, rules), []string{"share gpu", "their keys differ"}},
		{"a pool with two modes", pool(nil, rules), &instance{pool: "gpu", mode: "strict", rules: rules}, []string{"share gpu", "mode reserve", "strict"}},
		{"a pool of two directives", pool(nil, rules), &instance{pool: "gpu", mode: "reserve", directive: "cost_limit", rules: rules}, []string{"share gpu", "token_limit", "cost_limit"}},
		{"a pool with two amounts", pool(nil, rules), pool(nil, other(func(r *RuleInfo) { r.Limit++ })), []string{"share gpu", "`tokens per day`", "differ"}},
		{"a pool with two windows", pool(nil, rules), pool(nil, other(func(r *RuleInfo) { r.Words = "tokens per hour" })), []string{"`tokens per day`", "`tokens per hour`"}},
		{"a pool with two zones", pool(nil, rules), pool(nil, other(func(r *RuleInfo) { r.Store = &store.Rule{ID: "tokens per day Europe/Berlin", Window: r.Store.Window} })), []string{"share gpu", "differ"}},
		{"a pool with two refills", pool(nil, rules), pool(nil, other(func(r *RuleInfo) { r.Store = &store.Rule{ID: r.Store.ID, Window: r.Store.Window, Refill: 5} })), []string{"share gpu", "differ"}},
		{"a pool with fewer rules", pool(nil, rules), pool(nil, rules[:1]), []string{"share gpu", "one has 2 and one 1"}},
		{"a pool called like an instance", &instance{name: "gpu", rules: rules}, pool(nil, rules), []string{`"gpu" is the name of an instance and of a pool`}},
		{"an instance called like a pool", pool(nil, rules), &instance{name: "gpu", rules: rules}, []string{`"gpu" is the name of an instance and of a pool`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := new(App)
			if err := a.Register(tc.first); err != nil {
				t.Fatal(err)
			}
			err := a.Register(tc.second)
			if tc.want == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestListNamesAPoolOnce(t *testing.T) {
	a := new(App)
	for _, in := range []*instance{{name: "z"}, {pool: "m"}, {name: "a"}, {pool: "m"}, {pool: "m", name: "k"}} {
		if err := a.Register(in); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, in := range a.list() {
		ids = append(ids, in.ID())
	}
	if want := []string{"a", "m", "z"}; !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
}
