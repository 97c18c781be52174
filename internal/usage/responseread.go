package usage

import "bytes"

// read takes the next piece of the decoded body.
func (r *Response) read(p []byte) {
	r.body += int64(len(p))
	if r.shape != nil {
		if p = r.readShaped(p); len(p) == 0 {
			return
		}
	}
	for len(p) > 0 && r.framing == unframed {
		p = r.sniff(p)
	}
	switch r.framing {
	case framedEvents:
		r.readEvents(p)
	case framedFrames:
		r.readFrames(p)
	case framedDocuments:
		r.readDocuments(p)
	}
	r.giveBack()
}

// sniff looks at the first bytes of the body, and returns what is left of p. Servers
// label event streams as JSON, answer with JSON where a stream was asked for, and send
// either as octets.
func (r *Response) sniff(p []byte) []byte {
	c := p[0]
	if r.leadLen == 0 {
		switch {
		case r.bom < bomSize && c == byteOrderMark[r.bom]:
			r.bom++
			return p[1:]
		case class[c]&blank != 0:
			return p[1:]
		case c == '{', c == '[':
			r.framing = framedDocuments
			return p
		case c <= maxFrameLead:
			r.framing = framedFrames
			if r.aws == nil {
				r.aws = newEventStream(r)
			}
			return p
		case r.stream, c == ':':
			r.framing = framedEvents
			return p
		}
	}
	r.lead[r.leadLen] = c
	r.leadLen++
	lead := r.lead[:r.leadLen]
	possible := false
	for _, field := range [...]string{"data", "event", "id", "retry"} {
		if len(lead) > len(field) && string(lead[:len(field)]) == field && (c == ':' || c == '\n' || c == '\r') {
			r.framing = framedEvents
			r.readEvents(lead)
			return p[1:]
		}
		possible = possible || bytes.HasPrefix([]byte(field), lead)
	}
	if !possible {
		r.framing = opaque
	}
	return p[1:]
}

// feed takes the next piece of a document.
func (r *Response) feed(p []byte) {
	r.borrow().feed(p)
	for _, f := range r.fields {
		f.scan.feed(p)
	}
}

// endDocument takes the end of documents, and reports whether one was cut.
func (r *Response) endDocument() (cut bool) {
	for _, f := range r.fields {
		f.scan.end()
	}
	if r.bench == nil {
		return r.course.end()
	}
	return r.bench.scan.end()
}

// abandon forgets the document that was open.
func (r *Response) abandon() {
	for _, f := range r.fields {
		f.scan.abandon()
	}
	if r.bench == nil {
		r.course.end()
		return
	}
	r.bench.scan.abandon()
}

// readDocuments takes the next piece of documents, which is a line of its own in a stream.
func (r *Response) readDocuments(p []byte) {
	begins, before := r.bench == nil, r.said()
	r.feed(p)
	if begins && len(p) > 0 && p[len(p)-1] == '\n' && r.bench.scan.idle() {
		r.takeShape(p, before)
	}
}

// readEvents takes the next piece of an event stream.
func (r *Response) readEvents(p []byte) {
	for len(p) > 0 {
		p = p[r.readEvent(p):]
		if r.shape != nil {
			p = r.readShaped(p)
		}
	}
}

// readEvent takes of p what belongs to one event, and returns how many bytes that are.
func (r *Response) readEvent(p []byte) (n int) {
	begins, before := r.events.begins(), r.said()
	for n < len(p) {
		token, used, data := r.events.next(p[n:])
		n += used
		switch token {
		case sseData:
			r.feed(data)
		case sseEvent:
			r.endEvent()
			if r.events.cr && n < len(p) && p[n] == '\n' {
				_, used, _ = r.events.next(p[n:])
				n += used
			}
			if begins && !r.events.cr {
				r.takeShape(p[:n], before)
			}
			return n
		}
	}
	return n
}

// endEvent takes the end of an event, which need not be told at the end of a stream.
func (r *Response) endEvent() {
	r.endDocument()
	switch {
	case r.events.isDone():
		r.tally.ended, r.tally.complete = true, true
	case r.events.named("error"):
		r.tally.ended, r.tally.failed = true, true
	}
	r.events.nextEvent()
}
