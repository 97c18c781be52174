package usage

import (
	"bytes"
	"sync"
)

// Turn is one answer within a session: a response of the Realtime or the Responses API,
// a turn of Gemini's, or a transcript of what the user said.
type Turn struct {
	// Report is what was said of the turn. Where it is not Found, Delivered tells how
	// much text came.
	Report
	// Prompt is how many tokens of prompt a turn had, about, that was not reported.
	Prompt int64
	// Guessed is set where the usage is an estimate already, because what was reported
	// lacks it.
	Guessed bool
}

// Session reads a WebSocket on which a model answers again and again, while it passes.
// It keeps some kilobytes, however long it lasts. Its methods may be called from any
// goroutine.
type Session struct {
	onTurn func(*Turn)

	mu     sync.Mutex
	closed bool
	left   bool // what the client sends reaches the server no more
	deaf   bool // the extensions of this connection are unknown

	server, client webSocket
	heard, said    scanner // of the messages of each

	model       string // of the session
	transcriber string // the model that writes down what the user says
	turn        tally  // since the last turn ended
	turnOver    bool   // Gemini's turn has ended; its usage may come behind
	open        int    // answers that have begun and not ended
	asked       int    // answers that were asked for and have not begun
	sent        int64  // bytes of text from the client since the last turn ended
	before      int64  // tokens of the last prompt
	unheard     int64  // bytes from the server that could not be read since the last estimate
	estimates   int    // turns that were taken for granted, because nothing could be read
}

const (
	// unheardStep is how many bytes from the server stand for a turn where they cannot
	// be read.
	unheardStep = 256 << 10
	// unheardShare is how many bytes of such a connection come with a byte of text. In a
	// second, speech is 50 KB in base64 and 15 letters; text comes in events of 200
	// bytes.
	unheardShare = 128
)

// NewSession returns a reader for a connection, given the Sec-WebSocket-Extensions of
// the answer to its handshake. onTurn is called with each turn that has ended, from
// within FromServer, FromClient and Close, and may not call the session.
func NewSession(extensions []string, onTurn func(*Turn)) *Session {
	s := &Session{onTurn: onTurn}
	s.heard = newScanner(serverPositions, s.hear)
	s.said = newScanner(clientPositions, s.say)
	// The end of a message is the end of a document, whatever is missing of it.
	s.server = webSocket{data: s.heard.feed, done: func() { s.heard.end() }}
	s.client = webSocket{data: s.said.feed, done: func() { s.said.end() }}
	c, ok := parseExtensions(extensions)
	s.deaf = !ok
	if c.agreed {
		s.server.packer = &inflater{sink: s.heard.feed, alone: c.serverAlone}
		s.client.packer = &inflater{sink: s.said.feed, alone: c.clientAlone}
	}
	return s
}

// FromServer reads the next bytes that the server has sent.
func (s *Session) FromServer(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if !s.deaf {
		s.server.read(p)
	}
	if !s.unreadable() {
		return
	}
	for s.unheard += int64(len(p)); s.unheard >= unheardStep; s.unheard -= unheardStep {
		s.estimate(unheardStep / unheardShare)
	}
}

// FromClient reads the next bytes that the client has sent.
func (s *Session) FromClient(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if !s.deaf {
		s.client.read(p)
	}
	if (s.deaf || s.client.broken) && !s.left && s.open == 0 {
		s.asked = 1 // it may have been anything
	}
}

// read is feed for a goroutine that nobody guards: a fault in reading must cost an
// estimate, not the process.
func (w *webSocket) read(p []byte) {
	defer func() {
		if recover() != nil {
			w.broken = true
		}
	}()
	w.feed(p)
}

// unreadable tells whether what the server sends cannot be read.
func (s *Session) unreadable() bool { return s.deaf || s.server.broken }

// Leave says that nothing reaches the server any more of what the client sends.
func (s *Session) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}

// Between returns how many bytes of p, which are to follow what the server has sent so
// far, belong to the frame that is under way. It reports false if the frame does not end
// there, or frames cannot be told apart.
func (s *Session) Between(p []byte) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreadable() {
		return len(p), false
	}
	return s.server.frame.rest(p)
}

// ClientClosed tells whether the client has said that it sends no more.
func (s *Session) ClientClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client.closed
}

// Close ends the session. Answers that were asked for and have not ended are turns that
// are not Found.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.server.close()
	s.client.close()
	if s.turn.counted() {
		s.finish()
	}
	n := s.open
	if !s.unreadable() {
		n += min(s.asked, 1)
	}
	for range n {
		s.finish()
	}
	if s.unreadable() && (s.unheard > 0 || s.estimates == 0) {
		s.estimate(s.unheard / unheardShare)
	}
	s.closed = true
}

