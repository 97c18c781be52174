package llmretry

import (
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// answer is a provider's that is kept from the client.
type answer struct {
	status int
	failed int // what it stands for, where it is an error under status 200
	header http.Header
	body   []byte
	again  time.Time // when the provider has room again; zero if it does not say
	heard  *meter.Lost

	passage *meter.Passage
}

// lesson is what an attempt that failed says of the next one.
type lesson struct {
	wait     time.Duration
	asked    bool // the provider asks for the wait
	hopeless bool // waiting does not help
}

// keep keeps the answer of the attempt that has just failed, with the status that it
// stands for.
func (t *tries) keep(failed int) {
	g, now := t.gate, time.Now()
	if t.kept != nil {
		t.call.Lose(t.kept.heard)
	}
	a := &answer{status: g.status, failed: failed, header: g.header, body: g.held, passage: g.passage}
	g.follow()
	a.heard = t.call.Hear(g.status, g.header, g.held)
	t.last = lesson{hopeless: hopeless(a.header, a.body)}
	if t.last.wait, t.last.asked = asked(a.header, a.body, now); t.last.asked {
		a.again = now.Add(t.last.wait)
	}
	t.kept = a
}

// send sends an answer that was kept. How long to wait is told anew: some of it has passed.
func (a *answer) send(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	maps.Copy(h, a.header)
	delete(h, "Trailer")
	if !a.again.IsZero() {
		left := max(time.Until(a.again), time.Millisecond)
		h.Set("Retry-After", strconv.FormatInt(int64((left+time.Second-1)/time.Second), 10))
		if h.Get("Retry-After-Ms") != "" {
			h.Set("Retry-After-Ms", strconv.FormatInt(left.Milliseconds(), 10))
		}
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may have gone; there is nothing else to tell it
}
