package usage

import "bytes"

// reqMedia is a kind of media.
type reqMedia uint8

const (
	reqDocument reqMedia = iota // whatever is neither of the others
	reqPicture
	reqRecording
	reqVideo
	reqPlain // text in a file
)

// reqMediaOf tells the kind from the start of a MIME type, raw as in JSON.
func reqMediaOf(raw []byte) reqMedia {
	for _, k := range [...]struct {
		prefix string
		kind   reqMedia
	}{{"image", reqPicture}, {"audio", reqRecording}, {"video", reqVideo}, {"text", reqPlain}} {
		// PHP's encoder writes the slash as "\/".
		if rest, ok := reqCutFold(raw, k.prefix); ok && len(rest) > 0 && (rest[0] == '/' || rest[0] == '\\') {
			return k.kind
		}
	}
	return reqDocument
}

func reqCutFold(b []byte, prefix string) (rest []byte, ok bool) {
	if len(b) < len(prefix) || !bytes.EqualFold(b[:len(prefix)], []byte(prefix)) {
		return b, false
	}
	return b[len(prefix):], true
}

// inline counts media of size base64 characters that are in the body. A document or
// video of few bytes may have many pages or minutes, so its size bounds nothing.
func (r *Request) inline(kind reqMedia, size int64) {
	r.Media++
	r.MediaBytes += size
	switch kind {
	case reqPicture:
		r.Images++
		r.imageBytes += size
	case reqRecording:
		r.audios++
		r.audioBytes += size
	case reqDocument:
		r.external("a document")
	case reqVideo:
		r.external("a video")
	case reqPlain:
	}
}

// kind is the media that a member is named for.
func (p reqPart) kind() reqMedia {
	switch p {
	case reqAudioURL, reqInputAudio:
		return reqRecording
	case reqVideoURL:
		return reqVideo
	default:
		return reqDocument
	}
}

// reference counts what a media member holds: a data URL, bare base64 where a
// vendor takes that, or an address. part is the member.
func (s *reqScanner) reference(part reqPart, raw []byte, size int64) {
	r := s.r
	if rest, ok := reqCutFold(raw, "data:"); ok {
		kind := reqMediaOf(rest)
		r.inline(kind, size)
		if r.API == MistralOCR && kind != reqPicture {
			r.Images++
		}
		if named := part.kind(); named != reqDocument {
			kind = named // whatever the URL says
		}
		r.plays(kind, raw)
		return
	}
	bare := bytes.IndexByte(raw, ':') < 0 && bytes.IndexByte(raw, '\\') < 0
	switch {
	case size == 0:
	case bare && part == reqImage:
		r.inline(reqPicture, size)
	case bare && part == reqFileData:
		r.inline(reqDocument, size)
		r.plays(reqDocument, raw)
	case part == reqAudioURL && bytes.IndexByte(raw, ':') < 0:
		r.inline(reqRecording, size)
		r.plays(reqRecording, raw)
	default:
		r.Media++
		switch {
		case part == reqImage, r.API == MistralOCR:
			r.Images++
		case part == reqAudioURL, part == reqVideoURL:
			r.DurationUnknown = true
		}
		r.markup += size
		r.external("a remote URL")
	}
}
