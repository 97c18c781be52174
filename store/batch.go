package store

import "time"

// Batch is what calls of one entity have used while the store that they are counted
// in could not be reached, for a store that takes that afterwards.
type Batch struct {
	Entity Entity
	// Origin is the process that made the batch, 16 hexadecimal digits.
	Origin string
	// Seq rises with each batch of an origin. It is near the Unix time in microseconds
	// at which the batch was made.
	Seq int64
	// At is when it was used. It is charged to the windows that At lies in, of rolling
	// windows also if it is the one before the current; windows that are over are
	// left alone.
	At time.Time
	// Lines name each rule at most once. What is negative is given back, of what was
	// charged in the same window; a token bucket gets it back up to full.
	Lines []Amount
}

// Amount is what is charged to one counter.
type Amount struct {
	Rule   *Rule
	Amount int64
}
