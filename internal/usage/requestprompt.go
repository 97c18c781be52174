package usage

import "bytes"

const (
	reqLongName     = 64  // a name that is longer is no protocol's and counts as text
	reqShortValue   = 256 // an id or role that is longer counts as text
	reqObjectMarkup = 8   // bytes that a chat template may put around an object
)

// reqFrame is what one object of the prompt has told so far; its members may come
// in any order, so media are judged at its end.
type reqFrame struct {
	types     uint8
	kind      reqMedia
	media     bool   // it says what kind
	typed     bool   // by a MIME type, be it one that tells nothing
	data      int64  // bytes
	held      []byte // the last of it, raw
	several   bool   // it is not all
	result    int64  // bytes
	uri       bool   // of a file
	file      bool   // that was uploaded
	id        bool
	body      bool // more than id, type and status
	encrypted bool
}

// content reads a value of the prompt: own is the member that holds it, through any
// arrays, and parent the member that holds own's object.
func (s *reqScanner) content(own, parent reqPart, depth int) bool {
	switch s.peek() {
	case '"':
		_, ok := s.contentString(own, parent)
		return ok
	case '{':
		return s.contentObject(own, depth)
	case '[':
		if !s.enter(depth) {
			return false
		}
		for first := true; s.element(first); first = false {
			if !s.content(own, parent, depth+1) {
				return false
			}
		}
		return s.bad == nil
	}
	lit, ok := s.scalar()
	if ok && own == reqItem && lit[0]-'a' >= 26 {
		s.r.PromptIDs++
	}
	return ok
}

// contentString reads a string; raw is what stands between its quotes.
func (s *reqScanner) contentString(own, parent reqPart) (raw []byte, ok bool) {
	raw, n, ok := s.str()
	if !ok {
		return nil, false
	}
	r, size := s.r, int64(n)
	switch own {
	case reqShort, reqID, reqType, reqMediaType:
		if size > reqShortValue {
			r.TextBytes += size
		} else {
			r.markup += size
		}
		if own == reqID && parent == reqAudio && size > 0 {
			r.external("audio of an earlier answer")
			r.DurationUnknown = true
		}
	case reqFileID:
		if size > 0 {
			r.external("file_id")
			switch {
			case parent == reqSource:
				s.filed++
			case parent == reqImage, r.API == MistralOCR:
				r.imageFile()
			}
		}
		r.markup += size
	case reqBytes:
		r.inline(s.medium, size)
		if s.medium == reqDocument {
			r.pictured(raw)
		}
		r.plays(s.medium, raw)
	case reqFileURI:
		if size > 0 {
			r.Media++
			r.external("a file")
			r.DurationUnknown = r.DurationUnknown || atYouTube(raw)
		}
		r.markup += size
	case reqURL:
		switch parent {
		case reqSource:
			s.remote++
			r.external("a remote URL")
		case reqImage, reqVideoURL, reqAudioURL, reqFileURL:
			s.reference(parent, raw, size)
		default:
			r.TextBytes += size
		}
	case reqImage, reqVideoURL, reqAudioURL, reqFileURL, reqFileData:
		s.reference(own, raw, size)
	case reqInputAudio: // Mistral
		s.reference(reqAudioURL, raw, size)
	default:
		r.TextBytes += size
	}
	return raw, true
}

func (s *reqScanner) contentObject(own reqPart, depth int) bool {
	if !s.enter(depth) {
		return false
	}
	r := s.r
	r.markup += reqObjectMarkup
	var f reqFrame
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			break
		}
		if len(raw) > reqLongName {
			r.TextBytes += int64(s.named)
		}
		if !s.contentMember(&f, own, s.partOf(raw), depth) {
			return false
		}
	}
	if s.bad != nil {
		return false
	}
	s.close(&f, own)
	return true
}

