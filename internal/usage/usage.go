// Package usage reads what LLM APIs say about a call: from the request which
// model, how much text and how much output at most; from the response how many
// tokens were used. It knows the wire formats and nothing of HTTP servers.
//
// Each API family has a file of its own. The shape of a document decides what it
// is, at fixed positions; the path is a hint only.
package usage

// Usage is what one call used, in the normal form: Input includes what was read
// from and written to a cache, audio and images; Output includes reasoning, audio
// and images. The zero value is no use.
type Usage struct {
	Input        int64 // tokens
	Output       int64 // tokens
	CacheRead    int64 // tokens, part of Input
	CacheWrite5m int64 // tokens, part of Input; a short or unstated lifetime
	CacheWrite1h int64 // tokens, part of Input; an hour and longer
	Reasoning    int64 // tokens, part of Output
	AudioIn      int64 // tokens, part of Input
	AudioOut     int64 // tokens, part of Output
	AudioCached  int64 // tokens, part of both AudioIn and CacheRead
	ImageCached  int64 // tokens, part of both ImageIn and CacheRead
	VideoIn      int64 // tokens, part of Input
	VideoOut     int64 // tokens, part of Output
	ImageIn      int64 // tokens, part of Input
	ImageOut     int64 // tokens, part of Output
	Images       int64 // generated
	WebSearches  int64 // calls or, of Gemini, different queries
	Grounded     int64 // prompts that were answered with searches of the web, where it is told
	AudioMillis  int64 // milliseconds of audio that was listened to, where it is billed by time
	Pages        int64 // read by OCR
	SearchUnits  int64 // of reranking
	FileSearches int64
	CodeSessions int64 // containers that ran code
	Citations    int64 // tokens that were cited, where they are billed apart: no part of Input
	Annotated    int64 // pages that were annotated, which is billed beside Pages
}

// Total is all tokens.
func (u *Usage) Total() int64 { return u.Input + u.Output }

// Uncached is all tokens but those read from a cache.
func (u *Usage) Uncached() int64 { return max(0, u.Input-u.CacheRead) + u.Output }

// ModelUsage is what another model used inside a call: an advisor, an image tool.
type ModelUsage struct {
	Model string
	Usage Usage
}

// Report is what a response said.
type Report struct {
	Usage Usage
	// Found is set if the response reported its usage. A report of nothing but
	// zeros beside output counts as none.
	Found bool
	// Complete is set if the response came to its regular end.
	Complete bool
	// Failed is set if the response carried an error, whatever its status.
	Failed bool
	// Model is the one that served, as the response names it; empty if it does not.
	Model string
	// TokensUnknown is set if the response reported pictures, in Usage.Images, and for
	// some of them no tokens. The tokens of Usage are then too few, or none.
	TokensUnknown bool
	// Delivered is how many bytes of generated text the response carried, decoded.
	// Where neither usage nor text was found in a successful response, it is the size
	// of the body, which may be text in a format that nobody knows; decoded, or as sent
	// where the encoding could not be undone. Of audio, images and video it is 0.
	Delivered int64
	// Deltas is in how many pieces the text came.
	Deltas int64
	// Other is what other models used inside the call; it is not part of Usage.
	Other []ModelUsage
	// Terms are what the response says of how it is billed.
	Terms Terms
	// Least is what the fields that were sought add up to, in tokens, where the
	// response was cut and may have used more; 0 where it was not.
	Least int64
}

// DeliveredTokens is the least that was generated, in tokens, by what was delivered: one
// for every four bytes, and one for every piece of a stream.
func (r *Report) DeliveredTokens() int64 { return max((r.Delivered+3)/4, r.Deltas) }

// LacksInput reports whether output was counted and no prompt at all, as servers do
// that count only what of a prompt was not in their cache. The prompt is then to be
// estimated.
func (r *Report) LacksInput() bool { return r.Found && r.Usage.Input == 0 && r.Usage.Output > 0 }

// Add adds another's use.
func (u *Usage) Add(v *Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite5m += v.CacheWrite5m
	u.CacheWrite1h += v.CacheWrite1h
	u.Reasoning += v.Reasoning
	u.AudioIn += v.AudioIn
	u.AudioOut += v.AudioOut
	u.ImageIn += v.ImageIn
	u.ImageOut += v.ImageOut
	u.Images += v.Images
	u.WebSearches += v.WebSearches
	u.Grounded += v.Grounded
	u.AudioMillis += v.AudioMillis
	u.Pages += v.Pages
	u.SearchUnits += v.SearchUnits
	u.AudioCached += v.AudioCached
	u.ImageCached += v.ImageCached
	u.VideoIn += v.VideoIn
	u.VideoOut += v.VideoOut
	u.FileSearches += v.FileSearches
	u.CodeSessions += v.CodeSessions
	u.Citations += v.Citations
	u.Annotated += v.Annotated
}
