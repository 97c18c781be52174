package usage

// bedrock tells whether the API is Bedrock's, where the path decides on streams and a
// body may be any family's of models.
func (a API) bedrock() bool {
	switch a {
	case BedrockInvoke, BedrockInvokeStream, BedrockConverse, BedrockConverseStream:
		return true
	default:
		return false
	}
}

func reqBedrockField(name []byte) reqField {
	switch string(name) {
	case "max_gen_len": // Llama
		return reqMaxGenLen
	case "num_generations": // Cohere
		return reqNumGenerations
	case "toolconfig":
		return reqToolConfig
	case "promptvariables":
		return reqStoredPrompt
	case "outputconfig":
		return reqSchema
	case "additionalmodelrequestfields":
		return reqPassedOn
	case "inputimage": // Titan
		return reqPictures
	case "guardrailconfig", "performanceconfig", "requestmetadata", "servicetier", "schemaversion",
		"additionalmodelresponsefieldpaths", "amazon-bedrock-guardrailconfig":
		return reqAside
	}
	return reqUnknown
}

// bedrockPart is partOf for Bedrock. A media object has its bytes two levels down, in a
// source that does not tell what they are, so the object's name is remembered.
func (s *reqScanner) bedrockPart(name []byte, part reqPart) reqPart {
	switch string(name) {
	case "image":
		s.medium = reqPicture
	case "document":
		s.medium = reqDocument
	case "video":
		s.medium = reqVideo
		return reqOther // "video" elsewhere is a URL
	case "audio":
		s.medium = reqRecording
		return reqOther // "audio" elsewhere refers to an earlier answer
	case "bytes":
		return reqBytes
	case "uri": // of an s3Location
		return reqFileURI
	case "bucketowner":
		return reqShort
	case "tooluseid":
		return reqID
	case "json":
		return reqVerbatim
	case "cachepoint":
		return reqCacheMark
	}
	return part
}

// toolConfig reads the tools of Converse: those that the client runs, and those of the
// system, whose results nobody knows beforehand.
func (s *reqScanner) toolConfig() bool {
	r := s.r
	if s.peek() != '{' {
		n, ok := s.compact(2)
		r.TextBytes += n
		return ok
	}
	if !s.enter(2) {
		return false
	}
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			return s.bad == nil
		}
		if name, _ := s.name(raw); string(name) == "tools" && s.peek() == '[' {
			if !s.converseTools() {
				return false
			}
			continue
		}
		n, ok := s.compact(3)
		if !ok {
			return false
		}
		r.TextBytes += n
	}
}

func (s *reqScanner) converseTools() bool {
	if !s.enter(3) {
		return false
	}
	for first := true; s.element(first); first = false {
		s.r.Tools++
		if s.peek() != '{' {
			n, ok := s.compact(4)
			if !ok {
				return false
			}
			s.r.TextBytes += n
			continue
		}
		if !s.converseTool() {
			return false
		}
	}
	return s.bad == nil
}

// converseTool reads one tool, an object with a single member that tells its kind.
func (s *reqScanner) converseTool() bool {
	r := s.r
	if !s.enter(4) {
		return false
	}
	for first := true; ; first = false {
		raw, more := s.member(first)
		if !more {
			return s.bad == nil
		}
		r.TextBytes += int64(s.named) + 4
		kind, _ := s.name(raw)
		client := string(kind) == "toolspec" || string(kind) == "cachepoint"
		n, ok := s.compact(5)
		if !ok {
			return false
		}
		r.TextBytes += n
		if !client && !s.wasNull() {
			r.external("server tools")
		}
	}
}

// reqNativeField is what TGI, llama.cpp and LM Studio mean by names of their own.
func reqNativeField(name []byte) reqField {
	switch string(name) {
	case "n_cmpl": // llama.cpp
		return reqNCompletions
	case "integrations": // LM Studio
		return reqMCP
	case "grammar":
		return reqSchema
	case "image_data": // SGLang
		return reqPictures
	case "audio_data":
		return reqSound
	case "video_data":
		return reqMoving
	}
	return reqUnknown
}
