package prices

import (
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// addFees adds what is not charged by the token, and takes out of n the tokens that a
// fee pays for. lacking is set if something has no price.
func (s *sums) addFees(c *Call, u *usage.Usage, n *buckets, p *picker, provider string) (lacking bool) {
	tool := func(count int64, rate money.Rate, ok bool) {
		lacking = lacking || count > 0 && !ok
		s.fees.Add(count, rate)
	}
	add := func(count int64, rate money.Rate, ok bool) {
		tool(count, rate, ok)
		s.charged = s.charged || count > 0 && ok
	}
	if rate, ok := p.fee(Request); ok && !c.inner {
		add(1, rate, true)
	}
	s.addImages(c, u, n, p, add)
	s.addSeconds(c, u, n, p, &lacking)
	if c.Hints.Characters > 0 && u.Total() == 0 {
		rate, ok := p.fee(CharacterIn)
		add(c.Hints.Characters, rate, ok)
	}
	if u.Pages > 0 {
		rate, ok := p.fee(Page)
		add(u.Pages, rate, ok)
	}
	if u.Annotated > 0 {
		rate, ok := p.fee(AnnotatedPage)
		add(u.Annotated, rate, ok)
	}
	if u.SearchUnits > 0 {
		// Some rank by the token and tell search units beside.
		rate, ok := p.fee(Query)
		add(u.SearchUnits, rate, ok || n.prompt() > 0)
	}
	// Tools come on top of what the model itself costs.
	if searches := p.searches(u, provider, c.inner); searches > 0 {
		context := c.Terms.SearchContext
		if context == "" {
			context = c.Hints.SearchContext
		}
		rate, ok := p.searchFee(context, provider)
		tool(searches, rate, ok)
	}
	if u.FileSearches > 0 {
		rate, ok := p.vendorFee(FileSearch, provider)
		tool(u.FileSearches, rate, ok)
	}
	if u.CodeSessions > 0 {
		rate, ok := p.vendorFee(CodeSession, provider)
		tool(u.CodeSessions, rate, ok)
	}
	return lacking
}

// addImages adds the fee for images made, unless their tokens have a price of their
// own: then the tokens say it better.
func (s *sums) addImages(c *Call, u *usage.Usage, n *buckets, p *picker, add func(int64, money.Rate, bool)) {
	if u.Images <= 0 && c.API != usage.OpenAIImages {
		return
	}
	makes := p.row.Mode == "image_generation" || p.row.Mode == "image_edit"
	byToken := p.row.Rates.has(ImageOut)
	if makes && byToken && n[ImageOut] == 0 && c.API == usage.OpenAIImages {
		// An answer that does not say what its output is made of made images.
		n[ImageOut], n[Output] = n[Output], 0
	}
	if u.Images <= 0 || byToken && n[ImageOut] > 0 {
		return
	}
	rate, ok := p.firstFee(ImageMade)
	if !ok && makes || rate == 0 && makes {
		if r, has := p.firstFee(ImageSent); has {
			rate, ok = r, true
		}
	}
	count := u.Images
	if !ok || rate == 0 {
		if r, has := p.firstFee(PixelIn, PixelOut); has {
			w, h, sized := size(c.Hints.ImageSize)
			if !sized {
				w, h = 1024, 1024 // what vendors make if nothing is asked
				p.doubt(whyLacking)
			}
			rate, ok, count = r, true, mulSaturating(count, w*h)
		}
	}
	if ok {
		n[ImageOut] = 0
		if makes {
			n[Output] = 0
		}
		add(count, rate, true)
		return
	}
	if n[ImageOut]+n[Output] > 0 {
		return
	}
	if _, ok := p.rate(ImageOut); ok {
		// Its tokens were not told, or some estimate holds none.
		n[ImageOut] = mulSaturating(u.Images, mostImageTokens)
		p.bound(whyUntold)
		return
	}
	add(count, 0, false)
}

// mostImageTokens are the output tokens of an image of high quality at most, in the sizes
// that OpenAI names: gpt-image-1 counts 6,240 for one of 1024×1536, and gpt-image-2, by
// $0.211 at $30 for a million tokens, 7,034 for one of 1024×1024. One of 3584×2048, which
// only gpt-image-2 makes and only who asks for it gets, may count more.
const mostImageTokens = 7034

// addSeconds adds what is charged by time: one rate for what was listened to, the
// first of input's and output's that is not zero, and one for what was made.
func (s *sums) addSeconds(c *Call, u *usage.Usage, n *buckets, p *picker, lacking *bool) {
	if u.AudioMillis > 0 {
		rate, ok := p.firstFee(SecondIn, AudioSecondIn, SecondOut)
		switch {
		case ok:
			s.charged = true
			s.millis.Add(u.AudioMillis, rate)
		case n.prompt() == 0 && n[Output] == 0:
			*lacking = true
		}
	}
	if c.VideoMillis > 0 {
		rate, ok := p.firstFee(VideoSecondOut, SecondOut)
		switch {
		case ok:
			s.charged = true
			s.millis.Add(c.VideoMillis, rate)
		case n[VideoOut] == 0:
			*lacking = true
		}
	}
}

// searches is how many searches of the web are charged.
func (p *picker) searches(u *usage.Usage, provider string, inner bool) int64 {
	n := max(u.WebSearches, 0)
	if p.row.SearchAlways && !inner {
		n = max(n, 1)
	}
	if n > 0 && (p.row.SearchPerPrompt || !p.row.Rates.has(SearchMedium) && promptSearch(p.row.Key, provider)) {
		return max(u.Grounded, 1)
	}
	return n
}

// searchFee is the price of one search that reads so much.
func (p *picker) searchFee(context, provider string) (rate money.Rate, ok bool) {
	u := SearchMedium
	switch context {
	case "low":
		u = SearchLow
	case "high":
		u = SearchHigh
	}
	if rate, ok = p.fee(u); ok {
		return rate, true
	}
	for _, other := range [...]Unit{SearchMedium, SearchHigh, SearchLow} {
		if rate, ok = p.fee(other); ok {
			return rate, true
		}
	}
	return p.vendorFee(SearchMedium, provider)
}

// Fees that vendors charge for tools, whatever the model.
const (
	toolSearch      = money.Rate(10_000_000_000_000) // $0.01
	toolFileSearch  = money.Rate(2_500_000_000_000)  // $0.0025
	toolSession     = money.Rate(30_000_000_000_000) // $0.03
	groundingPrompt = money.Rate(35_000_000_000_000) // $0.035
	groundingQuery  = money.Rate(14_000_000_000_000) // $0.014
)

// vendorFee is the row's fee for a tool, else the vendor's.
func (p *picker) vendorFee(u Unit, provider string) (rate money.Rate, ok bool) {
	if rate, ok = p.fee(u); ok {
		return rate, true
	}
	switch provider {
	case "openai", "azure":
		switch u {
		case SearchMedium:
			return toolSearch, true
		case FileSearch:
			return toolFileSearch, true
		case CodeSession:
			return toolSession, true
		}
	case "anthropic", "bedrock", "vertex_ai", "gemini":
		switch {
		case u != SearchMedium:
		case strings.Contains(p.row.Key, "claude"):
			return toolSearch, true
		case promptSearch(p.row.Key, provider):
			return groundingPrompt, true
		case strings.Contains(p.row.Key, "gemini-"):
			return groundingQuery, true
		}
	}
	return 0, false
}

// promptSearch reports whether Google charges the model's searches by the prompt.
func promptSearch(key, provider string) bool {
	return (provider == "gemini" || provider == "vertex_ai") &&
		(strings.Contains(key, "gemini-1") || strings.Contains(key, "gemini-2"))
}

// size reads a size in pixels, such as "1024x1536".
func size(s string) (w, h int64, ok bool) {
	a, b, found := strings.Cut(s, "x")
	if !found {
		return 0, 0, false
	}
	w, errW := strconv.ParseInt(a, 10, 32)
	h, errH := strconv.ParseInt(b, 10, 32)
	ok = errW == nil && errH == nil && w > 0 && h > 0 && w <= maxSide && h <= maxSide
	return w, h, ok
}

// maxSide is longer than any image is, in pixels.
const maxSide = 1 << 16

// mulSaturating multiplies counts; what is beyond an int64 is its largest.
func mulSaturating(a, b int64) int64 {
	if a > 0 && b > (1<<62)/a {
		return 1 << 62
	}
	return a * b
}
