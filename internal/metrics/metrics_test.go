package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// scrape reads a set as Caddy's registries do, pedantically.
func scrape(t testing.TB, s *Set) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := s.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		by[f.GetName()] = f
	}
	return by
}

// values are a metric's, by its labels: `a=b,c=d`.
func values(t testing.TB, s *Set, name string) map[string]float64 {
	t.Helper()
	got := make(map[string]float64)
	for _, m := range scrape(t, s)[name].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
		if h := m.GetHistogram(); h != nil {
			v = float64(h.GetSampleCount())
		}
		got[strings.Join(labels, ",")] = v
	}
	return got
}

func expect(t *testing.T, s *Set, name string, want map[string]float64) {
	t.Helper()
	got := values(t, s, name)
	for labels, v := range want {
		if got[labels] != v {
			t.Errorf("%s{%s} is %v, want %v", name, labels, got[labels], v)
		}
	}
	for labels, v := range got {
		if _, ok := want[labels]; !ok && v != 0 {
			t.Errorf("%s{%s} is %v, and should not be", name, labels, v)
		}
	}
}

func TestSetIsRegisteredOnceWithEveryRegistry(t *testing.T) {
	s := New()
	for range 20 {
		r := prometheus.NewPedanticRegistry()
		for range 2 { // as two instances of one config might
			if err := s.Register(r); err != nil {
				t.Fatal(err)
			}
		}
		s.AuthFailed("unknown")
		if _, err := r.Gather(); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, s, "llm_auth_failures_total", map[string]float64{"reason=unknown": 20})
}

func TestRegistryThatHasTheNamesAlreadyIsAnError(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	if err := New().Register(r); err != nil {
		t.Fatal(err)
	}
	if err := New().Register(r); err == nil {
		t.Error("another set was registered beside the first")
	}
}

func TestEveryMetricIsNamedByConvention(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range all {
		if seen[m.name] {
			t.Errorf("%s stands in the table twice", m.name)
		}
		seen[m.name] = true
		if !strings.HasPrefix(m.name, "llm_") || strings.ToLower(m.name) != m.name {
			t.Errorf("%s is not in the namespace llm_", m.name)
		}
		if (m.kind == counter) != strings.HasSuffix(m.name, "_total") {
			t.Errorf("%s is a %s", m.name, m.kind)
		}
		if m.help == "" || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s is not described: %q", m.name, m.help)
		}
	}
}

func TestEveryMetricOfTheTableIsScrapedOnceCounted(t *testing.T) {
	s := New()
	countAll(s)
	got := scrape(t, s)
	for _, m := range all {
		f := got[m.name]
		if f == nil {
			t.Errorf("%s is not there", m.name)
			continue
		}
		if want := strings.ToUpper(string(m.kind)); f.GetType().String() != want {
			t.Errorf("%s is a %s, want %s", m.name, f.GetType(), want)
		}
		if f.GetHelp() != m.help {
			t.Errorf("%s: help is %q", m.name, f.GetHelp())
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		want := map[string]bool{}
		for _, l := range m.labels {
			want[l] = true
		}
		if len(labels) != len(want) {
			t.Errorf("%s has labels %v, want %v", m.name, labels, m.labels)
		}
		for _, l := range labels {
			if !want[l] {
				t.Errorf("%s has label %s, want %v", m.name, l, m.labels)
			}
		}
		delete(got, m.name)
	}
	for name := range got {
		t.Errorf("%s is not in the table", name)
	}
}

func TestRefusalsOfManyConfigsAreBounded(t *testing.T) {
	s := New()
	for i := range 2 * childrenMost {
		s.Refused(fmt.Sprintf("instance-%d", i), "tokens per hour", i%2 == 0)
		s.Refused("bad-\xff", "tokens per hour", false)
	}
	got := values(t, s, "llm_refusals_total")
	if len(got) > childrenMost+2 {
		t.Errorf("%d series", len(got))
	}
	total := 0.
	for _, v := range got {
		total += v
	}
	if total != 4*childrenMost {
		t.Errorf("%v refusals, want %d", total, 4*childrenMost)
	}
}
