package prices

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// liteLLMUnits are LiteLLM's names of prices, in dollars per unit, without what they may
// end in; see cutField.
var liteLLMUnits = map[string]Unit{
	"input_cost_per_token":                      Input,
	"cache_read_input_token_cost":               CacheRead,
	"input_cost_per_token_cache_hit":            CacheRead,
	"cache_creation_input_token_cost":           CacheWrite5m,
	"cache_creation_input_token_cost_above_1hr": CacheWrite1h,
	"output_cost_per_token":                     Output,
	"output_cost_per_reasoning_token":           Reasoning,
	"input_cost_per_audio_token":                AudioIn,
	"cache_read_input_audio_token_cost":         AudioCached,
	"input_cost_per_audio_token_cache_hit":      AudioCached,
	"cache_creation_input_audio_token_cost":     AudioWrite,
	"output_cost_per_audio_token":               AudioOut,
	"input_cost_per_image_token":                ImageIn,
	"cache_read_input_image_token_cost":         ImageCached,
	"output_cost_per_image_token":               ImageOut,
	"input_cost_per_video_token":                VideoIn,
	"output_cost_per_video_token":               VideoOut,
	"citation_cost_per_token":                   Citation,
	"output_cost_per_image":                     ImageMade,
	"input_cost_per_image":                      ImageSent,
	"input_cost_per_pixel":                      PixelIn,
	"output_cost_per_pixel":                     PixelOut,
	"input_cost_per_second":                     SecondIn,
	"output_cost_per_second":                    SecondOut,
	"input_cost_per_audio_per_second":           AudioSecondIn,
	"input_cost_per_video_per_second":           VideoSecondIn,
	"output_cost_per_video_per_second":          VideoSecondOut,
	"input_cost_per_character":                  CharacterIn,
	"output_cost_per_character":                 CharacterOut,
	"ocr_cost_per_page":                         Page,
	"annotation_cost_per_page":                  AnnotatedPage,
	"input_cost_per_query":                      Query,
	"input_cost_per_request":                    Request,
	"file_search_cost_per_1k_calls":             FileSearch,
	"code_interpreter_cost_per_session":         CodeSession,
}

// second names of a price give way to the first.
func secondName(field string) bool { return strings.HasSuffix(field, "_cache_hit") }

// field is a price's name taken apart.
type field struct {
	unit    Unit
	service Service
	above   int64 // tokens; 0 is the base
}

// cutField takes a price's name apart: the unit, "_above_200k_tokens" and the service.
// ok is false for what is no price that is known.
func cutField(name string) (f field, ok bool) {
	for suffix, s := range liteLLMServices {
		if rest, has := strings.CutSuffix(name, suffix); has {
			name, f.service = rest, s
			break
		}
	}
	if rest, has := strings.CutSuffix(name, "_tokens"); has {
		i := strings.LastIndex(rest, "_above_")
		if i < 0 {
			return f, false
		}
		digits, thousands := strings.CutSuffix(rest[i+len("_above_"):], "k")
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n <= 0 {
			return f, false
		}
		if thousands {
			n *= 1000
		}
		name, f.above = rest[:i], n
	}
	f.unit, ok = liteLLMUnits[name]
	return f, ok
}

// liteLLMServices are what the name of a price for a service ends in.
var liteLLMServices = map[string]Service{"_flex": Flex, "_priority": Priority, "_batches": Batch, "_batch": Batch}

// decimalRatio reads a multiplier such as "1.1": more than nothing, at most 60, to three
// decimals.
func decimalRatio(s string) (Ratio, error) {
	const most, thousandth = 60, money.Rate(1_000_000_000_000)
	rate, err := money.ParseRate(s)
	if err != nil {
		return Ratio{}, fmt.Errorf("multiplier %q is no number", s)
	}
	if rate <= 0 || rate > most*1000*thousandth || rate%thousandth != 0 {
		return Ratio{}, fmt.Errorf("multiplier %q: must be above 0, at most %d, with at most three decimals", s, most)
	}
	num, den := uint32(rate/thousandth), uint32(1000)
	a, b := num, den
	for b != 0 {
		a, b = b, a%b
	}
	return Ratio{num / a, den / a}, nil
}

// parseTokens reads a number of tokens, which tables also write as 256000.0.
func parseTokens(s string) (int64, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err == nil && n >= 0 && n <= maxTokens && strings.Trim(fraction, "0") == "" {
		return n, nil
	}
	usd, err := money.RoundUSD(s) // with an exponent
	if err != nil || usd < 0 || usd%money.Dollar != 0 {
		return 0, fmt.Errorf("%q is no number of tokens", s)
	}
	return int64(usd / money.Dollar), nil
}

// maxTokens is longer than any prompt.
const maxTokens = 1 << 40
