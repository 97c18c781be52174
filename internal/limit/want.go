package limit

import (
	"math"
	"net/http"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// wants is what a call wants of an instance, by what it counts.
type wants struct {
	// input and output are what to hold for the call: what it is expected to use,
	// or in strict mode what it uses at worst.
	input, output, total int64
	// writeCap is set for a call that names no cap where there must be one. output
	// is then the least that makes sense, and more what else there may be.
	writeCap bool
	// capless is set for a call whose output is bounded without a cap: pictures.
	capless bool
	choices int64
	more    int64
	// quote is what it may cost; nil where no dollars are counted.
	quote *quote
	// room is where to put it; nil is anywhere.
	room *quote
	// media is what it has of pictures, recordings and videos.
	media media
	// reports is set if none of the rules can refuse it.
	reports bool
}

// leastCap and mostCap bound the cap that a call is given which names none, in
// tokens for each choice. All models in use take the larger.
const (
	leastCap = 16
	mostCap  = 4096
)

// mostPictures is how many a call holds of a limit that all callers share. Vendors make no
// more in one call.
const mostPictures = 10

// uncounted tells whether a call counts as a request and nothing else: it costs
// nothing, or it is let pass though its use will not be seen.
func uncounted(call *meter.Call) bool {
	return call.Endpoint.Class == usage.Free || call.Endpoint.Class == usage.Unmetered
}

// want works out what a call wants of rules. It is refused where the worst case must be
// known and is not.
func (l *Limiter) want(call *meter.Call, rules []*rule) (wants, *Refusal) {
	w, metered, output := wants{reports: true}, false, false
	for _, ru := range rules {
		w.reports = w.reports && ru.shadow
		metered = metered || ru.metered
		output = output || ru.metered && ru.unit != InputTokens
	}
	if !metered || uncounted(call) || l.config.Mode == ChargeAfter {
		return w, nil
	}
	if l.config.Mode == Strict {
		return l.worst(call, w, output)
	}
	if l.shared {
		// what calls usually use, whatever this one asks for: nobody may lock others
		// out by naming a huge cap
		w.input, w.output, w.total = call.Typical()
		return w, nil
	}
	w.input, w.output = call.ExpectedInput(), call.ExpectedOutput()
	w.total = add(w.input, w.output)
	return w, nil
}

// worst is the most that a call can use. output is set if some rule counts output.
func (l *Limiter) worst(call *meter.Call, w wants, output bool) (wants, *Refusal) {
	q := call.Request
	if q.External {
		return wants{}, notBounded(q.ExternalWhat)
	}
	w.input, w.output, w.choices = q.PromptWorst(), q.OutputCap(), max(q.Choices, 1)
	if (w.output == 0 || q.CapImplied) && output && call.Endpoint.API.Generates() {
		most, bounded := call.OutputWorst()
		switch {
		case bounded:
			w.output, w.capless = most, true
		case q.API != usage.OpenAIAudio:
			w.writeCap = true
			w.output = leastCap * w.choices
			w.more = (mostCap - leastCap) * w.choices
		case !l.dollars:
			return wants{}, notBounded(sound(q))
		default: // what it is billed by, the quote tells
		}
	}
	w.total = add(w.input, w.output)
	return w, nil
}

// sound is what calls of the audio API depend on.
func sound(q *usage.Request) string {
	if q.Hints.Characters > 0 {
		return "the length of the speech"
	}
	return "the length of a recording"
}

func notBounded(what string) *Refusal {
	return &Refusal{
		Status: http.StatusBadRequest, Code: "request_not_bounded",
		Message: "this gateway admits only calls whose size is known beforehand, and this one depends on " + what,
	}
}

// take is what to take of one rule.
func (l *Limiter) take(ru *rule, w *wants) store.Take {
	t := store.Take{Rule: ru.store, Limit: ru.limit, Need: 1, Shadow: ru.shadow}
	more := w.more
	switch ru.unit {
	case Requests:
		t.Charge = 1
		return t
	case Concurrent:
		t.Hold = 1
		return t
	case Images, AudioSeconds, VideoSeconds:
		t.Hold = w.media.of(ru.unit)
		t.Need = max(t.Hold, 1)
		if l.shared && ru.unit == Images && l.config.Mode != Strict {
			// nobody may lock others out by asking for a thousand
			t.Hold = min(t.Hold, mostPictures)
		}
		return t
	case USD:
		t.Hold, more = 0, 0
		if w.quote != nil {
			t.Hold, more = w.quote.hold, w.quote.more
		}
	case InputTokens:
		t.Hold = w.input
	case OutputTokens:
		t.Hold = w.output
	default:
		t.Hold = w.total
	}
	switch l.config.Mode {
	case ChargeAfter:
		t.IgnoreHeld = true
	case Reserve: // any room will do
	case Strict:
		t.Need = max(t.Hold, 1)
		if more > 0 && ru.unit != InputTokens {
			t.HoldMost = add(t.Hold, more)
		}
	}
	return t
}

// capWithin is the cap for each choice that all rules have room for.
func (w *wants) capWithin(e *entry) int64 {
	most := w.output + w.more
	for i, ru := range e.rules {
		if ru.shadow {
			continue // one that only reports must not make answers shorter
		}
		switch ru.unit {
		case OutputTokens:
			most = min(most, e.results[i].Got)
		case Tokens, UncachedTokens:
			most = min(most, e.results[i].Got-w.input)
		case USD:
			if e.quote != nil && e.quote.known {
				most = min(most, e.quote.outputWithin(e.results[i].Got, most/w.choices)*w.choices)
			}
		default: // counts no output
		}
	}
	return most / w.choices
}

// fits is the largest cap for each choice with which the call is within a limit; 0 if
// there is none.
func (w *wants) fits(u Unit, limit int64) int64 {
	choices := max(w.choices, 1)
	switch u {
	case InputTokens, Images, AudioSeconds, VideoSeconds:
		return 0
	case OutputTokens:
		return limit / choices
	case USD:
		if w.quote == nil || w.output == 0 || w.capless {
			return 0
		}
		return w.quote.outputWithin(limit, w.output/choices)
	default:
		return (limit - w.input) / choices
	}
}

func capRequired() *Refusal {
	return &Refusal{
		Status: http.StatusBadRequest, Code: "output_cap_required",
		Message: "this gateway admits only calls with a cap on their output, such as max_tokens",
	}
}

// add saturates.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
