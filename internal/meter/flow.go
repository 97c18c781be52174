package meter

import "sync"

// figures are what is reckoned when a call is admitted, and when it ends. Nothing that
// outlives it sees them, so their memory is used again.
type figures struct {
	result Outcome
	priced Priced    // as it was asked for, or in the end as it was made
	quote  quotation // of the former
}

var figuresPool = sync.Pool{New: func() any { return new(figures) }}

// reckon sees to it that there are figures.
func (c *Call) reckon() {
	if c.figures == nil {
		c.figures = figuresPool.Get().(*figures)
	}
}

// forget gives the memory of the figures back. It may be called again.
func (c *Call) forget() {
	if f := c.figures; f != nil {
		c.figures, c.foreseen.priced = nil, false
		*f = figures{}
		figuresPool.Put(f)
	}
}

// flows notes that a stream has begun as the answer to the call. There may be many under way,
// each for minutes, so that the call holds nothing meanwhile that it does not need: neither
// figures nor, if that has been sent, the body of its request. The budget of bodies keeps
// its part: reverse_proxy may hold what it has read.
func (c *Call) flows() {
	c.forget()
	if c.again || c.attempts.n > 0 || c.replaced {
		return // it may be sent once more, or read
	}
	if body, ok := c.put.(interface{ spent() bool }); ok && body.spent() {
		c.letGo()
		c.sent = nil
		if c.put != &c.reader {
			c.reader.reset(nil) // what took its place was sent
		}
		if c.lent != nil {
			c.lent.giveBack()
		}
	}
}
