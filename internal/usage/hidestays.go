package usage

import "bytes"

// Of what an event may have to be hidden for, its usage is looked for without reading the
// event: it has the name of that member, with nothing but blanks and a colon between it and
// a brace. Only letters that are written as \u00XX would spell it otherwise.
var (
	usageName    = []byte(`usage"`) // without a quote, of which there are so many
	letterEscape = []byte(`\u00`)
)

// stays returns how many bytes of p, which are whole events, pass without being looked at
// more closely, 0 where that cannot be told. It has then read them.
func (h *Hider) stays(p []byte) int {
	e := &h.events
	// At the beginning of a line that begins an event, and of none with a byte order mark.
	begun := e.bom == bomSize || e.bom == 0 && len(p) > 0 && p[0] != byteOrderMark[0]
	if !begun || e.state != sseLineStart || e.cr || e.data ||
		h.bench != nil || h.pass || len(h.held) > 0 {
		return 0
	}
	n := wholeEvents(p)
	if n == 0 || mayReport(p[:n]) {
		return 0
	}
	e.bom, h.dropped = bomSize, false
	e.nextEvent()
	return n
}

// wholeEvents returns where the last blank line ends in p, which begins with a line; 0 if
// there is none, or it ends in another way than most.
func wholeEvents(p []byte) int {
	if bytes.HasSuffix(p, blankLine) || bytes.HasSuffix(p, blankLineCRLF) {
		return len(p)
	}
	n := bytes.LastIndex(p, blankLine)
	if n < 0 {
		return 0
	}
	return n + len(blankLine)
}

var (
	blankLine     = []byte("\n\n")
	blankLineCRLF = []byte("\r\n\r\n")
)

// mayReport tells whether one of the events in p may have an object of usage.
func mayReport(p []byte) bool {
	for rest := p; ; {
		i := bytes.Index(rest, usageName)
		if i < 0 {
			return bytes.Contains(p, letterEscape)
		}
		quoted := i > 0 && rest[i-1] == '"'
		if rest = rest[i+len(usageName):]; !quoted {
			continue
		}
		j := skipSpaces(rest, 0)
		if j < len(rest) && rest[j] == ':' {
			j = skipSpaces(rest, j+1)
		} else if !endsLine(rest, j) {
			continue // a value
		}
		if endsLine(rest, j) || rest[j] == typeObject {
			return true
		}
	}
}

// endsLine tells whether a line ends at p[i]: more of what it says may be in another one.
func endsLine(p []byte, i int) bool { return i == len(p) || p[i] == '\n' || p[i] == '\r' }

// skipSpaces returns where blanks within a line end that begin at p[i].
func skipSpaces(p []byte, i int) int {
	for i < len(p) && (p[i] == ' ' || p[i] == '\t') {
		i++
	}
	return i
}
