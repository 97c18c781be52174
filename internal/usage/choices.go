package usage

import "math/bits"

// maxChoices bounds the choices told apart; no API offers more.
const maxChoices = 256

// choiceSet is which choices of an answer came, and which of them ended.
type choiceSet struct {
	came, ended [maxChoices / 64]uint64
}

// note takes a piece of a choice. One of a number beyond belief never ends.
func (c *choiceSet) note(i int64, ended bool) {
	if i < 0 || i >= maxChoices {
		i, ended = maxChoices-1, false
	}
	bit := uint64(1) << (i % 64)
	c.came[i/64] |= bit
	if ended {
		c.ended[i/64] |= bit
	}
}

// allEnded tells whether all choices that came have ended, and as many as expected. No
// choices are those of APIs that have one answer.
func (c *choiceSet) allEnded(expected int64) bool {
	n := 0
	for i := range c.came {
		if c.came[i] != c.ended[i] {
			return false
		}
		n += bits.OnesCount64(c.came[i])
	}
	return n == 0 || int64(n) >= expected
}

// noteChoices takes the choices of a document: where they are, their numbers and why
// they ended. A choice without a number is the one at its place.
func (t *tally) noteChoices(v view, choice, index, reason int) {
	v.each(choice, func(element int32, kind byte, _ []byte) {
		if kind != typeObject {
			return
		}
		i := int64(element) - 1
		if n, ok := countOf(v.at(index, element)); ok {
			i = n
		}
		t.choices.note(i, v.element(reason, element) == typeString)
	})
}
