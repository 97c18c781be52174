package meter

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Guesses of what pictures and speech count in tokens, where no answer says it. They are
// rather too high than too low: what is guessed too low is free.
const (
	// squareLow, squareMedium and squareHigh are what gpt-image-1 and its like count for a
	// picture of 1024×1024, by its quality, in OpenAI's guide to image generation, whose
	// table has 408, 1584 and 6240 for 1024×1536. Other sizes are in proportion.
	squareLow    = 272
	squareMedium = 1056
	squareHigh   = 4160
	// newSquareMedium and newSquareHigh are those of gpt-image-2, for which OpenAI shows
	// what a picture costs: $0.053 and $0.211 at $30 for a million tokens. Of low quality
	// it counts fewer than its elders, and of other sizes less than in proportion.
	newSquareMedium = 1784
	newSquareHigh   = 7034
	square          = 1024 * 1024 // pixels
	largest         = 1536 * 1024 // pixels of the largest that is made unless one is named

	// tokensPerSpoken is how many tokens of sound speak a byte of text. OpenAI puts
	// gpt-4o-mini-tts at $0.015 a minute and at $12 for a million tokens: 1,250 tokens a
	// minute. Who measured it had 4,096 letters spoken in 268 seconds, so that a letter
	// took 1.4 tokens; speech that is slower takes more.
	tokensPerSpoken = 2
	// bytesPerCharacter bounds the bytes of a character that take longer to speak: an
	// ideograph has three of them, and is a syllable.
	bytesPerCharacter = 3
	leastSpoken       = 64 // tokens
)

// imageTokens is what a picture of a model counts in output tokens. Where a quality or
// size is not named, vendors choose: it is then the dearest of what they choose from.
func imageTokens(model string, h *usage.Hints) int64 {
	medium, perSquare := int64(squareMedium), int64(squareHigh)
	if newer(model) {
		medium, perSquare = newSquareMedium, newSquareHigh
	}
	switch strings.ToLower(h.ImageQuality) {
	case "low":
		perSquare = squareLow
	case "medium", "standard":
		perSquare = medium
	}
	return (pixels(h.ImageSize)*perSquare + square - 1) / square
}

// newer tells whether a model is one of OpenAI's that count as gpt-image-2 does, or that
// are not known yet: those before it are gpt-image-1 and -1.5.
func newer(model string) bool {
	version, ok := strings.CutPrefix(modelname.Normal(model), "gpt-image-")
	return ok && !strings.HasPrefix(version, "1")
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

// pictureTokens is what so many pictures of a model count in output tokens.
func pictureTokens(n int64, model string, h *usage.Hints) int64 {
	each := imageTokens(model, h)
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

// guessPictures has the pictures that other models drew inside the call, and of which the
// answer tells no tokens, count what they may; it tells whether there are any.
func (c *Call) guessPictures(o *Outcome) (some bool) {
	for i := range o.Other {
		u := &o.Other[i].Usage
		if u.Images <= 0 || u.Output > 0 {
			continue
		}
		if !some {
			o.Other, some = slices.Clone(o.Other), true
			u = &o.Other[i].Usage
		}
		u.Output = pictureTokens(u.Images, o.Other[i].Model, &c.Request.Hints)
		u.ImageOut = u.Output
	}
	return some
}

// mostPartial is what the unfinished pictures of a stream count at most for each that is
// finished: `partial_images` is three at most, and OpenAI's guide counts a hundred tokens
// for each.
const mostPartial = 300

// OutputWorst is the most that a call puts out which takes no cap, in tokens; ok is false
// where a cap bounds it, or nothing does.
func (c *Call) OutputWorst() (tokens int64, ok bool) {
	if c.Endpoint.API != usage.OpenAIImages {
		return 0, false
	}
	return pictureTokens(c.Request.Choices, c.Model(), &c.Request.Hints) + mostPartial*c.Request.Choices, true
}

// worstBytesPerSecond is how few bytes a second of a recording may take: Opus is
// understood at 6 kbit/s.
const worstBytesPerSecond = 750

// heard is how long the recordings of a call play, in milliseconds. One whose format is
// not known is taken for what it may be at most.
func heard(q *usage.Request) int64 {
	if !q.DurationUnknown {
		return q.AudioMillis
	}
	return max(q.AudioMillis, q.MediaBytes*1000/worstBytesPerSecond)
}