// begin takes the beginning of an answer.
func (s *Session) begin() {
	s.open++
	s.asked = max(0, s.asked-1)
}

// finish takes the end of an answer.
func (s *Session) finish() {
	t := Turn{Prompt: max(s.before, (s.sent+bytesPerToken-1)/bytesPerToken)}
	s.turn.conclude(true, &t.Report)
	if t.Model == "" {
		t.Model = s.model
	}
	if t.Found {
		s.before = t.Usage.Input
	}
	if s.open > 0 {
		s.open--
	} else {
		s.asked = max(0, s.asked-1)
	}
	s.turn, s.turnOver, s.sent = tally{}, false, 0
	s.onTurn(&t)
}

// estimate takes a turn for granted of which only so many bytes of text are known.
func (s *Session) estimate(delivered int64) {
	s.estimates++
	s.onTurn(&Turn{
		Report: Report{Model: s.model, Delivered: delivered},
		Prompt: max(s.before, (s.sent+bytesPerToken-1)/bytesPerToken),
	})
	s.sent = 0
}

// hear takes a message of the server's.
func (s *Session) hear(d *document) {
	v := view{d, serverSlots[serverSession]}
	switch event := v.word(srvType); {
	case bytes.HasPrefix(event, []byte("response.")):
		s.hearResponse(v, event)
	case bytes.HasPrefix(event, []byte("session.")), bytes.HasPrefix(event, []byte("transcription_session.")):
		s.model = first(v.word(srvModel), s.model)
		s.transcriber = first(v.word(srvTranscriber), s.transcriber)
	case string(event) == "conversation.item.input_audio_transcription.completed":
		s.hearTranscript(v)
	case string(event) == "error":
		s.asked = max(0, s.asked-1) // instead of an answer
	case event == nil:
		s.hearGemini(v)
	}
}

// first returns the name in the message, if there is one, else the one before.
func first(name []byte, before string) string {
	if len(name) == 0 || string(name) == before {
		return before
	}
	return string(name)
}

// hearResponse takes an event of an answer in OpenAI's words.
func (s *Session) hearResponse(v view, event []byte) {
	if string(event) == "response.created" {
		s.begin()
	}
	if bytes.HasSuffix(event, []byte("audio.delta")) {
		s.turn.output = true
	}
	extractResponses(view{v.d, serverSlots[serverResponses]}, &s.turn)
	switch string(event) {
	case "response.done", "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		s.finish()
	}
}

// hearTranscript takes what another model has understood of the user's speech. Where it
// is not said what that used, speech is some 15 letters and 10 tokens in a second.
func (s *Session) hearTranscript(v view) {
	u, ok := readUsage(v.raw(srvUsage), true)
	if !ok {
		text := v.text(srvTranscript)
		u = Usage{Input: text, Output: (text + bytesPerToken - 1) / bytesPerToken}
	}
	t := Turn{Report: Report{Found: ok, Complete: true, Model: s.model}, Guessed: !ok}
	if t.addOther(s.transcriber, u); len(t.Other) > 0 {
		s.onTurn(&t)
	}
}

// hearGemini takes a message of Gemini's Live API. Usage comes with the last message of
// a turn, or behind it, and before that perhaps of a part; the last one counts.
func (s *Session) hearGemini(v view) {
	if v.kind(srvContent) != typeAbsent {
		if s.turnOver {
			s.finish()
		}
		if s.open == 0 {
			s.begin()
		}
		s.turn.streamed += v.text(srvText)
		s.turn.output = s.turn.output || v.kind(srvMedia) != typeAbsent
	}
	extractGemini(view{v.d, serverSlots[serverGemini]}, &s.turn)
	s.turnOver = s.turnOver || v.kind(srvTurnOver) == typeTrue
	if s.turnOver && s.turn.counted() {
		s.finish()
	}
}

// say takes a message of the client's.
func (s *Session) say(d *document) {
	if s.left {
		return
	}
	v := view{d, clientSlots}
	s.sent += v.text(cliText)
	s.model = first(bytes.TrimPrefix(v.word(cliModel), []byte("models/")), s.model)
	switch {
	case string(v.word(cliType)) == "response.create":
	case v.kind(cliTurnOver) == typeTrue, v.kind(cliAnswer) != typeAbsent:
	default:
		return
	}
	if s.unreadable() {
		s.estimate(0)
		return
	}
	s.asked++
}
