package llmui

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// sample is a reading of the metrics, of counters that only rise.
type sample struct {
	consumers map[string]usage
	limiters  map[string]float64 // refusals that were no shadows, by instance
}

// parseMetrics reads what the admin endpoint answers.
func parseMetrics(resp *http.Response) (*sample, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics: the admin endpoint answers %s", resp.Status)
	}
	return parseSample(io.LimitReader(resp.Body, maxAnswer))
}

// parseSample reads Prometheus's text format, as much of it as client libraries write: a
// series a line. Families that are not asked for are passed over.
func parseSample(r io.Reader) (*sample, error) {
	s := &sample{consumers: make(map[string]usage), limiters: make(map[string]float64)}
	of := func(consumer string, u usage) {
		sum := s.consumers[consumer]
		sum.add(u)
		s.consumers[consumer] = sum
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		family, rest, ok := strings.Cut(lines.Text(), "{")
		if !ok || !strings.HasPrefix(family, "llm_") {
			continue
		}
		switch family {
		case "llm_cost_usd_total", "llm_tokens_total", "llm_requests_total", "llm_refusals_total":
		default:
			continue
		}
		l, v, err := parseSeries(rest)
		if err != nil {
			return nil, fmt.Errorf("reading the metrics: %s: %w", family, err)
		}
		switch family {
		case "llm_cost_usd_total":
			of(l["consumer"], usage{USD: v})
		case "llm_tokens_total":
			// the other kinds are parts of these
			if l["kind"] == "input" || l["kind"] == "output" {
				of(l["consumer"], usage{Tokens: v})
			}
		case "llm_requests_total":
			u := usage{Calls: v}
			if l["status"] == "refused" {
				u.Refused = v
			}
			of(l["consumer"], u)
		case "llm_refusals_total":
			if l["shadow"] != "true" {
				s.limiters[l["limiter"]] += v
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	return s, nil
}

var errSeries = errors.New("a line is no series")

// parseSeries reads what follows the brace: labels, a value, and maybe a time.
func parseSeries(s string) (labels map[string]string, v float64, err error) {
	labels = make(map[string]string)
	for {
		s = strings.TrimLeft(s, ", ")
		if rest, ok := strings.CutPrefix(s, "}"); ok {
			s = rest
			break
		}
		name, rest, ok := strings.Cut(s, `="`)
		if !ok {
			return nil, 0, errSeries
		}
		value, rest, ok := unquote(rest)
		if !ok {
			return nil, 0, errSeries
		}
		labels[name], s = value, rest
	}
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return nil, 0, errSeries
	}
	v, err = strconv.ParseFloat(fields[0], 64)
	// JSON has no infinity, and no counter comes near this
	if err != nil || !(v >= 0 && v < 1e100) {
		return nil, 0, errSeries
	}
	return labels, v, nil
}

// unquote reads up to a quotation mark that no backslash stands before.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) {
				return "", "", false
			}
			if s[i] == 'n' {
				b.WriteByte('\n')
			} else {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
