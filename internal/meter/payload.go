package meter

import (
	"bytes"
	"io"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// payload is a body that goes on. One that asks for another model than the client's is the
// same memory but for the name: fallbacks copy no body, however many there are.
type payload struct {
	body  []byte   // as it would be with the client's model
	parts [][]byte // what goes on in its place, piece by piece; nil if it is body
}

// size is the length of what goes on, in bytes.
func (p *payload) size() int64 {
	if p.parts == nil {
		return int64(len(p.body))
	}
	n := 0
	for _, part := range p.parts {
		n += len(part)
	}
	return int64(n)
}

// reader reads it from the beginning.
func (p *payload) reader() io.Reader {
	if p.parts == nil {
		b := new(sentBody)
		b.reset(p.body)
		return b
	}
	readers := make([]io.Reader, len(p.parts))
	for i, part := range p.parts {
		readers[i] = bytes.NewReader(part)
	}
	return io.MultiReader(readers...)
}

// asking is the payload with another model in it; ok is false where it names none.
func (p *payload) asking(model string) (other payload, ok bool) {
	before, name, after, ok := usage.SetModel(p.body, model)
	return payload{p.body, [][]byte{before, name, after}}, ok
}
