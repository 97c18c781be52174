package usage

// reqField is a top-level member of a request.
type reqField uint8

// The members that steer a call come first: they may stand only once.
const (
	reqModel reqField = iota
	reqStream
	reqStreamOptions
	reqN
	reqBestOf
	reqNumGenerations
	reqNCompletions
	reqMaxTokens
	reqMaxCompletionTokens
	reqMaxOutputTokens
	reqNPredict
	reqMaxGenLen
	reqBackground
	reqNControls
)

const (
	reqUnknown      reqField = iota + reqNControls
	reqList                  // messages, input
	reqPrompt                // prompts of a legacy completion, or a stored template
	reqTools                 // tools, functions
	reqSchema                // counted with all its names and numbers
	reqAside                 // never shown to the model
	reqStored                // refers to something stored, if not empty
	reqServerTool            // switches a server tool on, if not null
	reqPictures              // images beside the prompt
	reqOcrDocument           // a URL, or a block that has one
	reqConversation          // as reqStored
	reqMCP                   // as reqServerTool, if not empty
	reqContainer             // as reqStored
	reqCached                // as reqStored
	reqInteraction           // as reqStored
	reqAgent                 // as reqStored
	reqConnectors            // as reqStored
	reqTokenIDs              // of an earlier answer
	reqToolConfig            // tools, functions, as Converse declares them
	reqStoredPrompt          // as reqStored
	reqExtra                 // holds further members, for a gateway
	reqPassedOn              // the same, for a model of Bedrock
	reqSound                 // a recording, or its address
	reqSoundInput            // an object with one
	reqMoving                // videos beside the prompt

	// What decides the price and is never shown to the model, in the order of
	// reqHintNames.
	reqServiceTier
	reqSpeed
	reqSize
	reqQuality
)

const reqFirstHint = reqServiceTier

// reqLongestName is the length of the longest name that is looked up.
const reqLongestName = 32

func reqFieldOf(name []byte) reqField {
	switch string(name) {
	case "model":
		return reqModel
	case "stream":
		return reqStream
	case "stream_options":
		return reqStreamOptions
	case "n":
		return reqN
	case "best_of":
		return reqBestOf
	case "max_tokens":
		return reqMaxTokens
	case "max_completion_tokens":
		return reqMaxCompletionTokens
	case "max_output_tokens":
		return reqMaxOutputTokens
	case "n_predict":
		return reqNPredict
	case "background":
		return reqBackground
	case "messages", "input", "contents":
		return reqList
	case "prompt", "prompt_embeds":
		return reqPrompt
	case "tools", "functions":
		return reqTools
	case "response_format", "text", "output_config", "output_format", "tool_choice", "function_call",
		"guided_json", "structured_outputs", "json_schema":
		return reqSchema
	case "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
		"prompt_cache_options", "stop", "stop_sequences", "include", "modalities", "audio",
		"reasoning", "reasoning_effort", "verbosity", "truncation", "thinking", "betas", "anthropic_version",
		"anthropic_beta", "encoding_format", "logit_bias", "voice", "cache_control":
		return reqAside
	case "service_tier":
		return reqServiceTier
	case "speed":
		return reqSpeed
	case "size":
		return reqSize
	case "quality":
		return reqQuality
	case "previous_response_id":
		return reqStored
	case "conversation":
		return reqConversation
	case "container":
		return reqContainer
	case "mcp_servers", "plugins":
		return reqMCP
	case "web_search_options", "search_parameters":
		return reqServerTool
	case "image", "images", "mask":
		return reqPictures
	case "document":
		return reqOcrDocument
	case "extra_body", "litellm_params", "optional_params":
		return reqExtra
	}
	return reqUnknown
}

// reqControlNames are the members that hold numbers.
var reqControlNames = [reqNControls]string{
	reqN: "n", reqBestOf: "best_of", reqMaxTokens: "max_tokens", reqMaxCompletionTokens: "max_completion_tokens",
	reqMaxOutputTokens: "max_output_tokens", reqNPredict: "n_predict", reqMaxGenLen: "max_gen_len",
	reqNumGenerations: "num_generations", reqNCompletions: "n_cmpl",
}

// reqReasons say why a prompt is not all in the body.
var reqReasons = map[reqField]string{
	reqStored: "previous_response_id", reqConversation: "conversation", reqContainer: "a container",
	reqMCP: "server tools", reqServerTool: "server tools", reqConnectors: "server tools",
	reqStoredPrompt: "a stored prompt", reqCached: "cached content", reqInteraction: "an earlier interaction", reqAgent: "an agent",
}
