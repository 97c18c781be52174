package usage

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
)

// reqHeadSize is how many bytes of a string tell what it holds.
const reqHeadSize = 64

// reqHead appends to dst what a string, raw as in JSON, begins with: decoded, without
// white space before it, as far as dst has room.
func reqHead(dst, raw []byte) []byte {
	for i := 0; i < len(raw) && cap(dst)-len(dst) > 3; {
		n := 1
		if raw[i] == '\\' {
			n, _ = reqEscape(raw[i:])
		}
		switch {
		case n > 1:
			dst = reqUnquote(dst, raw[i:i+n])
		default:
			n = 1 // a header knows no escapes
			dst = append(dst, raw[i])
		}
		i += n
		if len(dst) <= 4 && len(bytes.TrimSpace(dst)) == 0 {
			dst = dst[:0]
		}
	}
	return dst
}

// reqMediaOf tells the kind from the start of a MIME type, raw as in JSON. Servers know
// it in any case, and many without the white space around it or what is behind its slash.
func reqMediaOf(raw []byte) reqMedia {
	var buf [reqHeadSize]byte
	head := reqHead(buf[:0], raw)
	for _, k := range [...]struct {
		prefix string
		kind   reqMedia
	}{{"image", reqPicture}, {"audio", reqRecording}, {"video", reqVideo}, {"text", reqPlain}} {
		if rest, ok := reqCutFold(head, k.prefix); ok && (len(rest) == 0 || rest[0]|0x20-'a' >= 26) {
			return k.kind
		}
	}
	return reqDocument
}

// reqTells tells whether a MIME type says anything of what it is written beside.
func reqTells(raw []byte) bool {
	var buf [reqHeadSize]byte
	head, _, _ := strings.Cut(string(bytes.ToLower(reqHead(buf[:0], raw))), ";")
	switch strings.TrimSpace(head) {
	case "", "*/*", "application/*", "application/octet-stream", "binary/octet-stream":
		return false
	}
	return true
}

// reqPlainURL is a media member's string, raw, in a form in which the start of a data URL
// can be read in place: escapes of other characters than the slash, and white space before
// it, are undone.
func reqPlainURL(raw []byte) []byte {
	var buf [reqHeadSize]byte
	if _, plain := reqCutFold(raw, "data:"); !plain {
		if _, ok := reqCutFold(reqHead(buf[:0], raw), "data:"); !ok {
			return raw
		}
	} else {
		head, _, _ := bytes.Cut(raw, []byte(","))
		if bytes.Count(head, []byte(`\`)) == bytes.Count(head, []byte(`\/`)) {
			return raw
		}
	}
	return bytes.TrimSpace(reqUnquote(make([]byte, 0, len(raw)), raw))
}

// pictured counts an image that says it is a document, which raw holds as base64 in JSON
// or as a data URL. Vendors that look at the bytes read it as what it is.
func (r *Request) pictured(raw []byte) {
	if _, ok := reqCutFold(raw, "data:"); ok {
		_, raw, _ = bytes.Cut(raw, []byte(","))
	}
	var buf [reqHeadSize]byte
	text := reqHead(buf[:0], raw)
	for i, c := range text {
		switch c { // of the alphabet for URLs
		case '-':
			text[i] = '+'
		case '_':
			text[i] = '/'
		}
	}
	var data [reqHeadSize]byte
	n, _ := base64.StdEncoding.Decode(data[:], text) // what is before a fault is decoded
	if reqIsPicture(data[:n]) {
		r.Images++
	}
}

// reqIsPicture knows images by their first bytes.
func reqIsPicture(data []byte) bool {
	if strings.HasPrefix(http.DetectContentType(data), "image/") {
		return true
	}
	if len(data) < 12 || string(data[4:8]) != "ftyp" {
		return false
	}
	switch string(data[8:12]) {
	case "heic", "heix", "mif1", "msf1", "avif", "avis":
		return true
	}
	return false
}

// atYouTube tells addresses, raw, that Gemini plays as videos whatever is said beside them.
func atYouTube(raw []byte) bool {
	var buf [4 * reqHeadSize]byte
	head := bytes.ToLower(reqHead(buf[:0], raw))
	return bytes.Contains(head, []byte("youtube")) || bytes.Contains(head, []byte("youtu.be"))
}
