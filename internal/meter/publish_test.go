package meter

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"
)

func TestVariablesThatDoNotDifferAreNotWritten(t *testing.T) {
	w, r := httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody)
	caddyhttp.SetVar(r.Context(), "x", "1")
	caddyhttp.SetVar(r.Context(), "groups", map[string]struct{}{"a": {}})
	caddyhttp.SetVar(r.Context(), "regexp", []string{"a"})
	caddyhttp.SetVar(r.Context(), "error", fmt.Errorf("x"))
	c := New().Call(r)
	p := c.passApart(r.Context(), w, r)
	// a map that is read and written at the same time ends the process
	stop := make(chan struct{})
	var work sync.WaitGroup
	lookUp(r, stop, &work)
	for range 1000 {
		p.Publish()
	}
	close(stop)
	work.Wait()
	caddyhttp.SetVar(p.Request().Context(), "x", "2")
	p.Publish()
	if got := caddyhttp.GetVar(r.Context(), "x"); got != "2" {
		t.Errorf("got %v", got)
	}
}

// uneven has a field that may or may not be compared.
type uneven struct{ v any }

func TestPublishedVariablesAreThoseBehind(t *testing.T) {
	shared, one := map[string]int{"a": 1}, []int{1, 2, 3}
	values := []any{
		nil, "", "a", true, false, 1, int64(1), 1.5, math.NaN(), shared,
		map[string]int{"a": 1},
		one, one[:2],
		[]int{1, 2, 3},
		&shared,
		uneven{1},
		uneven{shared},
		uneven{nil},
		func() {}, fmt.Errorf("a"),
		[1]any{shared},
	}
	names := []string{"a", "b", "c", "d"}
	draw := func(t *rapid.T, label string) map[string]any {
		m := make(map[string]any)
		for _, name := range names {
			if rapid.Bool().Draw(t, label+name) {
				m[name] = values[rapid.IntRange(0, len(values)-1).Draw(t, label)]
			}
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		vars, by := draw(t, "outside"), draw(t, "inside")
		before := maps.Clone(by)
		publish(vars, by)
		if len(vars) != len(by) || len(by) != len(before) {
			t.Fatalf("got %v of %v", vars, by)
		}
		for name, v := range by {
			if got, ok := vars[name]; !ok || fmt.Sprintf("%T %p %v", got, got, got) != fmt.Sprintf("%T %p %v", v, v, v) {
				t.Fatalf("%s is %v, want %v", name, got, v)
			}
		}
	})
}

// Proxies leave variables behind that are structs of many fields.
func TestToCompareVariablesAllocatesNothing(t *testing.T) {
	type large struct {
		a       string
		_, _, _ string
		e       any
	}
	one, other := map[string]any{"v": large{a: "x", e: 1}, "s": "x"}, map[string]any{"v": large{a: "x", e: 1}, "s": "x"}
	if n := testing.AllocsPerRun(100, func() { publish(one, other) }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}

func TestIdenticalValues(t *testing.T) {
	m, s, f := map[string]int{"a": 1}, []int{1, 2}, func() {}
	for _, tt := range []struct {
		name string
		a, b any
		want bool
	}{
		{"texts", "a", "a", true},
		{"other texts", "a", "b", false},
		{"text and number", "1", 1, false},
		{"number and text", 1, "1", false},
		{"truths", true, true, true},
		{"numbers", 1, 1, true},
		{"numbers of two types", 1, int64(1), false},
		{"nothing", nil, nil, true},
		{"nothing and something", nil, 1, false},
		{"something and nothing", 1, nil, false},
		{"one map", m, m, true},
		{"equal maps", m, map[string]int{"a": 1}, false},
		{"one slice", s, s, true},
		{"a part of it", s, s[:1], false},
		{"functions", f, f, false},
		{"what holds a map", uneven{m}, uneven{m}, false},
		{"what holds a number", uneven{1}, uneven{1}, true},
		{"what holds a number, or a map", uneven{1}, uneven{m}, false},
		{"pointers", &m, &m, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := identical(tt.a, tt.b); got != tt.want {
				t.Errorf("%v and %v: got %t", reflect.TypeOf(tt.a), reflect.TypeOf(tt.b), got)
			}
		})
	}
}
