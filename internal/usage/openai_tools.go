package usage

import "slices"

// toolTally is what the tools used that the vendor ran for a response of OpenAI, beside
// the tokens of the model. A stream tells of each call as it ends, and a response lists
// all of them again.
type toolTally struct {
	streamed, listed toolCounts
	billed           optional // searches, by tool_usage
	image            imageTally
}

// toolCounts is how often tools ran.
type toolCounts struct {
	searches   int64 // of the web
	files      int64 // searches of files
	pictures   int64
	containers []string // that ran code
	unnamed    int64    // runs of code of which the container is not told
}

// maxContainers bounds the containers told apart; what is beyond counts each time.
const maxContainers = 64

// take counts a call. Of a web search only action "search" is billed, and not pages that
// it opens; of code, the container is, however often something runs in it.
func (c *toolCounts) take(kind, action, container []byte, picture bool) {
	switch string(kind) {
	case "web_search_call":
		if string(action) == "search" {
			c.searches++
		}
	case "file_search_call":
		c.files++
	case "image_generation_call":
		if picture {
			c.pictures++
		}
	case "code_interpreter_call":
		switch {
		case len(container) == 0, len(c.containers) == maxContainers && !slices.Contains(c.containers, string(container)):
			c.unnamed++
		case !slices.Contains(c.containers, string(container)):
			c.containers = append(c.containers, string(container))
		}
	}
}

// sessions is how many containers ran code.
func (c *toolCounts) sessions() int64 { return int64(len(c.containers)) + c.unnamed }

// takeItem takes a call from the event of a stream that tells its end.
func (t *tally) takeItem(v view) {
	made(&t.tools).streamed.take(v.word(responsesItem), v.word(responsesAction), v.word(responsesContainer),
		v.kind(responsesResult) == typeString)
}

// takeList takes the calls that a response lists.
func (t *toolTally) takeList(v view, base int) {
	t.listed = toolCounts{}
	v.each(base+respItemType, func(element int32, _ byte, raw []byte) {
		t.listed.take(unquote(raw), v.wordAt(base+respAction, element), v.wordAt(base+respContainer, element),
			v.element(base+respResult, element) == typeString)
	})
}

// pictures is how many the image tool has made.
func (t *toolTally) pictures() int64 { return max(t.streamed.pictures, t.listed.pictures) }

// conclude puts into the report what was counted, also where the usage never came. What
// the vendor says that it bills counts more than what it did.
func (t *toolTally) conclude(r *Report) {
	u := &r.Usage
	// The first events of a stream may say that nothing is, so far.
	if t.billed.known && (t.billed.n > 0 || r.Found) {
		u.WebSearches = t.billed.n
	} else if u.WebSearches == 0 {
		u.WebSearches = max(t.streamed.searches, t.listed.searches)
	}
	u.FileSearches = max(u.FileSearches, t.streamed.files, t.listed.files)
	u.CodeSessions = max(u.CodeSessions, t.streamed.sessions(), t.listed.sessions())
}

// imageTally is what the image tool used: another model, at other prices.
type imageTally struct {
	model string
	usage Usage
}

// imageToolModel is what OpenAI's image tool draws with if no other model is named.
const imageToolModel = "gpt-image-1"

// concludeImages puts into the report what the image tool used.
func (t *toolTally) concludeImages(r *Report) {
	u, model := t.image.usage, t.image.model
	u.Images = max(u.Images, t.pictures())
	if model == "" {
		model = imageToolModel
	}
	r.addOther(model, u)
}

// takeToolUsage reads tool_usage, which is no part of usage.
func (t *tally) takeToolUsage(v view, base int) {
	members(validObject(v.raw(base+respTools)), func(name, v []byte) {
		switch string(name) {
		case "image_gen":
			var n tokens
			ok := readTokens(v, &n)
			if !ok {
				return
			}
			u := n.usage(true)
			// What an image tool puts out is images, even if it does not say so.
			if !n.out.image.known {
				u.ImageOut = u.Output
			}
			if u != (Usage{}) {
				made(&t.tools).image.usage = u
			}
		case "web_search":
			made(&t.tools).billed.set(memberOf(v, "num_requests"))
		}
	})
	if v.kind(base+respItemType) != typeAbsent { // the first lists of a stream are empty
		made(&t.tools).takeList(v, base)
	}
	if model := v.word(base + respToolModel); len(model) > 0 {
		made(&t.tools).image.model = string(model)
	}
}
