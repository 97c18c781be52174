package usage

// What is followed in the messages of a session, by who sent them.
const (
	serverSession = iota
	serverResponses
	serverGemini
)

// sessionPositions are the places of what only sessions say.
var sessionPositions = []position{
	srvType:        {"type", word},
	srvModel:       {"session.model", word},
	srvTranscriber: {"session.input_audio_transcription.model session.audio.input.transcription.model", word},
	srvUsage:       {"usage", fragment},
	srvTranscript:  {"transcript", text},

	srvContent:  {"serverContent.modelTurn.parts[] toolCall", mark},
	srvMedia:    {"serverContent.modelTurn.parts[].inlineData.mimeType", word},
	srvText:     {"serverContent.modelTurn.parts[].text serverContent.outputTranscription.text", text},
	srvTurnOver: {"serverContent.turnComplete", word},
}

const (
	srvType = iota
	srvModel
	srvTranscriber
	srvUsage
	srvTranscript
	srvContent
	srvMedia
	srvText
	srvTurnOver
)

// serverPositions is the tree of what servers send, and serverSlots are the slots in it
// of each group.
var serverPositions, serverSlots = func() (*tree, [][]int32) {
	t := newTree()
	return t, [][]int32{
		serverSession:   t.add(sessionPositions),
		serverResponses: t.add(responsesFamily.positions),
		serverGemini:    t.add(geminiFamily.positions),
	}
}()

const (
	cliType = iota
	cliModel
	cliTurnOver
	cliAnswer
	cliText
)

// clientPositions is the tree of what clients send: what asks for an answer, and text
// that a model is going to read.
var clientPositions, clientSlots = func() (*tree, []int32) {
	t := newTree()
	return t, t.add([]position{
		cliType:     {"type", word},
		cliModel:    {"model setup.model", word},
		cliTurnOver: {"clientContent.turnComplete client_content.turn_complete", word},
		cliAnswer:   {"toolResponse tool_response realtimeInput.text realtime_input.text", mark},
		cliText: {
			"instructions input input[].content input[].content[].text input[].output tools " +
				"response.instructions response.input[].content[].text response.tools " +
				"session.instructions session.tools item.content[].text item.output " +
				"setup.systemInstruction.parts[].text setup.tools clientContent.turns[].parts[].text " +
				"client_content.turns[].parts[].text", text,
		},
	})
}()
