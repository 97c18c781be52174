package usage

// What members mean depends on the API where a vendor's words are too general to be
// taken so everywhere. Names are folded, so the spellings of a name in camel case and
// in snake case differ by the underscores alone.

// fieldOf is what the call's API means by a name, or field where it means no other thing
// by it than all do.
func (s *reqScanner) fieldOf(name []byte, field reqField) reqField {
	own := reqUnknown
	switch s.r.API {
	case GeminiGenerate, GeminiStream, GeminiEmbed:
		own = reqGeminiField(name)
	case GeminiInteractions:
		own = reqInteractionField(name)
	case OllamaChat, OllamaGenerate, OllamaEmbed:
		own = reqOllamaField(name)
	case CohereChat, CohereEmbed, CohereRerank:
		own = reqCohereField(name)
	case MistralChat:
		if string(name) == "agent_id" {
			own = reqAgent
		}
	case BedrockInvoke, BedrockInvokeStream, BedrockConverse, BedrockConverseStream:
		own = reqBedrockField(name)
	case OpenAIAudio:
		own = reqSoundField(name)
	case TGIGenerate, TGIStream, LlamaCPPCompletion, LMStudioChat:
		own = reqNativeField(name)
	default:
	}
	if own != reqUnknown {
		return own
	}
	return field
}

func reqGeminiField(name []byte) reqField {
	switch string(name) {
	case "cachedcontent", "cached_content":
		return reqCached
	case "toolconfig", "tool_config":
		return reqSchema
	case "safetysettings", "safety_settings", "labels", "tasktype", "task_type", "store":
		return reqAside
	case "servicetier":
		return reqServiceTier
	}
	return reqUnknown
}

func reqInteractionField(name []byte) reqField {
	switch string(name) {
	case "previous_interaction_id", "previousinteractionid":
		return reqInteraction
	case "agent":
		return reqAgent
	case "response_modalities", "responsemodalities", "response_mime_type", "agent_config", "store":
		return reqAside
	}
	return reqUnknown
}

func reqOllamaField(name []byte) reqField {
	switch string(name) {
	case "context":
		return reqTokenIDs
	case "format":
		return reqSchema
	case "keep_alive", "think":
		return reqAside
	}
	return reqUnknown
}

func reqCohereField(name []byte) reqField {
	switch string(name) {
	case "chat_history", "message":
		return reqList
	case "connectors":
		return reqConnectors
	case "conversation_id":
		return reqConversation
	case "input_type", "embedding_types", "safety_mode", "citation_options", "citation_quality",
		"prompt_truncation", "truncate", "client_name", "priority":
		return reqAside
	}
	return reqUnknown
}

// partOf is reqPartOf, with what only the call's API means by a name, which is raw.
func (s *reqScanner) partOf(raw []byte) reqPart {
	var part reqPart
	name := raw
	if word := reqWordOf(raw); word != nil {
		part = word.part
	} else {
		name, _ = s.name(raw)
		part = reqPartOf(name)
	}
	switch s.r.API {
	case GeminiGenerate, GeminiStream, GeminiEmbed:
		switch string(name) {
		case "fileuri", "file_uri":
			return reqFileURI
		case "filedata": // "file_data" is OpenAI's word too
			return reqFileData
		case "response":
			return reqVerbatim
		}
	case GeminiInteractions:
		if string(name) == "uri" {
			return reqFileURI
		}
	case VertexPredict:
		switch string(name) {
		case "bytesbase64encoded":
			return reqImage
		case "gcsuri", "gcs_uri":
			return reqFileURI
		}
	case BedrockInvoke, BedrockInvokeStream, BedrockConverse, BedrockConverseStream:
		return s.bedrockPart(name, part)
	default:
	}
	return part
}

// reqClientGroup tells the members of a Gemini tool that the client runs itself.
func reqClientGroup(name []byte) bool {
	switch string(name) {
	case "functiondeclarations", "function_declarations", "computeruse", "computer_use":
		return true
	}
	return false
}
