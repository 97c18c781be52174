package usage

import (
	"bytes"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/media"
)

// plays adds how long an inline recording or video plays, which raw holds as base64 in
// JSON or as a data URL. Documents are looked at, too: what a file is the client says,
// and what the vendor reads it as the file itself.
func (r *Request) plays(kind reqMedia, raw []byte) {
	switch kind {
	case reqPicture, reqPlain:
		return
	default:
	}
	if rest, ok := reqCutFold(raw, "data:"); ok {
		head, data, _ := bytes.Cut(rest, []byte(","))
		if !bytes.HasSuffix(bytes.ToLower(head), []byte(";base64")) {
			r.lasts(kind, media.Info{}, false)
			return
		}
		raw = data
	}
	info, ok := media.ProbeBase64(raw)
	r.lasts(kind, info, ok)
}

// playsFile is plays for a file as it is.
func (r *Request) playsFile(kind reqMedia, file []byte) {
	if kind != reqPicture && kind != reqPlain {
		info, ok := media.Probe(file)
		r.lasts(kind, info, ok)
	}
}

// formPlays is the kind of a file in a form as far as it plays. Transcriptions take
// what they get for a recording, whatever its type; elsewhere a file that says it is
// something else is no recording of unknown length.
func (r *Request) formPlays(kind reqMedia, contentType string) reqMedia {
	switch {
	case r.API == OpenAIAudio:
		return reqRecording
	case kind == reqRecording && contentType != "" && contentType != "application/octet-stream" &&
		reqMediaOf([]byte(contentType)) == reqDocument:
		return reqDocument
	default:
		return kind
	}
}

// holds counts an object with data beside what tells its kind.
func (r *Request) holds(f *reqFrame, kind reqMedia) {
	r.inline(kind, f.data)
	if kind == reqDocument {
		r.pictured(f.held)
	}
	if f.several {
		// Which of them is read nobody knows.
		r.lasts(kind, media.Info{}, false)
		return
	}
	r.plays(kind, f.held)
}

// readOpaque reads a body that is neither JSON nor a form: a recording that is sent as
// it is, or text.
func (r *Request) readOpaque(contentType string, body []byte) {
	kind := reqMediaOf([]byte(contentType))
	if r.API == OpenAIAudio && kind != reqVideo {
		kind = reqRecording
	}
	if len(body) > 0 && (kind == reqRecording || kind == reqVideo) {
		r.playsFile(kind, body)
	}
	r.TextBytes = int64(len(body))
}

// lasts adds a length that was measured, or notes that it could not be.
func (r *Request) lasts(kind reqMedia, info media.Info, ok bool) {
	switch {
	case !ok:
		r.DurationUnknown = r.DurationUnknown || kind == reqRecording || kind == reqVideo
	case r.API == OpenAIAudio, kind != reqVideo && !info.Video:
		// Of a video that is transcribed only the sound is listened to.
		r.AudioMillis += info.Millis
	default:
		r.VideoMillis += info.Millis
	}
}

// fileURI counts a file that the vendor fetches; what it is stands beside its address,
// or around it.
func (s *reqScanner) fileURI(f *reqFrame, own reqPart) {
	r, kind, told := s.r, f.kind, f.media
	switch {
	case told:
	case f.types&reqIsImage != 0, own == reqImage:
		kind, told = reqPicture, true
	case f.types&(reqIsAudio|reqIsVideo) != 0:
		kind, told = reqVideo, true
	case r.API.bedrock():
		kind, told = s.medium, true
	}
	switch {
	case kind == reqPicture:
		r.Images++
	case kind == reqRecording, kind == reqVideo, !told:
		r.DurationUnknown = true
	}
}

// imageFile counts an uploaded file that is known to be an image.
func (r *Request) imageFile() {
	r.Media++
	r.Images++
}

// reqSoundField is what transcriptions mean by names at the top.
func reqSoundField(name []byte) reqField {
	switch string(name) {
	case "file", "url", "file_url", "audio_url", "audio", "file_id":
		return reqSound
	case "input_audio":
		return reqSoundInput
	}
	return reqUnknown
}

// formSound notes a field of a form that refers to a recording elsewhere.
func (r *Request) formSound(name, value string) {
	name = strings.ToLower(strings.TrimSpace(name))
	if r.API == OpenAIAudio && value != "" && reqSoundField([]byte(name)) == reqSound {
		r.Media++
		r.external("a remote URL")
		r.DurationUnknown = true
	}
}

// reqImagenSamples is how many images Imagen generates if it is not told.
const reqImagenSamples = 4

// generated tells how many images the call is to generate. chosen is set if the request
// says how many answers it wants.
func (r *Request) generated(chosen bool) {
	switch {
	case r.API == OpenAIImages:
		r.GeneratedImages = r.Choices
	case r.API == VertexPredict && reqDraws(r.Model):
		r.GeneratedImages = r.Choices
		if !chosen {
			r.GeneratedImages = reqImagenSamples
		}
	case r.API == BedrockInvoke && reqDraws(r.Model):
		r.GeneratedImages = r.Choices
	}
}

// reqDraws tells models of Google and Bedrock that put out images and nothing else.
func reqDraws(model string) bool {
	for _, part := range [...]string{"imagen", "imagegeneration", "titan-image", "nova-canvas", "stability."} {
		if strings.Contains(model, part) {
			return true
		}
	}
	return false
}
