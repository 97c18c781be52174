package usage

import "bytes"

// sseReader splits an event stream, as the WHATWG HTML standard defines it, into the
// data of its events, from pieces of any size. Lines end in LF, CRLF or CR. It is small: a
// stream has one of its own, which has left the caches when the next event comes.
type sseReader struct {
	state sseState
	field sseField
	cr    bool  // the last byte was a CR: an LF belongs to the same line end
	bom   uint8 // bytes of a byte order mark so far; its length if none can come
	data  bool  // the event has a line of data
	done  int8  // how much of doneMark the data was so far, -1 if it is something else

	nameLen  uint8
	eventLen uint8
	name     [5]byte // of the field; the longest ones are "event" and "retry"
	event    [8]byte // the event's name so far
}

// sseToken is what next found.
type sseToken uint8

const (
	sseNothing    sseToken = iota // the piece is used up
	sseData                       // data of the event
	sseFields                     // a line that is part of the event and no data
	sseUnknown                    // a field that the standard does not know
	sseComment                    // part of a comment or of another line without meaning
	sseEvent                      // a blank line: the event is whole
	sseSecondHalf                 // the LF of a CRLF
)

type sseState uint8

const (
	sseLineStart sseState = iota
	sseName
	sseAfterColon
	sseValue
	sseSkip
)

type sseField uint8

const (
	fieldData sseField = iota
	fieldEvent
	fieldOther // id and retry
)

const (
	doneMark      = "[DONE]"
	byteOrderMark = "\xEF\xBB\xBF"
	bomSize       = uint8(len(byteOrderMark))
)

// lineWindow bounds how far a line end of one kind is searched before the other kind
// is: a stream of CRs alone must not be read over and over.
const lineWindow = 4096

var newline = []byte{'\n'}

// next reads from p until there is something to tell. It returns how many bytes it
// read and, with sseData, the data among them: several data lines of an event are
// joined by line feeds.
func (r *sseReader) next(p []byte) (token sseToken, n int, data []byte) {
	for n < len(p) {
		switch r.state {
		case sseLineStart:
			token, used := r.lineStart(p[n:])
			n += used
			if token != sseNothing {
				if token == sseData {
					return token, n, newline
				}
				return token, n, nil
			}
		case sseName:
			token, used := r.readName(p[n:])
			n += used
			if token == sseData {
				return token, n, newline
			}
			if token != sseNothing {
				return token, n, nil
			}
		case sseAfterColon:
			if p[n] == ' ' {
				n++
			}
			r.state = sseValue
		case sseValue:
			line, used := r.line(p[n:])
			n += used
			switch {
			case len(line) == 0:
			case r.field == fieldData:
				r.matchDone(line)
				return sseData, n, line
			case r.field == fieldEvent:
				r.eventLen += uint8(copy(r.event[r.eventLen:], line))
			}
		case sseSkip:
			_, used := r.line(p[n:])
			return sseComment, n + used, nil
		}
	}
	return sseNothing, n, nil
}

// lineStart looks at the first byte of a line.
func (r *sseReader) lineStart(p []byte) (sseToken, int) {
	c := p[0]
	if r.bom < bomSize {
		if c == byteOrderMark[r.bom] {
			r.bom++
			return sseComment, 1
		}
		r.bom = bomSize
	}
	if r.cr {
		r.cr = false
		if c == '\n' {
			return sseSecondHalf, 1
		}
	}
	switch c {
	case '\n', '\r':
		r.cr = c == '\r'
		return sseEvent, 1
	case ':':
		r.state = sseSkip
		return sseComment, 1
	}
	r.state = sseName
	r.nameLen = 0
	const dataField = "data:"
	if len(p) > len(dataField) && string(p[:len(dataField)]) == dataField {
		r.nameLen = uint8(copy(r.name[:], "data"))
		return r.endName(':'), len(dataField)
	}
	return sseNothing, 0
}

// readName reads on in the name of a field.
func (r *sseReader) readName(p []byte) (sseToken, int) {
	for i, c := range p {
		switch c {
		case ':', '\n', '\r':
			return r.endName(c), i + 1
		}
		if int(r.nameLen) == len(r.name) {
			r.state = sseSkip
			return sseUnknown, i
		}
		r.name[r.nameLen] = c
		r.nameLen++
	}
	return sseNothing, len(p)
}

// endName takes the byte behind the name of a field: a colon, or the end of a line
// that has a name and no value.
func (r *sseReader) endName(c byte) sseToken {
	r.state = sseAfterColon
	if c != ':' {
		r.state = sseLineStart
		r.cr = c == '\r'
	}
	switch string(r.name[:r.nameLen]) {
	case "data":
		r.field = fieldData
		if r.data {
			return sseData
		}
		r.data = true
		return sseFields
	case "event":
		r.field = fieldEvent
		r.eventLen = 0
		return sseFields
	case "id", "retry":
		r.field = fieldOther
		return sseFields
	}
	if c == ':' {
		r.state = sseSkip
	}
	return sseUnknown
}

// line returns what p holds of the line, and how many bytes to move on.
func (r *sseReader) line(p []byte) (line []byte, used int) {
	w := p[:min(len(p), lineWindow)]
	end := bytes.IndexByte(w, '\n')
	if end >= 0 {
		w = w[:end]
	}
	if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
		end = cr
	}
	if end < 0 {
		return w, len(w)
	}
	r.cr = p[end] == '\r'
	r.state = sseLineStart
	return p[:end], end + 1
}

func (r *sseReader) matchDone(p []byte) {
	for _, c := range p {
		if r.done < 0 || r.isDone() {
			return
		}
		if c != doneMark[r.done] {
			r.done = -1
			return
		}
		r.done++
	}
}

// isDone reports whether the event says that the stream ends, in OpenAI's way.
func (r *sseReader) isDone() bool { return int(r.done) == len(doneMark) }

// named reports whether the event has this name, which is at most 7 bytes long.
func (r *sseReader) named(name string) bool {
	return string(r.event[:r.eventLen]) == name
}

// begins tells whether the next byte is the first one of an event.
func (r *sseReader) begins() bool {
	return r.state == sseLineStart && !r.cr && r.bom == bomSize && !r.data && r.eventLen == 0
}

// nextEvent begins a new event.
func (r *sseReader) nextEvent() {
	r.data, r.done, r.eventLen = false, 0, 0
}
