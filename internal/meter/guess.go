package meter

import (
	"math"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Guesses of what pictures and speech count in tokens, where no answer says it. They are
// rather too high than too low: what is guessed too low is free.
const (
	// squareLow, squareMedium and squareHigh are what gpt-image-1 counts for a picture of
	// 1024×1024, by its quality, in OpenAI's table. Other sizes are in proportion.
	squareLow    = 272
	squareMedium = 1056
	squareHigh   = 4160
	square       = 1024 * 1024 // pixels
	largest      = 1536 * 1024 // pixels of the largest that is made unless one is named

	// tokensPerSpoken is how many tokens of sound speak a byte of text: gpt-4o-mini-tts
	// speaks some 750 characters a minute, and counts 1,250 tokens for it.
	tokensPerSpoken = 2
	// bytesPerCharacter bounds the bytes of a character that take longer to speak: an
	// ideograph has three of them, and is a syllable.
	bytesPerCharacter = 3
	leastSpoken       = 64 // tokens
)

// imageTokens is what a picture counts in output tokens. Where a quality or size is not
// named, vendors choose: it is then the dearest of what they choose from.
func imageTokens(h *usage.Hints) int64 {
	perSquare := int64(squareHigh)
	switch strings.ToLower(h.ImageQuality) {
	case "low":
		perSquare = squareLow
	case "medium", "standard":
		perSquare = squareMedium
	}
	return (pixels(h.ImageSize)*perSquare + square - 1) / square
}

// pixels reads a size such as "1024x1536"; another word is taken for the largest.
func pixels(size string) int64 {
	w, h, found := strings.Cut(strings.ToLower(size), "x")
	if !found {
		return largest
	}
	width, err := strconv.ParseUint(w, 10, 16)
	height, err2 := strconv.ParseUint(h, 10, 16)
	if err != nil || err2 != nil || width == 0 || height == 0 {
		return largest
	}
	return int64(width * height)
}

// pictureTokens is what so many pictures count in output tokens.
func pictureTokens(n int64, h *usage.Hints) int64 {
	each := imageTokens(h)
	if n > math.MaxInt64/each {
		return math.MaxInt64
	}
	return max(n, 1) * each
}

// speaks tells whether the call has text spoken.
func (c *Call) speaks() bool {
	return c.Endpoint.API == usage.OpenAIAudio && c.Request.Hints.Characters > 0
}

// spokenTokens is what the speech of a text counts in output tokens.
func spokenTokens(q *usage.Request) int64 {
	return max(leastSpoken, tokensPerSpoken*min(q.TextBytes, bytesPerCharacter*q.Hints.Characters))
}
