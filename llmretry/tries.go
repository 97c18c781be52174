package llmretry

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// tries are the attempts of one call. It is the handler behind llm_retry, as the meter
// sees it, and runs again if the meter has to.
type tries struct {
	h    *Handler
	call *meter.Call
	next caddyhttp.Handler

	caller   *consumer
	saved    *meter.Saved
	deadline time.Time // of the client; zero if it has none
	creates  bool      // a second attempt may have what the first one has begun done twice
	gate     *gate     // of the last attempt
	kept     *answer   // the last that the client did not get
	err      error     // of the last attempt that had no answer
	erred    *meter.Passage
	last     lesson
	blocked  time.Duration // the shortest wait of a route's breaker
	left     bool          // the client has gone
	doubtful bool          // an answer is held back, and the consumer not judged by it

	consumer, route func(error) // are told how it ended; nil if nobody is
}

// errCut is the error of an answer that ended before the client had anything of it.
var errCut = errors.New("the upstream broke its answer off")

const (
	// statusClientGone is what reverse_proxy notes when the client has hung up.
	statusClientGone = 499
	// statusOverloaded is Anthropic's for a service without room.
	statusOverloaded = 529
)

func (t *tries) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	h := t.h
	*t = tries{h: h, call: t.call, next: t.next, caller: h.consumers.get(consumerOf(r), time.Now())}
	held, err := t.call.Hold(r)
	if f := limit.RefusalOf(err); f != nil {
		return h.refuse(w, r, t.call, f)
	}
	if err != nil {
		t.call.Refused(r, id)
		return err
	}
	if h.Breaker != nil && t.caller.name != nobody { // asked when the body is there: a slow upload must not hold a trial
		done, _, wait := t.caller.breaker(h.Breaker).allow()
		if done == nil {
			return h.refuse(w, r, t.call, open(http.StatusTooManyRequests, wait))
		}
		t.consumer = done
		defer t.judgeLate()
	}
	if t.call.Endpoint.Class == usage.Spending { // what costs nothing is no title to retries
		h.budget.call()
		t.caller.retries.call()
	}
	if !held {
		told(&t.consumer, errUnknown) // nobody sees how it ends
		t.call.Tried(h.routes[0].name)
		return t.next.ServeHTTP(w, r)
	}
	t.saved, t.deadline, t.creates = t.call.Save(w, r), deadline(r, time.Now()), t.call.Creates(r)
	defer func() { // also of a panic
		if t.kept != nil {
			t.call.Lose(t.kept.heard)
		}
	}()
	for i := range h.routes {
		if done, err := t.way(w, r, i); done {
			return err
		}
	}
	return t.giveUp(w, r)
}

// nobody is the consumer of calls whose user is not known. They are many perhaps, and not
// one that can be stopped.
const nobody = ""

// consumerOf is whose breaker a call counts for: that of its application, else of its key,
// else of the user whom another authenticator names.
func consumerOf(r *http.Request) string {
	if name := meter.Var(r, meter.VarApplication); name != "" {
		return name
	}
	if id := meter.Var(r, meter.VarKeyID); id != "" {
		return "\x00key " + id
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		if user, _ := repl.GetString("http.auth.user.id"); user != "" {
			return "\x00user " + user
		}
	}
	return nobody
}

// way tries a route. It is done if the client has its answer, or is to have the error.
func (t *tries) way(w http.ResponseWriter, r *http.Request, i int) (done bool, err error) {
	next, most := t.next, t.h.Attempts
	if i > 0 {
		if !t.goesOn(r, 0) {
			return false, nil
		}
		next, most = t.h.routes[i].compile(t.next), 1
	}
	for n := 1; ; n++ {
		if done, err = t.once(w, r, i, n, next); done || n == most || !t.wait(r, n) {
			return done, err
		}
	}
}

// reroute has the model of a fallback asked for, if that can be, and can be charged.
func (t *tries) reroute(r *http.Request, ro *route) bool {
	why := ""
	switch p := t.call.Pricer(); {
	case !t.call.Reroute(r, ro.model):
		why = "the request cannot name another model"
	case ro.pricing || p == nil || !p.Denies(t.call.Budgeted()) || limit.Priceable(t.call, p, ""):
		return true
	default:
		why = "there is no price for its model"
	}
	ro.warn.Do(func() {
		t.h.logger.Warn("a fallback is passed over", zap.String("route", ro.name), zap.String("model", ro.model), zap.String("reason", why))
	})
	return false
}

// once makes the n-th attempt by a route. It is done unless another one may do better.
func (t *tries) once(w http.ResponseWriter, r *http.Request, i, n int, next caddyhttp.Handler) (done bool, err error) {
	ro := &t.h.routes[i]
	t.last = lesson{hopeless: true}
	g := &gate{t: t, ResponseWriter: w, detour: i > 0}
	t.gate = g
	g.passage = t.call.Attempt(t.saved, g, r)
	if ro.model != "" && !t.reroute(g.passage.Request(), ro) {
		return false, nil
	}
	if ro.breaker != nil {
		var own *private
		if t.caller.name != nobody {
			own = t.caller.route(t.h.Breaker, i)
		}
		tell, wait := ro.breaker.allow(t.caller.name, own)
		if tell == nil {
			if t.blocked == 0 || wait < t.blocked {
				t.blocked = wait
			}
			return false, nil
		}
		t.route = tell
		defer func() { told(&t.route, errUnknown) }()
	}
	t.call.Tried(ro.name)
	switch {
	case i > 0:
		metrics.Process.Retried(metrics.RetryFallback)
	case n > 1:
		metrics.Process.Retried(metrics.RetryAgain)
	}
	return t.attempt(r, next)
}

