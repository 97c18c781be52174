package llmui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// sampleEvery is how often the metrics are read.
	sampleEvery = 5 * time.Second
	// maxPoints bounds the history, to a day.
	maxPoints = int(24 * time.Hour / sampleEvery)
	// maxTop is how many consumers are listed by what they spent.
	maxTop = 20
)

// usage is what was used in some time. Dollars are a float: they are for a chart, and
// bills are made of the store's counts.
type usage struct {
	USD     float64 `json:"usd"`
	Tokens  float64 `json:"tokens"`
	Calls   float64 `json:"calls"`
	Refused float64 `json:"refused"`
}

func (u *usage) add(v usage) {
	u.USD += v.USD
	u.Tokens += v.Tokens
	u.Calls += v.Calls
	u.Refused += v.Refused
}

// point is what was used since the point before it.
type point struct {
	At int64 `json:"at"` // Unix milliseconds
	// Gap is set where nothing is known of the time before: the first point after the
	// metrics could not be read. What was used meanwhile is in it.
	Gap bool `json:"gap,omitempty"`
	usage
	Limiters map[string]float64 `json:"limiters,omitempty"` // refusals, by instance
}

// history is what this replica has served since the command began, from its metrics.
type history struct {
	mu        sync.Mutex
	points    []point // the oldest first
	since     time.Time
	consumers map[string]usage // since then
	last      *sample          // nil before the first
	err       error            // why the last reading went wrong
}

func newHistory() *history {
	return &history{consumers: make(map[string]usage)}
}

// add takes a reading. Counters of a Caddy that was restarted begin at zero.
func (h *history) add(at time.Time, s *sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, gap := h.last, h.err != nil
	h.last, h.err = s, nil
	if last == nil {
		h.since = at
		return
	}
	p := point{At: at.UnixMilli(), Gap: gap}
	for name, now := range s.consumers {
		d := now.since(last.consumers[name])
		if d == (usage{}) {
			continue
		}
		p.add(d)
		u := h.consumers[name]
		u.add(d)
		h.consumers[name] = u
	}
	p.Refused = 0 // those of unknown callers, too: a limiter counts each
	for limiter, n := range s.limiters {
		if d := rise(n, last.limiters[limiter]); d > 0 {
			if p.Limiters == nil {
				p.Limiters = make(map[string]float64)
			}
			p.Limiters[limiter] = d
			p.Refused += d
		}
	}
	if len(h.points) == maxPoints {
		h.points = slices.Delete(h.points, 0, 1)
	}
	h.points = append(h.points, p)
}

// since is what came to be after an earlier reading.
func (u usage) since(v usage) usage {
	return usage{rise(u.USD, v.USD), rise(u.Tokens, v.Tokens), rise(u.Calls, v.Calls), rise(u.Refused, v.Refused)}
}

func rise(now, before float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

// miss notes that the metrics could not be read.
func (h *history) miss(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// sampleLoop reads the metrics until the context ends.
func (s *server) sampleLoop(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.takeSample(ctx, now)
		}
	}
}

func (s *server) takeSample(ctx context.Context, now time.Time) {
	resp, err := s.admin.do(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		s.history.miss(err)
		return
	}
	defer resp.Body.Close()
	got, err := parseMetrics(resp)
	if err != nil {
		s.history.miss(err)
		return
	}
	s.history.add(now, got)
}

// topConsumer is a consumer among those that spent most.
type topConsumer struct {
	Consumer string `json:"consumer"`
	usage
}

// showHistory answers with the points after the instant that `after` says, in Unix
// milliseconds.
func (s *server) showHistory(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // all without one
	h := s.history
	h.mu.Lock()
	answer := struct {
		Since  int64         `json:"since,omitempty"` // of the first reading
		Every  int64         `json:"every"`           // milliseconds from point to point
		Points []point       `json:"points"`
		Top    []topConsumer `json:"top"`
		Error  string        `json:"error,omitempty"`
	}{Every: sampleEvery.Milliseconds()}
	if !h.since.IsZero() {
		answer.Since = h.since.UnixMilli()
	}
	if h.err != nil {
		answer.Error = h.err.Error()
	}
	i, _ := slices.BinarySearchFunc(h.points, after+1, func(p point, at int64) int { return cmp.Compare(p.At, at) })
	answer.Points = append([]point{}, h.points[i:]...)
	answer.Top = make([]topConsumer, 0, len(h.consumers))
	for name, u := range h.consumers {
		answer.Top = append(answer.Top, topConsumer{name, u})
	}
	h.mu.Unlock()
	slices.SortFunc(answer.Top, func(a, b topConsumer) int {
		return cmp.Or(cmp.Compare(b.USD, a.USD), cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Consumer, b.Consumer))
	})
	answer.Top = answer.Top[:min(len(answer.Top), maxTop)]
	writeJSON(w, answer)
}
