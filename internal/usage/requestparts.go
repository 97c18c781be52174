package usage

// reqPart is a member of the objects within a prompt.
type reqPart uint8

const (
	reqOther      reqPart = iota // its strings are text
	reqItem                      // an element of messages, input or prompt
	reqShort                     // a role, a status: not text unless long
	reqID                        // an id: not text unless long
	reqType                      // what the object is
	reqVerbatim                  // arguments and schemas: counted with names and numbers
	reqCacheMark                 // cache_control: not shown to the model
	reqURL                       // text, but in a media object
	reqImage                     // an image: URL, data URL, base64, or an object with one
	reqVideoURL                  // as reqImage
	reqAudioURL                  // as reqImage
	reqFileURL                   // as reqImage, of a document
	reqFileData                  // as reqImage, of a document
	reqFileID                    // an uploaded file
	reqSource                    // Anthropic's media object
	reqInputAudio                // OpenAI's audio object
	reqInlineData                // Gemini's media object
	reqAudio                     // refers to audio of an earlier answer
	reqData                      // base64 in a media object, else text
	reqMediaType                 // of the data beside it
	reqResult                    // base64 of a generated image, else text
	reqEncrypted                 // reasoning that only the vendor can read
	reqFileURI                   // a file that the vendor fetches
	reqBytes                     // base64 in a media object of Bedrock
)

func reqPartOf(name []byte) reqPart {
	switch string(name) {
	case "role", "status", "detail", "format", "phase":
		return reqShort
	case "id", "tool_call_id", "tool_use_id", "call_id":
		return reqID
	case "type":
		return reqType
	case "arguments", "input", "parameters", "input_schema", "schema", "json_schema", "action", "args":
		return reqVerbatim
	case "cache_control":
		return reqCacheMark
	case "url":
		return reqURL
	case "image_url", "image", "images", "image_embeds":
		return reqImage
	case "video_url", "video": // DashScope's is a URL, or a list of those of frames
		return reqVideoURL
	case "audio_url":
		return reqAudioURL
	case "file_url", "document_url":
		return reqFileURL
	case "file_data":
		return reqFileData
	case "file_id":
		return reqFileID
	case "source":
		return reqSource
	case "input_audio":
		return reqInputAudio
	case "inline_data", "inlinedata":
		return reqInlineData
	case "audio":
		return reqAudio
	case "data":
		return reqData
	case "media_type", "mimetype", "mime_type":
		return reqMediaType
	case "result":
		return reqResult
	case "encrypted_content":
		return reqEncrypted
	}
	return reqOther
}

// What objects say they are, as a set: a type given twice may be read either way.
const (
	reqIsBase64 = 1 << iota
	reqIsImage
	reqIsReference
	reqIsReasoning
	reqIsOther
	reqIsAudio
	reqIsVideo
	reqIsInputImage
)

func reqTypeOf(name []byte) uint8 {
	switch string(name) {
	case "base64":
		return reqIsBase64
	case "image", "image_generation_call":
		return reqIsImage
	case "item_reference":
		return reqIsReference
	case "reasoning":
		return reqIsReasoning
	case "audio":
		return reqIsAudio
	case "video":
		return reqIsVideo
	case "input_image":
		return reqIsInputImage
	}
	return reqIsOther
}
