package meter

import (
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// What OpenAI documents for its models, and no less for what is not named.
func TestPicturesCountNoLessThanDocumented(t *testing.T) {
	for _, tc := range []struct {
		model, quality, size string
		least, most          int64
	}{
		{"gpt-image-1", "low", "1024x1024", 272, 272},
		{"gpt-image-1", "medium", "1024x1024", 1056, 1056},
		{"gpt-image-1", "high", "1024x1024", 4160, 4160},
		{"gpt-image-1", "low", "1024x1536", 408, 408},
		{"gpt-image-1.5", "medium", "1536x1024", 1568, 1584},
		{"gpt-image-1-mini", "high", "1024x1536", 6240, 6240},
		{"openai/gpt-image-2", "low", "1024x1024", 200, 272},
		{"gpt-image-2-2026-04-21", "medium", "1024x1024", 1767, 1784},
		{"gpt-image-2", "high", "1024x1024", 7024, 7034},
		{"gpt-image-2", "high", "1536x1024", 5488, 10551},
		{"gpt-image-2", "", "3584x2048", 12329, 50000},
		{"gpt-image-3", "", "1024x1024", 7024, 7034},
		{"gpt-image-1", "", "", 6240, 6240},
		{"gpt-image-1", "auto", "auto", 6240, 6240},
		{"another", "standard", "1024x1024", 1056, 1056},
		{"", "hd", "0x1024", 6240, 6240},
	} {
		h := &usage.Hints{ImageQuality: tc.quality, ImageSize: tc.size}
		if got := imageTokens(tc.model, h); got < tc.least || got > tc.most {
			t.Errorf("%s of %s at %s: got %d, want %d to %d", tc.quality, tc.model, tc.size, got, tc.least, tc.most)
		}
	}
}
