package usage

import (
	"net/http"
	"strings"
)

// expectation is what a request tells about its response.
type expectation struct {
	known bool
	api   API
}

// Expect tells r what was asked for. It must be called before Start; without it the
// shape of the response alone decides.
//
// Where the answer may be text of the caller's choosing, like a transcript, only what
// its content type calls JSON or a stream is read as such. The API decides whether a body
// of unknown shape is taken for text, the choices whether answers share a prompt, and the
// model whether it is a free one.
func (r *Response) Expect(q *Request) {
	if q == nil {
		return
	}
	r.expect = expectation{known: true, api: q.API}
	r.tally.expected, r.tally.asked = q.Choices, q.Model
}

// label is what a content type says of the body.
type label uint8

const (
	labelOther      label = iota // nothing that is known
	labelStructured              // JSON, or a stream of events
	labelText
	labelSubtitles // text, and nothing else by mistake
	labelMedia
)

func labelOf(media string) label {
	if media == "application/json" { // as most are
		return labelStructured
	}
	kind, _, _ := strings.Cut(media, "/")
	switch {
	case kind == "audio", kind == "image", kind == "video":
		return labelMedia
	case media == "text/vtt", media == "text/srt", media == "application/x-subrip":
		return labelSubtitles
	case media == "text/event-stream", media == "application/vnd.amazon.eventstream",
		strings.Contains(media, "json"):
		return labelStructured
	case kind == "text":
		return labelText
	}
	return labelOther
}

// believes tells whether documents are looked for under a label. Servers label
// streams and JSON as text, but where an API answers with text there is no telling.
func (e *expectation) believes(l label) bool {
	switch l {
	case labelMedia, labelSubtitles:
		return false
	case labelStructured:
		return true
	}
	switch {
	case !e.known:
		return true
	case e.api == OpenAIAudio:
		return false
	case e.api == UnknownAPI:
		return l != labelText
	}
	return true
}

// isText tells whether a body under a label that nothing is known of is generated text.
func (e *expectation) isText(l label) bool {
	switch {
	case l == labelMedia:
		return false
	case !e.known:
		return true
	case e.api == OpenAIAudio:
		return l != labelOther
	}
	return e.api != OpenAIImages && e.api.Generates()
}

// doubtful tells whether something follows a document that is none, as in text that
// only begins like one. Broken lines between whole ones are usual in a stream of lines,
// which has a label of its own.
func (r *Response) doubtful() bool {
	return r.framing == framedDocuments &&
		(r.course.trailed || r.course.broken && r.label == labelText)
}

// takeBody puts the size of a body into the report in which no usage and no text was
// found: all of it may have been generated, unless it was cut before anything could be.
// broken is set if it could not be decoded.
func (r *Response) takeBody(broken bool) {
	rep := &r.report
	if rep.Found || rep.Failed || len(rep.Other) > 0 || r.tally.output || !r.expect.isText(r.label) ||
		r.status < http.StatusOK || r.status >= http.StatusMultipleChoices {
		return
	}
	if rep.Delivered > 0 && !r.doubtful() || r.framing == framedEvents && r.tally.begun() && !rep.Complete {
		return
	}
	n := r.body
	if broken || r.unread {
		n = max(n, r.wire)
	}
	rep.Delivered = max(rep.Delivered, n)
}
