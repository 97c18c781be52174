package llmapp

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func TestGlobalOption(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		store      string
		meter      Meter
	}{
		{"alone", "llm", "", Meter{}},
		{"empty", "llm {\n}", "", Meter{}},
		{"a store", "llm {\nstore memory\n}", `{"type":"memory"}`, Meter{}},
		{"a store with a bound", "llm {\nstore memory {\nmax_entities 50_000\n}\n}", `{"max_entities":50000,"type":"memory"}`, Meter{}},
		{"a store with a directory", "llm {\nstore memory {\npersist /var/lib/llm\n}\n}", `{"persist":"/var/lib/llm","type":"memory"}`, Meter{}},
		{"a store in memory only", "llm {\nstore memory {\npersist off\nmax_entities 5\n}\n}", `{"max_entities":5,"persist":"off","type":"memory"}`, Meter{}},
		{
			"a meter", "llm {\nmeter {\nmax_body 1MiB\nmax_buffered 1GB\nask_usage off\nlease 2d\n}\n}", "",
			Meter{MaxBody: 1 << 20, MaxBuffered: 1_000_000_000, AskUsage: "off", Lease: caddy.Duration(48 * time.Hour)},
		},
		{"sizes in bytes", "llm {\nmeter {\nmax_body 100\nask_usage on\n}\n}", "", Meter{MaxBody: 100, AskUsage: "on"}},
		{"a drain", "llm {\nmeter {\ndrain 500ms\n}\n}", "", Meter{Drain: caddy.Duration(500 * time.Millisecond)}},
		{"trusted headers", "llm {\nmeter {\ntrust_duration X-Audio-Duration X-Video-Duration\n}\n}", "", Meter{TrustDuration: []string{"X-Audio-Duration", "X-Video-Duration"}}},
		{"no drain", "llm {\nmeter {\ndrain off\n}\n}", "", Meter{Drain: -1}},
		{"both", "llm {\nmeter {\nlease 1s\n}\nstore memory\n}", `{"type":"memory"}`, Meter{Lease: caddy.Duration(time.Second)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, err := parseGlobal(caddyfile.NewTestDispenser(tc.text), nil)
			if err != nil {
				t.Fatal(err)
			}
			app := v.(httpcaddyfile.App)
			var a App
			if err := caddy.StrictUnmarshalJSON(app.Value, &a); err != nil {
				t.Fatal(err)
			}
			if app.Name != "llm" || !sameJSON(string(a.StoreRaw), tc.store) || !reflect.DeepEqual(a.Meters, tc.meter) {
				t.Errorf("got %s %s", app.Name, app.Value)
			}
		})
	}
}

func sameJSON(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	var va, vb map[string]any
	if json.Unmarshal([]byte(a), &va) != nil || json.Unmarshal([]byte(b), &vb) != nil || len(va) != len(vb) {
		return false
	}
	for k := range va {
		if va[k] != vb[k] {
			return false
		}
	}
	return true
}

func TestGlobalOptionRefuses(t *testing.T) {
	inMeter := func(line string) string { return "llm {\nmeter {\n" + line + "\n}\n}" }
	inStore := func(line string) string { return "llm {\nstore memory {\n" + line + "\n}\n}" }
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"an argument", "llm on", []string{"argument", ":1"}},
		{"an unknown word", "llm {\nstores memory\n}", []string{"unrecognized subdirective 'stores'", ":2"}},
		{"two stores", "llm {\nstore memory\nstore memory\n}", []string{"store already specified", ":3"}},
		{"two meters", "llm {\nmeter {\n}\nmeter {\n}\n}", []string{"meter already specified", ":4"}},
		{"a store without a name", "llm {\nstore\n}", []string{"argument", ":2"}},
		{"an unknown store", "llm {\nstore paper\n}", []string{"llm.stores.paper", ":2"}},
		{"a store with an argument", "llm {\nstore memory big\n}", []string{"argument", ":2"}},
		{"an unknown word of the store", inStore("entities 5"), []string{"unrecognized subdirective 'entities'", ":3"}},
		{"entities of nothing", inStore("max_entities"), []string{"argument", ":3"}},
		{"entities of two", inStore("max_entities 1 2"), []string{"argument", ":3"}},
		{"entities twice", inStore("max_entities 1\nmax_entities 2"), []string{"max_entities already specified", ":4"}},
		{"entities of zero", inStore("max_entities 0"), []string{"max_entities '0'", "greater than zero", ":3"}},
		{"negative entities", inStore("max_entities -1"), []string{"max_entities '-1'", ":3"}},
		{"entities that are no number", inStore("max_entities many"), []string{"max_entities 'many'", ":3"}},
		{"a directory of nothing", inStore("persist"), []string{"argument", ":3"}},
		{"an empty directory", inStore(`persist ""`), []string{"persist ''", "off", ":3"}},
		{"two directories", inStore("persist /a /b"), []string{"argument", ":3"}},
		{"a directory twice", inStore("persist /a\npersist off"), []string{"persist already specified", ":4"}},
		{"a meter with an argument", "llm {\nmeter on\n}", []string{"argument", ":2"}},
		{"trust in nothing", inMeter("trust_duration"), []string{"argument", ":3"}},
		{"trust in a header that says neither", inMeter("trust_duration X-Length"), []string{`"X-Length"`, "audio or video", ":3"}},
		{"an unknown word of the meter", inMeter("max_bodies 5"), []string{"unrecognized subdirective 'max_bodies'", ":3"}},
		{"a word without an argument", inMeter("max_body"), []string{"argument", ":3"}},
		{"a word with two arguments", inMeter("max_body 1 MiB"), []string{"argument", ":3"}},
		{"a word twice", inMeter("lease 1m\nlease 2m"), []string{"lease already specified", ":4"}},
		{"a size that is none", inMeter("max_body big"), []string{"max_body 'big'", "64MiB", ":3"}},
		{"a size of zero", inMeter("max_body 0"), []string{"max_body '0'", ":3"}},
		{"a negative size", inMeter("max_buffered -1MB"), []string{"max_buffered '-1MB'", ":3"}},
		{"a size beyond all memory", inMeter("max_buffered 9PiB"), []string{"max_buffered '9PiB'", ":3"}},
		{"another word for ask_usage", inMeter("ask_usage yes"), []string{"ask_usage 'yes'", "on, off", ":3"}},
		{"a drain that is none", inMeter("drain on"), []string{"drain 'on'", "off", "2s", ":3"}},
		{"a drain of nothing", inMeter("drain 0s"), []string{"drain '0s'", ":3"}},
		{"a negative drain", inMeter("drain -1s"), []string{"drain '-1s'", ":3"}},
		{"a lease that is none", inMeter("lease soon"), []string{"lease 'soon'", "90s", ":3"}},
		{"a short lease", inMeter("lease 10ms"), []string{"lease 10ms", "shorter than a second", ":3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseGlobal(caddyfile.NewTestDispenser(tc.text), nil)
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

func TestGlobalOptionStandsOnce(t *testing.T) {
	v, err := parseGlobal(caddyfile.NewTestDispenser("llm"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseGlobal(caddyfile.NewTestDispenser("llm"), v); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("got %v", err)
	}
}
