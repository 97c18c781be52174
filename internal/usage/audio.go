package usage

import (
	"bytes"
	"math"
	"strconv"
)

// audioFamily is OpenAI's transcriptions, translations and speech, and its followers'.
var audioFamily = family{
	name: "audio",
	positions: []position{
		audType:     {"type", word},
		audModel:    {"model", word},
		audUsage:    {"usage", fragment},
		audError:    {"error", word},
		audTask:     {"task", word},
		audDuration: {"duration", word},
		audDelta:    {"delta", text},
		audText:     {"text", text},
	},
	extract: extractAudio,
}

const (
	audType = iota
	audModel
	audUsage
	audError
	audTask
	audDuration
	audDelta // in the pieces of a stream
	audText
)

func extractAudio(v view, t *tally) bool {
	event := v.word(audType)
	transcript := bytes.HasPrefix(event, []byte("transcript.text."))
	speech := bytes.HasPrefix(event, []byte("speech.audio."))
	switch {
	case transcript:
		t.streamed += v.text(audDelta)
		t.whole = max(t.whole, v.text(audText))
	case speech:
		t.output = true
	case v.text(audText) > 0, v.kind(audTask) == typeString && v.kind(audDuration) != typeAbsent:
		extractTranscript(v, t)
		return true
	default:
		return false
	}
	t.unended = true
	if !bytes.HasSuffix(event, []byte(".done")) {
		t.piece = true
		return true
	}
	t.ended = true
	var n tokens
	ok := readTokens(v.raw(audUsage), &n)
	if !ok {
		return true
	}
	t.terms.takeCost(&n.cost)
	u := n.usage(true)
	if speech && !n.out.audio.known {
		u.AudioOut = u.Output
	}
	t.report(u)
	t.complete = true
	return true
}

// extractTranscript reads a transcript that came in one piece. Some are billed by their
// duration, which the older form tells beside the text.
func extractTranscript(v view, t *tally) {
	t.served(v, audModel)
	t.fault(v, audError)
	t.streamed += v.text(audText)
	if u, ok := t.readUsage(v.raw(audUsage), true); ok {
		t.report(u)
		return
	}
	var millis optional
	millis.setSeconds(v.raw(audDuration))
	if millis.known {
		t.report(Usage{AudioMillis: millis.n})
	}
}

// setSeconds takes seconds, which may have a fraction, as milliseconds.
func (o *optional) setSeconds(v []byte) {
	switch kindOf(v) {
	case typeNumber:
	case typeString:
		v = unquote(v)
	default:
		return
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(f <= maxCount/1000) {
		return
	}
	o.n, o.known = int64(max(0, math.Round(f*1000))), true
}
