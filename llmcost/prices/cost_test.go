package prices

import (
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/costcase"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// costCase is a call whose exact cost is known.
type costCase struct{ *costcase.Case }

func costCases(tb testing.TB) (cases []costCase) {
	tb.Helper()
	for _, c := range costcase.Read(tb, filepath.Join("testdata", "cost.json")) {
		cases = append(cases, costCase{c})
	}
	return cases
}

// call is the case as a gateway sees it: its request and its answer are read, not
// copied.
func (c *costCase) call(t *testing.T) *Call {
	t.Helper()
	header := http.Header{"Content-Type": {"application/json"}}
	endpoint := usage.Identify(http.MethodPost, &url.URL{Path: c.Path()}, header)
	q, err := usage.ParseRequest(endpoint, header, c.Body(t))
	if err != nil {
		t.Fatal(err)
	}
	r := usage.NewResponse()
	defer r.Release()
	r.Expect(q)
	r.Start(http.StatusOK, header)
	r.Write(c.Answer(t))
	report := r.Close(true)
	call := &Call{
		Provider: c.Provider, API: endpoint.API, Requested: c.Model, Served: report.Model,
		Usage: report.Usage, Other: report.Other, Terms: report.Terms, Hints: q.Hints, At: c.At,
	}
	if c.API == "batch_line" {
		call.Terms.ServiceTier = "batch"
	}
	return call
}

// book has the case's prices alone.
func (c *costCase) book(t *testing.T) *Book {
	t.Helper()
	if c.Key == "" {
		return mustBook(t, nil, Options{})
	}
	l, err := ParseLiteLLM(c.Table(t))
	if err != nil || len(l.Faults) > 0 {
		t.Fatal(err, l.Faults)
	}
	return mustBook(t, NewTable(time.Time{}, l.Rows), Options{})
}

func mustBook(tb testing.TB, table *Table, o Options) *Book {
	tb.Helper()
	b, err := NewBook(table, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestCallsCostWhatTheirProvidersBill(t *testing.T) {
	for _, c := range costCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			got := c.book(t).Price(c.call(t))
			if got.USD.String() != c.Want {
				t.Errorf("got %s, want %s: %+v", got.USD, c.Want, got)
			}
			want := Calculated
			if c.Reported != "" {
				want = Reported
			}
			if got.Status != want {
				t.Errorf("got %s, want %s: %s", got.Status, want, got.Why)
			}
			if got.Approx {
				t.Errorf("approximate: %s", got.Why)
			}
		})
	}
}
