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
