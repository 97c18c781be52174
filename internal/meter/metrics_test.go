package meter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
)

// counted is what a meter counted, by metric and values of labels: `llm_x_total a b`.
func counted(t *testing.T, m *Meter) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := m.metrics.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			key := []string{f.GetName()}
			for _, l := range metric.GetLabel() {
				key = append(key, l.GetValue())
			}
			got[strings.Join(key, " ")] = metric.GetCounter().GetValue()
		}
	}
	return got
}

func TestCallsAreCountedWhenTheyEnd(t *testing.T) {
	for _, tt := range []struct {
		name   string
		app    string
		keyID  string
		refuse int
		counts bool
		next   handler
		want   map[string]float64
	}{
		{
			name: "of a key", app: "app-a", keyID: "key-a", next: answer(200, document, chatAnswer),
			want: map[string]float64{
				"llm_requests_total openai.chat app-a 2xx":        1,
				"llm_tokens_total app-a input gpt-5":              9,
				"llm_tokens_total app-a output gpt-5":             12,
				"llm_usage_source_total reported":                 1,
				"llm_estimate_expected_tokens_total input gpt-5":  promptTokens,
				"llm_estimate_expected_tokens_total output gpt-5": unknownOutput,
				"llm_estimate_reported_tokens_total input gpt-5":  9,
				"llm_estimate_reported_tokens_total output gpt-5": 12,
				"llm_requests_total openai.chat app-a refused":    0,
			},
		},
		{
			name: "of an application that no key named", app: "from-a-header", next: answer(200, document, chatAnswer),
			want: map[string]float64{
				"llm_requests_total openai.chat other 2xx": 1,
				"llm_tokens_total other input gpt-5":       9,
			},
		},
		{
			name: "of nobody, without usage", next: answer(200, document, `{"choices":[{"message":{"content":"Hello there"}}]}`),
			want: map[string]float64{
				"llm_requests_total openai.chat default 2xx":     1,
				"llm_tokens_total default input other":           promptTokens, // nothing proves the model
				"llm_usage_source_total estimated":               1,
				"llm_estimate_reported_tokens_total input other": 0,
			},
		},
		{
			name: "refused", app: "app-a", keyID: "key-a", refuse: 429,
			want: map[string]float64{
				"llm_requests_total openai.chat app-a refused": 1,
				"llm_usage_source_total none":                  0,
			},
		},
		{
			name: "refused by the provider", next: answer(429, document, `{"error":{}}`),
			want: map[string]float64{
				"llm_requests_total openai.chat default 4xx": 1,
				"llm_usage_source_total none":                1,
			},
		},
		{
			name: "that failed", next: func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(502, nil) },
			want: map[string]float64{"llm_requests_total openai.chat default 5xx": 1},
		},
		{
			name: "counted as a request only", counts: true, next: answer(200, document, chatAnswer),
			want: map[string]float64{
				"llm_requests_total openai.chat default 2xx": 1,
				"llm_usage_source_total none":                1,
				"llm_tokens_total default input gpt-5":       0,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New()
			m.metrics = metrics.New()
			l := newLimiter(m, "tier")
			l.refuse, l.counts = tt.refuse, tt.counts
			r := newRequest("POST", chatPath, plainBody)
			for name, v := range map[string]string{VarApplication: tt.app, VarKeyID: tt.keyID} {
				if v != "" {
					caddyhttp.SetVar(r.Context(), name, v)
				}
			}
			_ = l.ServeHTTP(httptest.NewRecorder(), r, tt.next) // some are to fail
			got := counted(t, m)
			for key, want := range tt.want {
				if got[key] != want {
					t.Errorf("%s is %v, want %v", key, got[key], want)
				}
			}
		})
	}
}

func TestAbortedCallIsCountedOnce(t *testing.T) {
	m := New()
	m.metrics = metrics.New()
	inner, outer := newLimiter(m, "inner"), newLimiter(m, "outer")
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(streamBody))
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared as net/http does
			t.Errorf("recovered %v", v)
		}
		got := counted(t, m)
		if n := got["llm_requests_total openai.chat default 2xx"]; n != 1 {
			t.Errorf("counted %v times", n)
		}
		if n := got["llm_tokens_total default output other"]; n != unknownOutput {
			t.Errorf("%v tokens of output, want %v", n, unknownOutput)
		}
	}()
	_ = outer.ServeHTTP(httptest.NewRecorder(), r, handler(func(w http.ResponseWriter, r *http.Request) error {
		return inner.ServeHTTP(w, r, handler(func(w http.ResponseWriter, r *http.Request) error {
			_ = answer(200, sse, event)(w, r)
			cancel()
			panic(http.ErrAbortHandler)
		}))
	}))
}
