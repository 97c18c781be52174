package usage

import (
	"bytes"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Request is what a call asks for, as far as limits and prices need it.
type Request struct {
	Endpoint
	// Model is the one the path names, else the one in the body, as sent.
	Model string
	// BodyModel is what the body names where the path names a model too; the body's
	// has no effect at the vendors that put it in the path. Empty otherwise.
	BodyModel string
	// OtherModels are those that the body names beside the two, each once: fallbacks,
	// choices for a router, models of tools. The call may use any of them.
	OtherModels []string
	// Hints are what the request says that decides its price.
	Hints Hints
	// Stream is set if a stream is asked for: by the body, by the path where that
	// decides, or by saying nothing where streams are the default.
	Stream bool
	// UsageAsked is set if the client itself asked for usage in its stream.
	UsageAsked bool
	// Background is set if the answer is to be fetched later.
	Background bool
	// Signed is set if a signature covers the body, which must then stay as it is.
	Signed bool
	// CapImplied is set if Cap is only the vendor's default. Servers that copy the
	// API may have another one, or none.
	CapImplied bool
	// Draws is set if the call may generate images of which GeneratedImages says nothing:
	// it has a tool that draws, asks for images beside text or names a model that puts
	// them out.
	Draws bool
	// DurationUnknown is set if there are recordings or videos of which it is not known
	// how long they play: by reference, or in a format that cannot be measured.
	DurationUnknown bool
	// External is set if what the model reads or runs is not all in the body, so that
	// its size tells nothing of the real prompt. ExternalWhat is the first reason, in
	// fixed words that may be shown to the client.
	External     bool
	ExternalWhat string
	// Cap is the most output tokens one choice may have: the largest of all cap
	// members present. 0 is no cap. A cap that the API does not know is no cap, but
	// counts beside one that it knows.
	Cap int64
	// Choices is how many answers are generated, at least 1: the larger of n and
	// best_of, times the prompts of a legacy completion.
	Choices int64
	// TextBytes is the size of all prompt text: decoded strings, and of tools and
	// schemas everything but white space. Media, ids and roles are not part of it.
	TextBytes int64
	// PromptIDs is how many prompt tokens were sent as numbers.
	PromptIDs int64
	// Messages is how many messages or input items there are. Inputs of embeddings
	// and prompts of legacy completions are no messages.
	Messages int
	// Tools is how many tools or functions are declared.
	Tools int
	// Media is how many images, recordings and documents there are, inline or by
	// reference; Images is how many of them are images.
	Media, Images int
	// GeneratedImages is how many images the call asks for, where the API or the model
	// generates nothing else. Tools and models that may draw, or not, are counted by
	// their answer.
	GeneratedImages int64
	// AudioMillis and VideoMillis are how long the inline recordings and videos play, in
	// milliseconds, measured from their bytes. A video counts with its sound as one.
	AudioMillis, VideoMillis int64
	// MediaBytes is the size of the media that are inline, as base64 characters; of
	// uploaded files in a form, their bytes.
	MediaBytes int64

	markup     int64 // bytes of roles and ids, and what objects may add around them
	imageBytes int64 // part of MediaBytes
	audioBytes int64 // part of MediaBytes
	audios     int
	edit       reqEdit
	hinted     uint8 // hints that were given, by reqField
}

// BadRequest is a body that cannot be metered. Its text may be shown to the client:
// it repeats nothing of the body but names of known members.
//
//nolint:errname // it is named for the answer that it is to get
type BadRequest struct {
	Param   string // the member at fault, or empty
	Message string

	syntax bool // it is no JSON
}

// Error is the message.
func (e *BadRequest) Error() string { return e.Message }

// reqDefaultCap is what OpenAI gives a legacy completion that asks for no length.
const reqDefaultCap = 16

// ParseRequest reads a call's whole body, decoded, in one pass. The error is a
// [*BadRequest].
//
// Bodies of known APIs are JSON whatever their Content-Type, since servers rarely
// look at it. Elsewhere JSON and forms are read and other content counts as text.
// JSON is read as every upstream would read it, so what parsers differ on is
// refused: members that steer a call given twice, in another case or with another
// type, and bytes after the value. Only where a call spends nothing is a body that
// is no JSON object let through.
func ParseRequest(ep Endpoint, header http.Header, body []byte) (*Request, error) {
	r := new(Request)
	if err := r.Parse(ep, header, body); err != nil {
		return nil, err
	}
	return r, nil
}

// Parse is [ParseRequest] into a request that is there and says nothing yet. After an error
// it does not either.
func (r *Request) Parse(ep Endpoint, header http.Header, body []byte) error {
	r.begin(ep, header)
	kind, boundary, bad := reqContentKind(ep, header["Content-Type"], body)
	switch {
	case bad != nil:
	case kind == reqJSON, kind == reqMaybeJSON:
		bad = r.readJSON(body)
		if bad != nil && bad.syntax && (kind != reqJSON || ep.Class != Spending) {
			// It need not be JSON, and counts as text.
			*r = Request{}
			r.begin(ep, header)
			r.TextBytes, bad = int64(len(body)), nil
		}
	case kind == reqForm:
		bad = r.readForm(body, boundary)
	default:
		r.readOpaque(header.Get("Content-Type"), body)
	}
	if bad != nil {
		*r = Request{}
		return bad
	}
	return nil
}

// begin fills in what a call asks for before its body is read.
func (r *Request) begin(ep Endpoint, header http.Header) {
	r.Endpoint, r.Model, r.Choices, r.Stream = ep, ep.Model, 1, ep.API.streams()
	lines := header["Authorization"]
	r.Signed = ep.Presigned || len(lines) > 0 && strings.HasPrefix(lines[0], "AWS4-")
}

// streams tells whether the API answers with a stream if the body says nothing.
func (a API) streams() bool {
	switch a {
	case GeminiStream, OllamaChat, OllamaGenerate, BedrockInvokeStream, BedrockConverseStream, TGIStream:
		return true
	default:
		return false
	}
}

type reqKind uint8

const (
	reqOpaque reqKind = iota
	reqJSON
	reqMaybeJSON // begins like an object, though nothing says so
	reqForm
)

// reqContentKind decides how a body is read; boundary is that of a form.
func reqContentKind(ep Endpoint, types []string, body []byte) (kind reqKind, boundary string, bad *BadRequest) {
	switch ep.API {
	case UnknownAPI, OpenAIImages, OpenAIAudio: // pictures and recordings come in forms
	default:
		return reqJSON, "", nil
	}
	if len(types) > 1 {
		return 0, "", &BadRequest{Message: "more than one Content-Type"}
	}
	if len(body) == 0 {
		return reqOpaque, "", nil
	}
	if len(types) == 1 {
		if types[0] == "application/json" {
			return reqJSON, "", nil
		}
		mt, params, err := mime.ParseMediaType(types[0])
		switch {
		case mt == "application/json" || strings.HasSuffix(mt, "+json"):
			return reqJSON, "", nil
		case strings.HasPrefix(mt, "multipart/"):
			if err != nil || params["boundary"] == "" {
				return 0, "", &BadRequest{Message: "a multipart body needs a boundary in its Content-Type"}
			}
			return reqForm, params["boundary"], nil
		case err != nil && strings.Contains(strings.ToLower(types[0]), "multipart"):
			return 0, "", &BadRequest{Message: "the Content-Type cannot be read"}
		}
	}
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '{' {
		return reqMaybeJSON, "", nil
	}
	return reqOpaque, "", nil
}

// readJSON reads a JSON body.
func (r *Request) readJSON(body []byte) *BadRequest {
	s := reqScanner{b: body, r: r}
	if s.top(); s.bad == nil {
		s.finish()
	}
	return s.bad
}

// finish draws together what depends on more than one member.
func (s *reqScanner) finish() {
	r := s.r
	if r.API == OpenAICompletions || r.API == LlamaCPPCompletion || r.API == UnknownAPI {
		r.Choices = reqMul(r.Choices, max(1, s.prompts))
	}
	s.references(reqIsImage)
	r.settleModels()
	r.generated(s.chosen)
	r.mayDraw()

	var known bool
	switch r.API {
	case OpenAIChat:
		known = s.capOf[reqMaxTokens] || s.capOf[reqMaxCompletionTokens]
		r.edit.newCap = known && !s.capOf[reqMaxTokens] && !s.endless
	case OpenAIResponses, LMStudioChat:
		known = s.capOf[reqMaxOutputTokens]
	case BedrockInvoke, BedrockInvokeStream:
		// Each family of models takes its own cap, and refuses the others'.
		known = s.capOf[reqMaxTokens] || s.capOf[reqMaxGenLen] || s.configs.capped
	case LlamaCPPCompletion:
		known = s.capOf[reqNPredict] || s.capOf[reqMaxCompletionTokens] || s.capOf[reqMaxTokens]
	case OpenAICompletions, AnthropicMessages, CohereChat, MistralChat:
		known = s.capOf[reqMaxTokens]
	default:
		// Elsewhere nobody knows whether such a member has any effect, so it must not
		// make the call cheap.
		known = s.configs.capped
	}
	if r.API == GeminiGenerate || r.API == GeminiStream || r.API.bedrock() {
		r.Stream = r.API.streams() // the path decides, whatever the body says
	}
	r.edit.capped, r.edit.largest = known || s.endless, r.Cap
	switch {
	case s.endless:
		r.Cap = 0
	case known:
	case r.API == OpenAICompletions:
		r.Cap, r.CapImplied = max(r.Cap, reqDefaultCap), true
	default:
		r.Cap = 0
	}
}

// external notes that the prompt is not all in the body; the first reason stays.
func (r *Request) external(what string) {
	if !r.External {
		r.External, r.ExternalWhat = true, what
	}
}

// reqMostChoices bounds the answers that one call may ask for. Vendors stop at 128 and
// fewer; a number without a bound would have a single call hold any budget.
const reqMostChoices = 1_000

func reqTooMany(name string) *BadRequest {
	return &BadRequest{Param: name, Message: strconv.Quote(name) + " must be at most " + strconv.Itoa(reqMostChoices)}
}

func reqDuplicate(name string) *BadRequest {
	return &BadRequest{Param: name, Message: strconv.Quote(name) + " is given more than once"}
}

func reqVariant(name string) *BadRequest {
	return &BadRequest{Param: name, Message: strconv.Quote(name) + " must be written exactly so, in lower case"}
}

func reqWrongType(name, want string) *BadRequest {
	return &BadRequest{Param: name, Message: strconv.Quote(name) + " must be " + want}
}
