package llmui

import (
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// sample is a reading of the metrics, of counters that only rise.
type sample struct {
	consumers map[string]usage
	limiters  map[string]float64 // refusals that were no shadows, by instance
}

// parseMetrics reads Prometheus's text format.
func parseMetrics(resp *http.Response) (*sample, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics: the admin endpoint answers %s", resp.Status)
	}
	return parseSample(io.LimitReader(resp.Body, maxAnswer))
}

func parseSample(r io.Reader) (*sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	s := &sample{consumers: make(map[string]usage), limiters: make(map[string]float64)}
	each := func(family string, f func(labels map[string]string, v float64)) {
		for _, m := range families[family].GetMetric() {
			// JSON has no infinity, and no counter comes near this
			if v := m.GetCounter().GetValue(); v >= 0 && v < 1e100 {
				f(labelsOf(m), v)
			}
		}
	}
	of := func(consumer string, u usage) {
		sum := s.consumers[consumer]
		sum.add(u)
		s.consumers[consumer] = sum
	}
	each("llm_cost_usd_total", func(l map[string]string, v float64) {
		of(l["consumer"], usage{USD: v})
	})
	each("llm_tokens_total", func(l map[string]string, v float64) {
		// the other kinds are parts of these
		if l["kind"] == "input" || l["kind"] == "output" {
			of(l["consumer"], usage{Tokens: v})
		}
	})
	each("llm_requests_total", func(l map[string]string, v float64) {
		u := usage{Calls: v}
		if l["status"] == "refused" {
			u.Refused = v
		}
		of(l["consumer"], u)
	})
	each("llm_refusals_total", func(l map[string]string, v float64) {
		if l["shadow"] != "true" {
			s.limiters[l["limiter"]] += v
		}
	})
	return s, nil
}

func labelsOf(m *dto.Metric) map[string]string {
	l := make(map[string]string, len(m.GetLabel()))
	for _, pair := range m.GetLabel() {
		l[pair.GetName()] = pair.GetValue()
	}
	return l
}
