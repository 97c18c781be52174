package meter

import (
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Call is one request on its way. It belongs to the goroutine that serves it.
type Call struct {
	own tap // first: what each piece of a stream needs begins where a line of the caches does

	// Endpoint is what method, path and headers tell.
	Endpoint usage.Endpoint
	// Request is what the body tells; nil before Inspect.
	Request *usage.Request

	m          *Meter
	route      route
	stripped   bool
	inspected  bool
	unasked    bool // nobody asks for usage
	replaced   bool // a body has taken the place of one that a handler behind may be reading
	inspectErr error

	sent     []byte        // the body as the client sent it
	encoding string        // and how it was encoded
	lent     *lent         // the same, where its memory is used again
	reader   sentBody      // of that body
	put      io.ReadCloser // what the request got in its place
	onward   payload       // what that holds
	body     []byte        // as it goes on
	plain    []byte        // the same without usage asked for; nil if it was not
	accept   []string
	who      string // whose share of the budget they take
	held     int64  // what body and copies are charged to the budget with
	cap      int64  // the cap that was written in; 0 if none was
	repeated bool   // the cap was written in a second time

	writes    bool   // the method is one that may have something done
	late      bool   // the client had gone before the call was served
	tap       *tap   // &own, once the call is served
	drain     *drain // &ownDrain; nil where the call ends with its client
	entries   []Entry
	fields    []*usage.Fields // what is sought in the answer besides
	repl      *caddy.Replacer // knows which upstream was called; nil outside of Caddy
	window    *window         // of the placeholders of the request; nil until it passes, or outside of Caddy
	pricer    Pricer          // nil if no handler has brought one
	byDefault Pricer          // what prices where none has
	refusedBy string
	shadowed  []string
	ended     bool
	again     bool     // a call of the same request came before, or may come in a route for errors
	announced bool     // the variables that tell the cost are there
	carried   *carried // &first, where no call of the request came before
	attempts  attempts // of a handler that tries more than once
	grouped   *string  // by whose rules a limiter counts it; nil where none has groups

	asks     usage.Request // what Request points to, as a rule
	ownDrain drain
	first    carried
	foreseen foresight
	*figures           // nil while nobody needs them; see reckon
	line     *logEntry // nil until it is logged
	entryOf  [4]Entry
}

// Entry is a limiter that has admitted a call.
type Entry interface {
	// ID is the instance that admitted.
	ID() string
	// Headers tells the client what is left; it is called for the first entry, with
	// all of them, when the final status is known.
	Headers(h http.Header, all []Entry)
	// Settle ends the entry with what the call used.
	Settle(o *Outcome)
	// Cancel ends the entry of a call that another limiter refused: it is as if the
	// call had never been made.
	Cancel()
}

// Strip takes out of the request what could make another call of it upstream. It does so
// once: what handlers put there afterwards is the operator's will.
func (c *Call) Strip(r *http.Request) {
	if !c.stripped {
		c.stripped = true
		usage.StripMethodOverride(r.Header)
		c.Endpoint.StripUpgrade(r.Header)
	}
}

// Inspect reads what the request asks for; the body is read whole, and put back
// with its exact length. It does so once, and gives the same answer again.
//
// The error is ErrTooLarge, ErrBusy, one of usage.DecodeBody or usage.ParseRequest, or
// a caddyhttp.HandlerError where the body could not be read.
func (c *Call) Inspect(r *http.Request) error {
	if !c.inspected {
		c.inspected = true
		c.inspectErr = c.inspect(r)
	}
	return c.inspectErr
}

func (c *Call) inspect(r *http.Request) error {
	defer func() {
		if c.Request == nil { // the body says nothing, or cannot be read
			c.Request = &usage.Request{Endpoint: c.Endpoint, Model: c.Endpoint.Model, Choices: 1}
			if c.Endpoint.Class == usage.Realtime {
				c.Request.External, c.Request.ExternalWhat = true, "what is said on its connection"
			}
		}
	}()
	if c.tap != nil && c.metered() {
		c.tap.meter()
	}
	if !c.readable() {
		return nil
	}

	c.who = caller(r)
	limitEncodings(r.Header)
	body, err := c.receive(r)
	if err != nil {
		return err
	}
	c.set(r, body)
	c.sent, c.encoding = body, usage.RequestEncoding(r.Header)

	if c.encoding != "" {
		if body, err = c.decode(c.encoding, body); err != nil {
			return err
		}
	}
	if err := c.asks.Parse(c.Endpoint, r.Header, body); err != nil {
		return err
	}
	c.Request, c.body = &c.asks, body
	if c.encoding != "" && !c.Request.Signed {
		// what was checked goes on, not what an upstream may read otherwise
		c.set(r, body)
		delete(r.Header, "Content-Encoding")
	}
	return nil
}

// readable tells whether request and response say what the call uses.
func (c *Call) readable() bool {
	return c.Endpoint.Class == usage.Spending || c.Endpoint.Class == usage.Unmetered
}

// metered tells whether what comes back may say what the call uses. It may also where
// the path tells of a free call: the upstream may see another path, or none.
func (c *Call) metered() bool {
	return c.readable() || c.Endpoint.Class == usage.Realtime || c.Endpoint.Class == usage.Free && c.writes
}

// receive reads the body of the request.
func (c *Call) receive(r *http.Request) ([]byte, error) {
	if c.sent != nil && r.Body == c.put && c.lent.keep() {
		// an error route takes over: what the client sent has been read, and sent
		// on in part perhaps
		if !c.m.bodies.take(c.who, int64(len(c.sent))) {
			return nil, ErrBusy
		}
		c.held += int64(len(c.sent))
		if c.encoding != "" {
			r.Header.Set("Content-Encoding", c.encoding)
		}
		return c.sent, nil
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, held, err := c.m.readBody(r, c.who)
	c.held += held
	c.lent = lend(body)
	return body, err
}

// Model is the model that the client asked for, empty if it is unknown.
func (c *Call) Model() string {
	if c.Request != nil && c.Request.Model != "" {
		return c.Request.Model
	}
	return c.Endpoint.Model
}

// subject is what the call teaches about.
func (c *Call) subject() subject { return subject{c.route, c.asked()} }

// OtherModels are those that the body names besides: the one that has no effect where
// the path names one, fallbacks, those of tools. An allowlist must cover them too.
func (c *Call) OtherModels() []string {
	switch {
	case c.Request == nil:
		return nil
	case c.Request.BodyModel == "":
		return c.Request.OtherModels
	}
	return append([]string{c.Request.BodyModel}, c.Request.OtherModels...)
}

// ModelType is what kind of model is called: text, embedding, image or audio.
func (c *Call) ModelType() string {
	switch c.Endpoint.API {
	case usage.OpenAIEmbeddings, usage.GeminiEmbed, usage.OllamaEmbed, usage.CohereEmbed:
		return "embedding"
	case usage.OpenAIImages:
		return "image"
	case usage.OpenAIAudio:
		return "audio"
	default:
		return "text"
	}
}

// edit puts another body in place of the one that goes on. It is sent plain,
// however the client had encoded it.
func (c *Call) edit(r *http.Request, body []byte) {
	c.m.bodies.force(c.who, int64(len(body)))
	c.held += int64(len(body))
	c.body = body
	c.set(r, body)
	r.Header.Del("Content-Encoding")
}

// set puts a body back, and remembers that it is ours.
func (c *Call) set(r *http.Request, body []byte) {
	if c.put != nil || c.lent.has(body) {
		c.send(r, payload{body: body})
		return
	}
	c.reader.reset(body) // the first reader is part of the call
	setBody(r, int64(len(body)), &c.reader)
	c.put, c.onward = r.Body, payload{body: body}
}

// send puts a body back that has been ours before.
func (c *Call) send(r *http.Request, p payload) {
	c.replaced = c.replaced || c.tap != nil
	of := p.reader()
	if p.parts != nil {
		c.lent.keep() // pieces of it are read without its lock
	} else if c.lent.has(p.body) {
		of = &bodyReader{of: c.lent, body: p.body}
	}
	setBody(r, p.size(), of)
	c.put, c.onward = r.Body, p
}

// Meter asks for usage where a stream would carry none. The request must have been
// inspected.
func (c *Call) Meter(r *http.Request) {
	if c.plain != nil || !c.mayAsk() || c.m.refusing.has(c.refuser(r), c.m.now()) {
		return
	}
	asking, ok := c.Request.AskUsage(c.body)
	if !ok {
		return
	}
	c.plain, c.accept = c.body, r.Header["Accept-Encoding"]
	c.edit(r, asking)
	// the chunk that was asked for is taken out again, which needs plain text
	r.Header["Accept-Encoding"] = []string{"identity"}
}

// Seek has fields looked for in an answer that reports no tokens in a known format.
// What they add up to is then what the call used, for all limiters. Of several, the
// first of which any is found count. It has no effect once the answer has begun.
// It has none either where calls are free.
func (c *Call) Seek(f *usage.Fields) {
	if c.Endpoint.Class != usage.Free {
		c.fields = append(c.fields, f)
	}
}

// Unasked notes that no handler further in asks for usage either.
func (c *Call) Unasked() { c.unasked = true }

// mayAsk tells whether usage may have to be asked for, by this limiter or by one
// further in.
func (c *Call) mayAsk() bool {
	if c.unasked || c.Endpoint.API != usage.OpenAIChat && c.Endpoint.API != usage.OpenAICompletions || c.m.leaveUsage.Load() {
		return false
	}
	q := c.Request
	return q == nil || q.Stream && !q.UsageAsked && !q.Signed
}

// WriteCap sets the most output tokens of each choice of a call that names no cap.
func (c *Call) WriteCap(r *http.Request, tokens int64) bool {
	body, ok := c.Request.WriteCap(c.body, tokens)
	if !ok {
		return false
	}
	c.cap = tokens
	c.edit(r, body)
	return true
}

// RepeatCap has a cap on the output reach an upstream of that host, which is empty if it
// is not known, under the name that it reads. ok is false if it cannot be done.
func (c *Call) RepeatCap(r *http.Request, host string) (ok bool) {
	if !c.Request.OnlyNewCap() || usage.ReadsNewCap(host, c.Model()) {
		return true
	}
	body, ok := c.Request.RepeatCap(c.body)
	if ok {
		c.repeated = true
		c.edit(r, body)
	}
	return ok
}

// unask makes the request what it was before usage was asked for.
func (c *Call) unask(r *http.Request) {
	body := c.plain
	c.plain = nil
	if c.cap > 0 || c.repeated {
		// the edits were noted for the other body
		if again, err := usage.ParseRequest(c.Endpoint, r.Header, body); err == nil {
			body, _ = again.WriteCap(body, c.cap)
			if c.repeated {
				body, _ = again.RepeatCap(body)
			}
		}
	}
	c.edit(r, body)
	delete(r.Header, "Accept-Encoding")
	if c.accept != nil {
		r.Header["Accept-Encoding"] = c.accept
	}
}

// Add records a limiter that has admitted the call.
func (c *Call) Add(e Entry) {
	if c.entries == nil {
		c.entries = c.entryOf[:0]
	}
	c.entries = append(c.entries, e)
}

// Has tells whether an instance has admitted the call already: one that stands
// twice on the way counts once.
func (c *Call) Has(id string) bool {
	for _, e := range c.entries {
		if e.ID() == id {
			return true
		}
	}
	return false
}

// Entries are the limiters that have admitted the call so far.
func (c *Call) Entries() []Entry { return c.entries }

// Refused records that an instance refuses the call: what others took is given
// back. The caller writes the answer.
func (c *Call) Refused(r *http.Request, id string) {
	c.refusedBy = id
	if c.tap == nil {
		// no limiter outside of this one: nobody else will end the call
		c.end(r, nil, true)
	}
}

// Shadowed records that an instance would have refused the call.
func (c *Call) Shadowed(id string) { c.shadowed = append(c.shadowed, id) }

// leave ends a call that no limiter has served.
func (c *Call) leave() {
	if c.tap == nil {
		c.ended = true
		c.release()
		c.forget()
	}
}

// release gives the memory of the body back.
func (c *Call) release() {
	c.m.bodies.release(c.who, c.held)
	c.held = 0
	c.letGo()
}

// letGo drops the body as it goes on.
func (c *Call) letGo() { c.body, c.plain, c.onward = nil, nil, payload{} }
