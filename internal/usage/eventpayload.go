package usage

// eventStream reads the messages of an AWS event stream into a response, each as one
// document. The end of a document is held back until the checksum of its message is
// known to be right, so that nothing is believed of a damaged one.
type eventStream struct {
	frames frameReader
	chunk  scanner // of the object around a chunk
	base64 base64Reader
	docs   *Response
	last   [1]byte // of the document so far, held back
	held   bool
}

// chunkPositions are followed in the object around a chunk, which is
// {"bytes":"<base64>","p":"<padding>"}.
var chunkPositions = func() *tree {
	t := newTree()
	t.add([]position{{"bytes", passage}})
	return t
}()

func newEventStream(r *Response) *eventStream {
	e := &eventStream{docs: r}
	e.chunk = newScanner(chunkPositions, func(*document) {})
	e.chunk.sink = func(raw []byte) { e.base64.decode(raw, e.take) }
	return e
}

// reset makes e as good as new.
func (e *eventStream) reset() {
	e.chunk.end()
	e.frames, e.base64.bits, e.base64.escape, e.held = frameReader{}, 1, 0, false
}

// payload takes a part of the payload of a message.
func (e *eventStream) payload(p []byte) {
	switch {
	case e.frames.kind == frameFailure:
	case e.frames.chunk:
		e.chunk.feed(p)
	default:
		e.take(p)
	}
}

// take takes a part of the document.
func (e *eventStream) take(p []byte) {
	if len(p) == 0 {
		return
	}
	if e.held {
		e.docs.feed(e.last[:])
	}
	e.docs.feed(p[:len(p)-1])
	e.last[0], e.held = p[len(p)-1], true
}

// end ends the message, and with it the document.
func (e *eventStream) end() {
	if e.held {
		e.docs.feed(e.last[:])
		e.held = false
	}
	e.chunk.end()
	e.docs.endDocument()
}

// spoil forgets what came of a damaged message.
func (e *eventStream) spoil() {
	e.held = false
	e.chunk.end()
	e.docs.abandon()
}

// readFrames takes the next piece of an AWS event stream.
func (r *Response) readFrames(p []byte) {
	for len(p) > 0 {
		token, n, data := r.aws.frames.next(p)
		p = p[n:]
		switch token {
		case frameNothing:
		case frameData:
			r.aws.payload(data)
		case frameEnd:
			r.aws.end()
			if r.aws.frames.kind == frameFailure {
				r.tally.ended, r.tally.failed = true, true
			}
		case frameBroken:
			r.aws.spoil()
			if r.aws.frames.frames == 0 && !r.frames {
				r.framing = opaque // something else that begins with a zero
				return
			}
		}
	}
}

// endFrames takes the end of an AWS event stream. It reports whether the stream was
// whole; of a message that was cut, what was read counts.
func (r *Response) endFrames() (whole bool) {
	r.endDocument()
	return r.aws.frames.whole()
}

// base64Reader decodes base64, in either alphabet, from the raw parts of a JSON string.
type base64Reader struct {
	// bits are those that make no byte yet, below a 1 that tells how many they are.
	bits   uint32
	escape uint8 // 1 behind a backslash; then 1 more than digits of \uXXXX to come
	code   uint32
	out    [3 << 10]byte
}

// base64Values are the values of the digits; anything else is above 63.
var base64Values = func() (values [256]byte) {
	for i := range values {
		values[i] = 0xFF
	}
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	for i := range len(digits) {
		values[digits[i]] = byte(i)
	}
	values['+'], values['-'], values['/'], values['_'] = 62, 62, 63, 63
	return values
}()

// decode hands the decoded bytes of p to sink, which may not keep them.
func (b *base64Reader) decode(p []byte, sink func([]byte)) {
	n := 0
	for len(p) > 0 {
		if n+3 > len(b.out) {
			sink(b.out[:n])
			n = 0
		}
		if len(p) >= 4 && b.bits == 1 && b.escape == 0 {
			x0, x1, x2, x3 := base64Values[p[0]], base64Values[p[1]], base64Values[p[2]], base64Values[p[3]]
			if x0|x1|x2|x3 < 64 {
				v := uint32(x0)<<18 | uint32(x1)<<12 | uint32(x2)<<6 | uint32(x3)
				b.out[n], b.out[n+1], b.out[n+2] = byte(v>>16), byte(v>>8), byte(v)
				n += 3
				p = p[4:]
				continue
			}
		}
		c, ok := b.unescape(p[0])
		p = p[1:]
		switch {
		case !ok:
		case c == '"': // the string begins or ends
			b.bits = 1
		case base64Values[c] < 64:
			if b.bits = b.bits<<6 | uint32(base64Values[c]); b.bits < 1<<8 {
				continue
			}
			n += b.emit(b.out[n:])
		}
	}
	if n > 0 {
		sink(b.out[:n])
	}
}

// emit writes the first whole byte of the bits and returns how many it wrote.
func (b *base64Reader) emit(out []byte) int {
	for _, spare := range [...]uint{0, 2, 4} {
		if b.bits>>(8+spare) == 1 {
			out[0] = byte(b.bits >> spare)
			b.bits = b.bits&(1<<spare-1) | 1<<spare
			return 1
		}
	}
	return 0
}

// unescape takes a raw byte of the string. It reports false if that makes no character
// of its own.
func (b *base64Reader) unescape(c byte) (byte, bool) {
	switch b.escape {
	case 0:
		if c == '\\' {
			b.escape = 1
			return 0, false
		}
		return c, true
	case 1:
		b.escape = 0
		if c == 'u' {
			b.escape, b.code = 5, 0
			return 0, false
		}
		return c, c == '/' // no other short escape is a digit
	}
	b.code = b.code<<4 | hexDigit(c)
	if b.escape--; b.escape > 1 {
		return 0, false
	}
	b.escape = 0
	return byte(b.code), b.code < 0x80 && b.code != '"'
}
