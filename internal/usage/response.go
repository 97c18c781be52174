package usage

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
)

// Response reads a response of any API that the package knows, while it passes, from
// pieces of any size. It keeps a few hundred bytes of it, whatever its length. The
// shape of the bytes decides what they are; the content type is not relied on.
//
// The calls come in the order NewResponse, Expect, Seek, Start, any number of Write,
// Close, Release, from one goroutine at a time.
type Response struct {
	// What every event looks at comes first, with the first fields of the tally.
	closed   bool
	unread   bool // the encoding is unknown
	framing  framing
	label    label
	unshaped uint32   // events since one had the shape of the one before
	decode   *decoder // nil where there is no encoding
	body     int64    // bytes, decoded
	shape    *shape   // of the last event; nil if it had none
	tally    tally

	bench  *workbench // nil between documents
	course course     // of the bench's scanner, while there is none
	events sseReader
	fields []*fieldReader // what else is looked for

	wire     int64   // bytes as sent, of a body that is encoded
	lead     [8]byte // the first bytes, until they tell the framing
	leadLen  uint8
	bom      uint8 // bytes of a byte order mark that were passed
	stream   bool  // the content type says that it is an event stream
	frames   bool  // the content type says that it is an event stream of AWS
	expect   expectation
	status   int16
	aws      *eventStream // nil until one came
	onDecode func([]byte)
	report   Report
}

// framing is how documents follow one another.
type framing uint8

const (
	unframed framing = iota // the first bytes did not tell yet
	framedEvents
	framedFrames    // AWS's binary framing
	framedDocuments // JSON, lines of JSON or an array of documents
	opaque          // text or media, in which nothing is looked for
)

var responses = sync.Pool{New: func() any {
	r := &Response{}
	r.onDecode = r.read
	return r
}}

// NewResponse returns a reader for one response. Release gives it back.
func NewResponse() *Response { return responses.Get().(*Response) }

// Release ends the use of r and gives its memory to the next response. The report that
// Close returned stays valid.
func (r *Response) Release() {
	r.close(false)
	choices, model := r.tally.chat.choices[:0], cmp.Or(r.tally.model, r.tally.last)
	parts := r.tally.tallyParts
	parts.reset()
	if r.aws != nil {
		r.aws.reset()
	}
	for _, f := range r.fields {
		f.release()
	}
	clear(r.fields)
	*r = Response{onDecode: r.onDecode, aws: r.aws, fields: r.fields[:0]}
	r.tally.chat.choices, r.tally.last, r.tally.tallyParts = choices, model, parts
	responses.Put(r)
}

// Start takes the status and the header of the final response, before its body. Of the
// header it reads Content-Type, Content-Encoding and counts of tokens, and keeps nothing.
func (r *Response) Start(status int, header http.Header) {
	r.status = int16(status)
	r.tally.headers.take(header)
	media, _, _ := strings.Cut(headerField(header, "Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	r.label = labelOf(media)
	switch {
	case !r.expect.believes(r.label):
		r.framing = opaque
	case media == "application/json":
	case media == "text/event-stream":
		r.stream = true
	case media == "application/vnd.amazon.eventstream":
		r.frames = true
	case strings.Contains(media, "ndjson"), strings.Contains(media, "jsonl"), media == "application/stream+json":
		r.course.lines = true
		for _, f := range r.fields {
			f.scan.lines = true
		}
	}
	encodings := header["Content-Encoding"]
	if len(encodings) == 0 || r.label == labelMedia {
		return
	}
	chain, ok := parseEncodings(strings.Join(encodings, ","))
	switch {
	case !ok:
		r.unread = true
	case len(chain) > 0:
		r.decode = newDecoder(chain, r.onDecode)
	}
}

// Write reads the next piece of the body as it came over the wire. It keeps nothing of
// p, never waits and cannot go wrong: what it cannot read is told by Close.
func (r *Response) Write(p []byte) {
	switch {
	case r.closed, r.label == labelMedia:
	case r.unread:
		r.wire += int64(len(p))
	case r.decode != nil:
		r.wire += int64(len(p))
		r.decode.feed(p)
	default:
		r.read(p)
	}
}

// Close ends the response and returns what it said; finished is false if the response
// was cut. Further calls return the same report.
//
// A body in an unknown encoding says nothing but its size, one in a broken encoding what
// could be read before it broke. A document that something else follows on its line is
// not believed: a text may begin like one. A stream of Anthropic that was cut behind its start is Found and not
// Complete: its input is known, and its output is at least a token for every four
// bytes that were delivered. The same goes for a stream of Gemini, which counts in every
// piece, though late. Any other stream that was cut before it reported is not Found,
// and Delivered tells how much came.
func (r *Response) Close(finished bool) Report {
	r.close(finished)
	return r.report
}

// close is Close without a copy of the report.
func (r *Response) close(finished bool) {
	if r.closed {
		return
	}
	intact := true
	if r.decode != nil {
		intact = r.decode.close()
		r.decode = nil
	}
	r.closed = true
	garbled := !intact
	switch r.framing {
	case unframed:
	case framedEvents:
		r.endEvent()
	case framedFrames:
		if !r.endFrames() {
			intact = false
			r.tally.complete = false
		}
	case framedDocuments:
		if r.endDocument() {
			intact = false
			r.tally.complete = false
		}
	}
	r.giveBack()
	r.tally.conclude(finished && intact, &r.report)
	r.report.Failed = r.report.Failed || r.status >= http.StatusBadRequest
	if r.doubtful() {
		r.report.Usage, r.report.Other, r.report.Found, r.report.TokensUnknown = Usage{}, nil, false, false
		r.report.Terms = Terms{}
	}
	if before := r.report.Usage.Total(); !r.doubtful() || r.label != labelText {
		r.takeFields()
		r.report.TokensUnknown = r.report.TokensUnknown && r.report.Usage.Total() == before
	}
	r.takeBody(garbled)
}
