package metrics

// Retry is what becomes of a call whose attempt failed.
type Retry int

// The kinds of them.
const (
	RetryAgain    Retry = iota // the same route is tried again
	RetryFallback              // another route is tried
	RetryBudget                // there have been too many
	RetryGivenUp               // the client gets the failure
)

var retryNames = [...]string{RetryAgain: "again", RetryFallback: "fallback", RetryBudget: "budget", RetryGivenUp: "given_up"}

// Retried counts what becomes of a call whose attempt failed.
func (s *Set) Retried(r Retry) { s.retried[r].Inc() }

// Breaker is whose circuit breaker is meant.
type Breaker int

// The kinds of them.
const (
	BreakerConsumer Breaker = iota // of a consumer's calls, or of its attempts by a route
	BreakerRoute                   // of a route, for all consumers
)

var breakerNames = [...]string{BreakerConsumer: "consumer", BreakerRoute: "route"}

// BreakerState is what a circuit breaker has come to.
type BreakerState int

// The states of them.
const (
	BreakerOpen     BreakerState = iota // nothing passes
	BreakerHalfOpen                     // one at a time tries
	BreakerClosed                       // all passes
)

var stateNames = [...]string{BreakerOpen: "open", BreakerHalfOpen: "half_open", BreakerClosed: "closed"}

// BreakerChanged counts that a circuit breaker has come to a state.
func (s *Set) BreakerChanged(b Breaker, to BreakerState) { s.breaks[b][to].Inc() }
