package redis

import (
	"errors"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// The first words of the script's replies.
const (
	applied   = "A"
	shortly   = "V" // it was applied, and the counters are as they were stored
	before    = "D" // it was applied before
	passed    = "F" // a later one was
	otherTime = "T" // the edges of windows that were sent are not those around now
)

// movesMost is how often a batch is sent anew at once because of the clock.
const movesMost = 2

// errNotUnderstood is what an operator is told. The batch is sent again under the
// same number, since it may have been applied.
var errNotUnderstood = errors.New("counting in Redis: a reply is not understood; is there a proxy that changes it?")

// errOvertaken is what an operator is told of a batch of which it cannot be known
// whether it was applied.
var errOvertaken = errors.New("counting in Redis: a replica was away for longer than its number is kept for it; what it charged last may be missing or doubled")

// reading is what a reply says.
type reading struct {
	verdict string
	// then is the server's time at which the batch was applied, or would be; or the
	// number that the server is at, with passed.
	then  int64
	calls []outcome
}

// outcome is what the script says of a call.
type outcome struct {
	verdict string
	lapse   int64
	then    int64
	// before is set if the batch was applied before; states are of now then, and
	// not those that were found.
	before bool
	found  []found
	// edits is how often its shard had been edited by hand when it was sent.
	edits uint64
}

// found is the state of a counter as the script found it.
type found struct {
	counter.State
	held int64
	// own is set where the entity has a limit of its own.
	own   bool
	limit int64
}

// check fills a result as counter.Check does. What calls hold may be known better than
// when it was found.
func (f *found) check(s counter.State, t *store.Take, held, now int64, res *store.Result) {
	if f.own {
		counter.CheckOwn(s, t, f.limit, held, now, res)
		return
	}
	counter.Check(s, t, held, now, res)
}

// read reads the whole of a reply, so that one which is not understood has had no
// effect here. The error is errReply.
func (b *batch) read(reply string) (reading, error) {
	reply, stored, isShort := strings.Cut(reply, "\n")
	w := words{rest: reply}
	r := reading{verdict: w.next(), then: w.number()}
	switch r.verdict {
	case applied, before:
		r.calls = make([]outcome, len(b.calls))
		for i, c := range b.calls {
			o := outcome{verdict: w.next(), lapse: w.number(), then: r.then, before: r.verdict == before}
			if b.asked[i] {
				o.states(&w, len(c.takes))
			}
			w.bad = w.bad || !o.fits(c)
			r.calls[i] = o
		}
	case shortly:
		if !isShort || len(b.calls) != 1 {
			return reading{}, errReply
		}
		isShort = false
		o := outcome{verdict: w.next(), then: r.then}
		w.bad = w.bad || !o.fits(b.calls[0]) || !o.stored(b.calls[0].takes, stored)
		r.verdict, r.calls = applied, []outcome{o}
	case passed, otherTime:
	default:
		w.bad = true
	}
	if w.bad || w.rest != "" || isShort {
		return reading{}, errReply
	}
	return r, nil
}

// fits tells whether a verdict is one of the call: 0, or 1 and what was got of each
// take that asked for a range.
func (r *outcome) fits(c *call) bool {
	word, gots, ranged := strings.Cut(r.verdict, ":")
	if word == "0" {
		return !ranged
	}
	if len(c.takes) == 0 { // its process had it sent, and is gone
		return word == "1"
	}
	n := 0
	for i := range c.takes {
		if rangeOf(&c.takes[i]) {
			n++
		}
	}
	if word != "1" || ranged != (n > 0) || ranged && strings.Count(gots, ":") != n-1 {
		return false
	}
	for got := range strings.SplitSeq(gots, ":") {
		if _, err := strconv.ParseInt(got, 10, 64); err != nil && ranged {
			return false
		}
	}
	return true
}

func (r *outcome) states(w *words, n int) {
	r.found = make([]found, n)
	for i := range r.found {
		f := &r.found[i]
		f.State = counter.State{Start: w.number(), Used: w.number(), Prev: w.number()}
		var held, limit string
		held, limit, f.own = strings.Cut(w.next(), ":")
		f.held = w.parse(held)
		if f.own {
			f.limit = w.parse(limit)
		}
	}
}

// stored reads counters as they were stored, a line each, and brings them to then. It
// returns false if they cannot be.
func (r *outcome) stored(takes []store.Take, lines string) bool {
	r.found = make([]found, len(takes))
	for i := range takes {
		line, rest, more := strings.Cut(lines, "\n")
		if more == (i == len(takes)-1) {
			return false
		}
		lines = rest
		f := &r.found[i]
		if line != "" {
			w := words{rest: line}
			f.State = counter.State{Start: w.number(), Used: w.number(), Prev: w.number()}
			_ = w.number() // for how long it says anything
			for w.rest != "" && !w.bad {
				deadline, n := w.number(), w.number()
				if deadline <= r.then {
					continue
				}
				f.held = counter.Add(f.held, n)
				if r.lapse == 0 || deadline < r.lapse {
					r.lapse = deadline
				}
			}
			if w.bad {
				return false
			}
		}
		f.Roll(takes[i].Rule, r.then)
	}
	return true
}

// words reads a reply, which is numbers and words with a space between any two.
type words struct {
	rest string
	bad  bool
}

func (w *words) next() string {
	word, rest, _ := strings.Cut(w.rest, " ")
	w.rest, w.bad = rest, w.bad || word == ""
	return word
}

func (w *words) number() int64 { return w.parse(w.next()) }

func (w *words) parse(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	w.bad = w.bad || err != nil
	return n
}

// report tells the operator of what calls are not told.
func (s *Store) report(err error) {
	if s.onError != nil {
		s.onError(err)
	}
}