// attempt runs the handlers behind, and judges what they came to.
func (t *tries) attempt(r *http.Request, next caddyhttp.Handler) (done bool, err error) {
	g, noted := t.gate, false
	defer func() {
		if !noted { // it panics
			t.unanswered(t.gone(r), nil)
		}
		if done || g.mode == passing {
			g.passage.Join()
		}
	}()
	cut, err := t.run(r, next)
	if cut {
		err = caddyhttp.Error(http.StatusBadGateway, errCut)
	}
	noted = true
	gone := t.gone(r) // once, or a request might be charged as that of one who left and of one who did not
	sent := t.unanswered(gone, err)
	switch {
	case g.mode == passing:
		return true, err
	case err != nil:
		if g.holds() {
			t.call.Unsay(t.saved, g.ResponseWriter) // a route for errors writes another answer
		}
		status, again := t.retryableError(err, sent)
		if gone {
			return true, err
		}
		t.judgeRoute(status)
		t.err, t.erred, t.last = err, g.passage, lesson{}
		if !again {
			t.judge(status)
			t.call.Idle()
		}
		return !again, err
	case g.mode == waiting:
		return true, nil // nobody answers; net/http does
	}
	status, err := g.finish()
	if status == 0 {
		return true, err
	}
	t.judgeRoute(status)
	t.keep(status)
	return false, nil
}

// run runs the handlers behind. An answer that breaks off before the client has anything of
// it is a failure like others; reverse_proxy tells so by a panic.
func (t *tries) run(r *http.Request, next caddyhttp.Handler) (cut bool, err error) {
	defer func() {
		if !t.gate.holds() || t.gone(r) {
			return
		}
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler { //nolint:errorlint // it is thrown as it is
				panic(v)
			}
			cut = true
		}
	}()
	return false, next.ServeHTTP(t.gate, t.gate.passage.Request())
}

// unanswered has those requests of an attempt charged that were sent and had no answer, and
// tells whether there were any.
func (t *tries) unanswered(gone bool, err error) bool {
	g, e := t.gate, meter.Answered
	switch {
	case gone && (g.mode == waiting || g.status == statusClientGone):
		e = meter.Left
		if !g.passage.Sent() {
			t.call.Idle()
		}
	case err != nil && g.mode == peeking:
		e = meter.CutOff
	case err != nil && g.mode == waiting:
		e = meter.Failed
	}
	n := g.passage.Unanswered(e, err)
	t.call.Miss(n)
	return n > 0
}

// wait waits for attempt n+1, and is false if there is to be none.
func (t *tries) wait(r *http.Request, n int) bool {
	most, d := time.Duration(t.h.MaxWait), t.last.wait
	switch {
	case t.last.hopeless || t.last.asked && d > most:
		return false
	case t.last.asked:
		d = min(d+rand.N(d/spread+1), most)
	default:
		d = backoff(n+1, most)
	}
	if !t.goesOn(r, d) {
		return false
	}
	if !t.takes(time.Now()) {
		metrics.Process.Retried(metrics.RetryBudget)
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.call.Client(r).Done():
	case <-r.Context().Done(): // the process is about to end
	}
	if t.goesOn(r, 0) {
		return true
	}
	t.h.budget.giveBack()
	t.caller.retries.giveBack()
	return false
}

// takes pays for a retry from the consumer's and of all consumers' budget. What is left for all
// must be more than what the consumer has taken lately: so it gets half of it at most.
func (t *tries) takes(now time.Time) bool {
	own := &t.caller.retries
	taken := own.taken(now)
	if !own.take(now, 0) {
		return false
	}
	if !t.h.budget.take(now, taken) {
		own.giveBack()
		return false
	}
	return true
}

// goesOn tells whether somebody will still want an answer that is asked for after a wait.
func (t *tries) goesOn(r *http.Request, wait time.Duration) bool {
	if t.gone(r) {
		t.left = true
		return false
	}
	return r.Context().Err() == nil && (t.deadline.IsZero() || time.Now().Add(wait).Before(t.deadline))
}

// gone tells whether the client has gone.
func (t *tries) gone(r *http.Request) bool { return t.call.Client(r).Err() != nil }

// giveUp gives the client the provider's last answer, or else the last error.
func (t *tries) giveUp(w http.ResponseWriter, r *http.Request) error {
	metrics.Process.Retried(metrics.RetryGivenUp)
	t.call.GiveUp(t.saved, w, r)
	if t.left {
		t.call.Idle()
	}
	switch a := t.kept; {
	case a != nil:
		t.call.Take(a.heard)
		t.kept = nil
		a.passage.Publish()
		t.judge(a.failed)
		a.send(w)
		return nil
	case t.left:
		w.WriteHeader(statusClientGone) // no route for errors is to begin another call
		return nil
	case t.err != nil:
		t.call.Idle()
		t.erred.Publish()
		return t.err
	default:
		return t.h.refuse(w, r, t.call, open(http.StatusServiceUnavailable, t.blocked))
	}
}

// open is the answer of a breaker.
func open(status int, wait time.Duration) *limit.Refusal {
	return &limit.Refusal{
		Status: status, Code: "retry_breaker_open", RetryAfter: wait,
		Message: "calls like this one have failed too often; this gateway does not pass them on at this moment",
	}
}
