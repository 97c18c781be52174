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

// reqCutFold is bytes.CutPrefix in any case.
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
	raw = reqPlainURL(raw)
	if rest, ok := reqCutFold(raw, "data:"); ok {
		kind := reqMediaOf(rest)
		if part == reqImage && kind == reqPlain {
			kind = reqPicture // servers decode it as one
		}
		r.inline(kind, size)
		switch {
		case kind == reqPicture:
		case part == reqImage, r.API == MistralOCR:
			r.Images++ // whatever the URL says
		case kind == reqDocument:
			r.pictured(raw)
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
		r.pictured(raw)
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
