package prices

import (
	"math"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// buckets are a call's tokens by unit. They are disjoint, so that nothing is billed
// twice.
type buckets [Citation + 1]int64

// split divides usage into buckets. A part that is larger than what is left of its
// whole is cut to it; consistent is then false.
func split(u *usage.Usage) (n buckets, consistent bool) {
	consistent = true
	left := int64(0)
	take := func(unit Unit, count int64) int64 {
		if count < 0 || count > left {
			consistent = false
			count = min(max(count, 0), left)
		}
		n[unit] = count
		left -= count
		return count
	}
	whole := func(count int64) {
		consistent = consistent && count >= 0
		left = max(count, 0)
	}

	// What was read from a cache is of text but for what is told to be of audio or images.
	whole(u.Input)
	input := left
	read := min(max(u.CacheRead, 0), input)
	consistent = consistent && read == u.CacheRead
	left = read
	take(AudioCached, min(u.AudioCached, max(u.AudioIn, 0)))
	take(ImageCached, min(u.ImageCached, max(u.ImageIn, 0)))
	n[CacheRead] = left
	left = input - read
	take(CacheWrite1h, u.CacheWrite1h)
	take(CacheWrite5m, u.CacheWrite5m)
	take(AudioIn, max(u.AudioIn, 0)-n[AudioCached])
	take(ImageIn, max(u.ImageIn, 0)-n[ImageCached])
	take(VideoIn, u.VideoIn)
	n[Input] = left

	whole(u.Output)
	take(AudioOut, u.AudioOut)
	take(ImageOut, u.ImageOut)
	take(VideoOut, u.VideoOut)
	take(Reasoning, u.Reasoning)
	n[Output] = left

	n[Citation] = max(u.Citations, 0)
	return n, consistent
}

// promptUnits are the kinds of tokens that a prompt is made of, outputUnits those of an
// answer.
var (
	promptUnits = [...]Unit{Input, CacheRead, CacheWrite5m, CacheWrite1h, AudioIn, AudioCached, ImageIn, ImageCached, VideoIn}
	outputUnits = [...]Unit{Output, Reasoning, AudioOut, ImageOut, VideoOut}
)

// prompt is the length that decides the tier: all of the prompt, cached or not.
func (n *buckets) prompt() int64 {
	var sum int64
	for _, u := range promptUnits {
		sum += n[u] // parts of one int64
	}
	return sum
}

// sums are the exact parts of a cost.
type sums struct {
	tokens  money.Sum // to be multiplied
	fees    money.Sum
	millis  money.Sum // a thousandth of each
	charged bool      // something had a price, be it zero
}

// addTokens adds the price of tokens. lacking is set if some have none. Where a fee pays
// for the call, tokens without a price cost nothing.
func (s *sums) addTokens(n *buckets, p *picker, paid bool) (lacking bool) {
	for i, count := range n {
		if count == 0 {
			continue
		}
		u := Unit(i)
		rate, ok := p.rate(u)
		if !ok && u == Output {
			rate, ok = p.dearest()
		}
		if !ok {
			lacking = lacking || !paid && u != Citation
			continue
		}
		s.charged = true
		s.tokens.Add(count, rate)
	}
	if !s.charged && !lacking {
		s.charged = true // nothing was used
	}
	return lacking
}

// dearest stands in for the rate of text that a row puts no price on: that of the
// dearest other output.
func (p *picker) dearest() (rate money.Rate, ok bool) {
	for _, u := range outputUnits[1:] {
		if r, has := p.stated(u); has {
			rate, ok = max(rate, r), true
		}
	}
	if ok {
		p.doubt(whyLacking)
	}
	return rate, ok
}

// total is the cost: rounded once, half away from zero. ok is false if a USD does not
// hold it.
func (s *sums) total(f factor) (usd money.USD, ok bool) {
	const thousand = 1000
	tokens, fees, millis := s.tokens, s.fees, s.millis
	if f == one && millis == (money.Sum{}) {
		tokens.AddSum(fees)
		return tokens.Over(1)
	}
	tokens.Times(f.num)
	tokens.Times(thousand)
	fees.Times(f.den)
	fees.Times(thousand)
	millis.Times(f.den)
	tokens.AddSum(fees)
	tokens.AddSum(millis)
	return tokens.Over(f.den * thousand)
}

// factor is a product of ratios.
type factor struct{ num, den uint64 }

var one = factor{1, 1}

// maxRatio bounds the two parts of a ratio, so that the product of four fits.
const maxRatio = 1000

// times multiplies by a ratio; one that is not set changes nothing.
func (f factor) times(r Ratio) factor {
	if r.Num == 0 || r.Den == 0 {
		return f
	}
	return factor{f.num * uint64(min(r.Num, math.MaxUint16)), f.den * uint64(min(r.Den, maxRatio))}
}

// above reports whether the ratio makes dearer.
func (r Ratio) above() bool { return r.Den != 0 && r.Num > r.Den }
