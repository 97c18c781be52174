package usage

import (
	"bytes"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// name decodes a member name and folds its case as the most lenient JSON libraries
// do; same tells that it was written so. Names too long to be known are returned
// as they are. The result lives until the next call.
func (s *reqScanner) name(raw []byte) (folded []byte, same bool) {
	if reqFolded(raw) {
		return raw, true
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		if s.named > 2*reqLongestName {
			return raw, true
		}
		raw = reqUnquote(make([]byte, 0, 2*reqLongestName), raw)
	}
	same = true
	folded = s.fold[:0]
	for i := 0; i < len(raw); {
		if len(folded) == cap(folded) {
			return raw, true
		}
		c := raw[i]
		n := 1
		switch {
		case c-'A' < 26:
			c |= 0x20
			same = false
		case c >= utf8.RuneSelf:
			// Two letters beyond ASCII have an ASCII letter as their other case.
			var r rune
			switch r, n = utf8.DecodeRune(raw[i:]); r {
			case 'ſ':
				c, same = 's', false
			case '\u212a': // the Kelvin sign
				c, same = 'k', false
			default:
				n = 1
			}
		}
		folded = append(folded, c)
		i += n
	}
	return folded, same
}

// reqFolded tells names that are written as name returns them: neither escapes nor capital
// letters nor any beyond ASCII.
func reqFolded(raw []byte) bool {
	for _, c := range raw {
		if class[c]&folding != 0 {
			return false
		}
	}
	return true
}

// top reads the whole document.
func (s *reqScanner) top() bool {
	if s.next() != '{' {
		s.bad = &BadRequest{Message: "the body must be a JSON object", syntax: true}
		return false
	}
	s.i++
	e := &s.r.edit
	e.size, e.open = len(s.b), s.i
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			e.empty = first
			break
		}
		name, same := raw, true
		word := reqWordOf(raw)
		if word == nil {
			name, same = s.name(raw)
			word = &reqWord{field: reqFieldOf(name), how: reqNamingOf(name), modalities: reqModalities(name)}
		}
		if c := s.configOf(name); c != nil {
			if !s.config(c, raw) {
				return false
			}
			continue
		}
		field := s.fieldOf(name, word.field)
		if field < reqNControls {
			if !same {
				s.bad = reqVariant(string(name))
				return false
			}
			if s.seen&(1<<field) != 0 {
				s.bad = reqDuplicate(string(name))
				return false
			}
			s.seen |= 1 << field
			if !s.control(field) {
				return false
			}
			continue
		}
		if len(raw) > reqLongName {
			s.r.TextBytes += int64(s.named)
		}
		start := s.i
		if !s.field(field) || !s.note(word.how, word.modalities, start) {
			return false
		}
	}
	if s.bad != nil {
		return false
	}
	if s.next(); s.i < len(s.b) {
		return s.fail("more after the object")
	}
	return true
}

// control reads the value of a member that steers the call. null is as absent.
func (s *reqScanner) control(field reqField) (ok bool) {
	r, start := s.r, s.i
	switch field {
	case reqModel:
		return s.model()
	case reqStream:
		if s.word("null") {
			return true
		}
		r.Stream, ok = s.flag("stream")
		return ok
	case reqBackground:
		r.Background, ok = s.flag("background")
		return ok
	case reqStreamOptions:
		return s.streamOptions()
	case reqN, reqBestOf, reqNumGenerations, reqNCompletions:
		n, _, ok := s.count(reqControlNames[field], false)
		if ok && n > reqMostChoices {
			s.bad = reqTooMany(reqControlNames[field])
			return false
		}
		r.Choices = max(r.Choices, n)
		return ok
	default:
		n, set, ok := s.count(reqControlNames[field], field == reqNPredict)
		if n < 0 {
			s.endless = true
		}
		s.capOf[field] = set
		r.Cap = max(r.Cap, n)
		if !set {
			r.edit.null().caps[field-reqMaxTokens] = reqSpan{start, s.i}
		}
		return ok
	}
}

// field reads the value of any other member.
func (s *reqScanner) field(field reqField) bool {
	r := s.r
	switch field {
	case reqServiceTier, reqSpeed, reqSize, reqQuality:
		return s.hint(field)
	case reqList:
		start := s.i
		ok := s.list(false)
		if ok && r.API == OpenAIAudio && s.b[start] == '"' {
			r.Hints.Characters += reqCharacters(s.b[start+1 : s.i-1])
		}
		return ok
	case reqPrompt:
		if s.peek() == '{' {
			r.external("a stored prompt")
		}
		return s.list(true)
	case reqTools:
		start := s.i
		ok := s.tools(2)
		if ok && r.External && r.API == OpenAIResponses {
			r.searches(gjson.ParseBytes(s.b[start:s.i]))
		}
		return ok
	case reqSchema:
		n, ok := s.compact(2)
		r.TextBytes += n
		return ok
	case reqAside:
		_, ok := s.compact(2)
		return ok
	case reqStored, reqConversation, reqContainer, reqMCP, reqServerTool,
		reqCached, reqInteraction, reqAgent, reqConnectors, reqStoredPrompt:
		start := s.i
		size, ok := s.compact(2)
		if ok && field == reqServerTool && s.b[start] == '{' {
			r.searches(gjson.ParseBytes(s.b[start:s.i]))
		}
		if ok && (size > 2 && !s.wasNull() || field == reqServerTool && size == 2) {
			r.external(reqReasons[field])
		}
		return ok
	case reqSound:
		return s.content(reqAudioURL, reqOther, 2)
	case reqSoundInput:
		return s.content(reqInputAudio, reqOther, 2)
	case reqMoving:
		return s.content(reqVideoURL, reqOther, 2)
	case reqPictures:
		return s.content(reqImage, reqOther, 2)
	case reqToolConfig:
		return s.toolConfig()
	case reqExtra:
		return s.extra("extra_body")
	case reqPassedOn:
		return s.passedOn("additionalModelRequestFields")
	case reqTokenIDs:
		return s.content(reqItem, reqOther, 2)
	case reqOcrDocument:
		return s.content(reqFileURL, reqOther, 2)
	default:
		return s.content(reqOther, reqOther, 2)
	}
}

// wasNull tells whether the value just read was null.
func (s *reqScanner) wasNull() bool {
	return s.i >= 4 && string(s.b[s.i-4:s.i]) == "null"
}

// list reads messages, input items or prompts, one or an array of them. Each of
// several prompts is answered.
func (s *reqScanner) list(prompts bool) bool {
	r := s.r
	chat := r.API != OpenAICompletions && r.API.Generates()
	if s.peek() != '[' {
		if c := s.peek(); chat && (c == '"' || c == '{') {
			r.Messages++
		}
		return s.content(reqItem, reqOther, 2)
	}
	if !s.enter(2) {
		return false
	}
	for first := true; s.element(first); first = false {
		if c := s.peek(); c == '"' || c == '{' || c == '[' {
			if chat {
				r.Messages++
			}
			if prompts {
				s.prompts++
			}
			r.markup += reqObjectMarkup
		}
		if !s.content(reqItem, reqOther, 3) {
			return false
		}
	}
	return s.bad == nil
}
