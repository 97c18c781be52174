package usage

// tally is what a response has said so far. What most events look at comes first, so that
// it is close together, and what few responses need is made when they do.
type tally struct {
	streamed int64 // bytes of text in pieces
	deltas   int64 // documents with text: a piece has a token at least
	read     int64 // documents
	// piece is set if the last document would, with another text of one byte at least, only
	// add that text to streamed: all else that it says has been noted.
	piece bool

	opened   int64 // documents that only say that an answer begins
	expected int64 // choices that were asked for
	model    string

	failed   bool
	unended  bool // something began that says when it ends
	ended    bool // it said so, or broke off with an error
	complete bool // the last word was said: whatever comes now changes nothing

	reported  bool // a report was not all zero
	zero      bool // a report was all zero
	output    bool // something else than text was delivered
	listed    bool // a list of something came
	uncounted bool // pictures came for which no tokens were counted

	terms Terms
	chat  chatTally
	tallyParts

	whole   int64  // bytes of text in a document that repeats the pieces
	usage   Usage  // the last report that was not all zero
	last    string // the model of the response before, which is the same more often than not
	asked   string // the model that was asked for
	tgi     tgiTally
	headers headerTally
}

// tallyParts are what single families need; each is nil until it is. They are kept for the
// next response, which is often of the same family.
type tallyParts struct {
	timings   *Usage // what llama.cpp counts even if it was not asked for usage
	tools     *toolTally
	anthropic *anthropicTally
	gemini    *geminiTally
	bedrock   *bedrockTally
	sglang    *sglangTally
}

// made returns a part, which is new if it is needed for the first time.
func made[T any](part **T) *T {
	if *part == nil {
		*part = new(T)
	}
	return *part
}

// reset makes the parts as good as new.
func (p *tallyParts) reset() {
	empty(p.timings)
	empty(p.tools)
	empty(p.anthropic)
	empty(p.gemini)
	empty(p.bedrock)
	empty(p.sglang)
}

func empty[T any](part *T) {
	if part != nil {
		var zero T
		*part = zero
	}
}

// served notes the model that a document names at a position. The first name counts:
// some streams begin with an empty one, and gateways splice streams.
func (t *tally) served(v view, p int) {
	if t.model != "" {
		return
	}
	if name := v.word(p); string(name) == t.last {
		t.model = t.last
	} else {
		t.model = string(name)
	}
}

// repeat notes documents that would have said the same as the one before, but for their text.
func (t *tally) repeat(documents, text int64) {
	t.read += documents
	t.deltas += documents
	t.streamed += text
}

// report takes a report of the whole call: the last one counts, but zeros never erase
// a count.
func (t *tally) report(u Usage) {
	if u == (Usage{}) {
		t.zero = true
		return
	}
	t.usage, t.reported = u, true
}

// add takes a report of one call of several.
func (t *tally) add(u Usage) {
	if u == (Usage{}) {
		t.zero = true
		return
	}
	t.usage.add(u)
	t.reported = true
}

// fault notes the error at a position. Servers also write null, or an empty string,
// where nothing is wrong.
func (t *tally) fault(v view, p int) {
	switch v.kind(p) {
	case typeObject:
	case typeString:
		if string(v.raw(p)) == `""` {
			return
		}
	default:
		return
	}
	t.failed, t.ended = true, true
}

// opens notes that a document only says that an answer, or a part of it, begins. It may
// be long: some repeat the request.
func (t *tally) opens() { t.opened++ }

// begun tells whether an answer has been announced, and nothing of it has come.
func (t *tally) begun() bool { return t.opened > 0 && t.opened == t.read }

// delivered is how many bytes of text came.
func (t *tally) delivered() int64 { return max(t.streamed, t.whole) }

// conclude makes the report, which is large, in place. finished tells that the response was
// not cut.
func (t *tally) conclude(finished bool, r *Report) {
	*r = Report{
		Usage:     t.usage,
		Model:     t.model,
		Failed:    t.failed,
		Delivered: t.delivered(),
		Deltas:    t.deltas,
		Complete:  t.complete || finished && (t.ended || !t.unended),
	}
	r.Found = t.reported || t.zero && r.Delivered == 0 && !t.output && !t.listed
	t.chat.conclude(t.timings, r)
	if t.tools != nil {
		t.tools.concludeImages(r)
	}
	if t.anthropic != nil {
		t.anthropic.conclude(t, r)
	}
	if t.gemini != nil {
		t.gemini.conclude(r)
	}
	if t.bedrock != nil {
		t.bedrock.conclude(r)
	}
	t.tgi.conclude(&t.headers, r)
	if t.sglang != nil {
		t.sglang.conclude(t.expected, r)
	}
	t.headers.conclude(r)
	if t.tools != nil {
		t.tools.conclude(r)
	}
	t.concludeTerms(r)
	r.TokensUnknown = r.Found && t.uncounted
}

// concludeTerms puts into the report how the call is billed.
func (t *tally) concludeTerms(r *Report) {
	r.Terms = t.terms
	if t.anthropic != nil {
		r.Terms.takeTerms(&t.anthropic.terms)
	}
	if r.Terms.ServiceTier == "" {
		r.Terms.ServiceTier = t.headers.tier
	}
	if r.Terms.Speed == "" {
		r.Terms.Speed = t.headers.speed
	}
	r.Terms.settle(r.Model, t.asked)
}

// readUsage reads a usage object as the package does, and notes what it says of the price.
func (t *tally) readUsage(raw []byte, generated bool) (u Usage, ok bool) {
	if len(raw) == 0 || raw[0] != typeObject {
		return u, false
	}
	return t.readUsageObject(raw, generated)
}

// readUsageObject is apart from readUsage, which most events of a stream come to in vain:
// its stack would be that of every stream.
func (t *tally) readUsageObject(raw []byte, generated bool) (u Usage, ok bool) {
	var n tokens
	if ok = readTokens(raw, &n); ok {
		t.terms.takeCost(&n.cost)
		say(&t.terms.SearchContext, n.searchContext)
	}
	return n.usage(generated), ok
}

// addOther adds what another model used inside the call.
func (r *Report) addOther(model string, u Usage) {
	if u == (Usage{}) {
		return
	}
	for i := range r.Other {
		if r.Other[i].Model == model {
			r.Other[i].Usage.add(u)
			return
		}
	}
	r.Other = append(r.Other, ModelUsage{Model: model, Usage: u})
}

// add adds up two calls.
func (u *Usage) add(v Usage) { u.Add(&v) }

// bound makes parts that do not overlap no more together than what they are part of:
// reports of details are not always consistent, and the totals are what is charged.
func (u *Usage) bound() {
	rest := u.Input
	for _, part := range [...]*int64{&u.CacheRead, &u.CacheWrite5m, &u.CacheWrite1h} {
		*part = min(*part, rest)
		rest -= *part
	}
	rest = u.Input
	for _, part := range [...]*int64{&u.AudioIn, &u.ImageIn, &u.VideoIn} {
		*part = min(*part, rest)
		rest -= *part
	}
	rest = u.Output
	for _, part := range [...]*int64{&u.AudioOut, &u.ImageOut, &u.VideoOut, &u.Reasoning} {
		*part = min(*part, rest)
		rest -= *part
	}
	u.AudioCached = min(u.AudioCached, u.AudioIn, u.CacheRead)
	u.ImageCached = min(u.ImageCached, u.ImageIn, u.CacheRead-u.AudioCached)
}
