package usage

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
)

// draws notes that a member asks for images among what is generated, raw being its value:
// a word, or a list of them. Google's parsers take the numbers of the words as well, so
// what is no word may mean images.
func (r *Request) draws(raw []byte) {
	r.Draws = r.Draws || reqAsksImages(gjson.ParseBytes(raw))
}

func reqAsksImages(v gjson.Result) (asks bool) {
	switch {
	case v.Type == gjson.String:
		return strings.Contains(strings.ToLower(v.Str), "image")
	case v.IsArray(), v.IsObject():
		v.ForEach(func(_, e gjson.Result) bool {
			asks = reqAsksImages(e)
			return !asks
		})
		return asks
	}
	return v.Type == gjson.Number
}

// reqModalities tells the members, folded, that say what is to be generated.
func reqModalities(name []byte) bool {
	switch string(name) {
	case "modalities", "responsemodalities", "response_modalities", "responsemimetype", "response_mime_type":
		return true
	}
	return false
}

// drawingTool notes a tool whose type, raw, says that it draws. Routers put their name
// before the word, and versions stand behind it.
func (r *Request) drawingTool(raw []byte) {
	const word = "image_gen"
	if len(raw) < len(word) {
		return
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = reqUnquote(make([]byte, 0, len(raw)), raw)
	}
	r.Draws = r.Draws || bytes.Contains(bytes.ToLower(raw), []byte(word))
}

// mayDraw notes that one of the models named can put out images beside text. Where the
// number of images is known beforehand, or nothing is generated, that adds nothing.
func (r *Request) mayDraw() {
	if r.GeneratedImages > 0 || r.API != UnknownAPI && !r.API.Generates() {
		r.Draws = false
		return
	}
	r.Draws = r.Draws || reqMayDraw(r.Model) || reqMayDraw(r.BodyModel)
	for _, m := range r.OtherModels {
		r.Draws = r.Draws || reqMayDraw(m)
	}
}

// reqMayDraw tells models that put out images, alone or beside text, by what their
// vendors call them.
func reqMayDraw(model string) bool {
	model = strings.ToLower(model)
	for _, part := range [...]string{"image", "nano-banana", "dall-e", "flux"} {
		if strings.Contains(model, part) {
			return true
		}
	}
	return reqDraws(model)
}
