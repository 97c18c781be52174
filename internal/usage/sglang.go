package usage

// sglangFamily is the native API of SGLang: a document, an array of them for several
// answers, or events that each repeat the answer so far and count it.
var sglangFamily = family{
	name: "sglang",
	positions: []position{
		sglMeta:   {"meta_info", mark},
		sglIndex:  {"index", word},
		sglInput:  {"meta_info.prompt_tokens", word},
		sglOutput: {"meta_info.completion_tokens", word},
		sglCached: {"meta_info.cached_tokens", word},
		sglFinish: {"meta_info.finish_reason", mark},
		sglText:   {"text", text},
		sglVector: {"embedding", mark},
	},
	extract: extractSGLang,
}

const (
	sglMeta = iota
	sglIndex
	sglInput
	sglOutput
	sglCached
	sglFinish // an object, or null while there is more to come
	sglText
	sglVector
)

// sglangTally is what only this family needs.
type sglangTally struct {
	answers []sglangAnswer // of a stream
	whole   int64          // answers of an array, which come once each
	sum     Usage          // of those
}

// maxAnswers bounds the answers of a stream that are told apart. Servers take fewer.
const maxAnswers = 1024

// sglangAnswer is one answer of a stream, by its number.
type sglangAnswer struct {
	index                 int64
	input, output, cached optional
	text                  int64
	open                  bool // it has not said why it ended
}

func extractSGLang(v view, t *tally) bool {
	input, output := v.number(sglInput), v.number(sglOutput)
	if v.kind(sglMeta) != typeObject || !input.known && !output.known {
		return false
	}
	t.output = t.output || v.kind(sglVector) != typeAbsent
	open := v.kind(sglFinish) == typeNull
	index := v.number(sglIndex)
	if !index.known && !open && !t.unended {
		t.streamed += v.text(sglText)
		made(&t.sglang).add(input.n, output.n, v.number(sglCached).n, t.expected)
		return true
	}
	a := made(&t.sglang).answer(index.n)
	if a == nil {
		return true
	}
	a.input, a.output, a.cached = input.over(a.input), output.over(a.output), v.number(sglCached).over(a.cached)
	if n := v.text(sglText); n > a.text {
		t.streamed += n - a.text
		a.text = n
	}
	a.open = open
	t.unended, t.ended = true, t.sglang.ended()
	return true
}

// add takes an answer that came whole. Those to one prompt, as many as were asked for,
// stand together, and the prompt counts once.
func (s *sglangTally) add(input, output, cached, choices int64) {
	s.sum.Output += output
	if s.whole%max(1, choices) == 0 {
		s.sum.Input += input
		s.sum.CacheRead += cached
	}
	s.whole++
}

// answer is the answer of a number; nil if there are more than anybody asks for.
func (s *sglangTally) answer(index int64) *sglangAnswer {
	for i := range s.answers {
		if s.answers[i].index == index {
			return &s.answers[i]
		}
	}
	if len(s.answers) == maxAnswers {
		return nil
	}
	s.answers = append(s.answers, sglangAnswer{index: index})
	return &s.answers[len(s.answers)-1]
}

// ended tells whether every answer that came has said why it ended.
func (s *sglangTally) ended() bool {
	for i := range s.answers {
		if s.answers[i].open {
			return false
		}
	}
	return true
}

// conclude adds up the answers.
func (s *sglangTally) conclude(choices int64, r *Report) {
	if len(s.answers) == 0 && s.whole == 0 {
		return
	}
	u := s.sum
	for i := range s.answers {
		a := &s.answers[i]
		u.Output += a.output.n
		if a.index%max(1, choices) == 0 {
			u.Input += a.input.n
			u.CacheRead += a.cached.n
		}
	}
	u.bound()
	r.Usage, r.Found = u, u != (Usage{}) || r.Delivered == 0
}
