package usage

import "math"

// Estimates of tokens. A token is about four bytes of UTF-8 in nearly every
// language with today's vocabularies; templates add some to each message.
const (
	bytesPerToken    = 4
	tokensPerMessage = 4
	tokensPerPrompt  = 3

	tokensPerImage    = 1_000 // of a size that nobody has measured
	bytesPerPage      = 32    // base64 characters of a document to a token
	bytesPerAudio     = 1_000 // base64 characters of a recording to a token
	tokensPerDocument = 1_000 // at least
)

// Bounds of tokens. No tokenizer yields more tokens than bytes.
const (
	worstPerPrompt  = 64
	worstPerMessage = 16
	worstPerTool    = 64
	worstToolUse    = 1_024 // what a vendor tells the model about tools in general
	// OpenAI's tile model with the highest rate takes 48,169 for eight tiles.
	worstPerImage = 50_000
	worstPerMedia = 1_000
)

// PromptTokens is what the prompt is expected to count.
func (r *Request) PromptTokens() int64 {
	n := (r.TextBytes+bytesPerToken-1)/bytesPerToken + r.PromptIDs +
		tokensPerMessage*int64(r.Messages) + tokensPerPrompt +
		tokensPerImage*int64(r.Images) + r.audioBytes/bytesPerAudio
	if docs := int64(r.Media - r.Images - r.audios); docs > 0 {
		n += max(tokensPerDocument*docs, (r.MediaBytes-r.imageBytes-r.audioBytes)/bytesPerPage)
	}
	return n
}

// PromptWorst is what the prompt counts at most: a token per byte of text and of
// media but images, which count by piece, and what templates may add. It bounds
// only what is in the body, so it tells nothing where External is set.
func (r *Request) PromptWorst() int64 {
	n := r.TextBytes + r.markup + r.PromptIDs + worstPerPrompt +
		worstPerMessage*int64(r.Messages) +
		worstPerImage*int64(r.Images) + worstPerMedia*int64(r.Media-r.Images) +
		r.MediaBytes - r.imageBytes
	if r.Tools > 0 {
		n += worstToolUse + worstPerTool*int64(r.Tools)
	}
	return n
}

// OutputCap is how many tokens the answer may have over all choices; 0 is no cap.
func (r *Request) OutputCap() int64 { return reqMul(r.Cap, r.Choices) }

// reqMul multiplies two numbers that are not negative, and stays at the largest.
func reqMul(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}