// contentMember reads the value of a member of the object that own holds.
func (s *reqScanner) contentMember(f *reqFrame, own, part reqPart, depth int) bool {
	c := s.peek()
	if c == '"' && (part == reqOther || part == reqShort) { // as most are
		f.body = f.body || part == reqOther
		_, ok := s.contentString(part, own)
		return ok
	}
	f.id = f.id || part == reqID
	f.body = f.body || part != reqID && part != reqType && part != reqShort
	switch {
	case part == reqType && c == '"':
		raw, ok := s.contentString(part, own)
		if ok {
			var buf [reqLongestName]byte
			if bytes.IndexByte(raw, '\\') >= 0 && len(raw) <= len(buf) {
				raw = reqUnquote(buf[:0], raw)
			}
			f.types |= reqTypeOf(raw)
		}
		return ok
	case part == reqMediaType && c == '"':
		raw, ok := s.contentString(part, own)
		if !ok {
			return false
		}
		kind := reqMediaOf(raw)
		if f.typed && kind != f.kind {
			s.bad = reqDuplicate("mime_type") // upstreams take the first or the last
			return false
		}
		f.kind, f.typed, f.media = kind, true, f.media || reqTells(raw)
		return true
	case (part == reqData || part == reqResult) && c == '"':
		raw, n, ok := s.str()
		if part == reqData {
			f.several = f.several || f.held != nil
			f.data, f.held = f.data+int64(n), raw
		} else {
			f.result += int64(n)
		}
		return ok
	case part == reqVerbatim && c != '"':
		n, ok := s.compact(depth + 1)
		s.r.TextBytes += n
		return ok
	case part == reqCacheMark:
		_, ok := s.compact(depth + 1)
		return ok
	case part == reqEncrypted:
		f.encrypted = f.encrypted || c == '"'
	}
	before := s.r.Media
	ok := s.content(part, own, depth+1)
	f.uri = f.uri || part == reqFileURI && s.r.Media > before
	f.file = f.file || part == reqFileID && c == '"'
	return ok
}

// close judges an object at its end; own is the member that holds it.
func (s *reqScanner) close(f *reqFrame, own reqPart) {
	r := s.r
	if f.uri {
		s.fileURI(f, own)
	}
	if f.file && f.types&reqIsInputImage != 0 {
		r.imageFile()
	}
	if f.data > 0 {
		switch own {
		case reqSource:
			if f.types&reqIsBase64 != 0 {
				images := r.Images
				if r.holds(f, f.kind); r.Images == images {
					s.untold++
				}
			}
			if f.types != reqIsBase64 {
				r.TextBytes += f.data
			}
		case reqInputAudio:
			r.holds(f, reqRecording)
		case reqInlineData:
			r.holds(f, f.kind)
		default:
			// Interactions lay media flat beside their type.
			switch {
			case r.API == GeminiInteractions && f.media:
				images := r.Images
				if r.holds(f, f.kind); r.Images == images && f.types&reqIsImage != 0 {
					r.Images++
				}
			case r.API == GeminiInteractions && f.types == reqIsImage:
				r.inline(reqPicture, f.data)
			case r.API == GeminiInteractions && f.types == reqIsAudio:
				r.holds(f, reqRecording)
			case r.API == GeminiInteractions && f.types == reqIsVideo:
				r.holds(f, reqVideo)
			default:
				r.TextBytes += f.data
			}
		}
	}
	if f.result > 0 {
		if f.types&reqIsImage != 0 {
			r.inline(reqPicture, f.result)
		}
		if f.types != reqIsImage {
			r.TextBytes += f.result
		}
	}
	if s.remote+s.filed+s.untold > 0 && own != reqSource {
		s.references(f.types)
	}
	if r.API != OpenAIResponses && r.API != UnknownAPI {
		return
	}
	switch {
	case f.types&reqIsReference != 0, own == reqItem && f.id && !f.body:
		r.external("item_reference")
	case f.types&reqIsReasoning != 0 && !f.encrypted:
		r.external("stored reasoning")
	}
}

// references counts what sources have referred to, now that the block around them
// has told its type.
func (s *reqScanner) references(types uint8) {
	s.r.Media += s.remote
	if types&reqIsImage != 0 {
		s.r.Images += s.remote + s.untold
	}
	for ; s.filed > 0; s.filed-- {
		if types&reqIsImage != 0 {
			s.r.imageFile()
		}
	}
	s.remote, s.untold = 0, 0
}
