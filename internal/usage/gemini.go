package usage

import (
	"bytes"
	"hash/maphash"
)

// geminiFamily is generateContent, its streams and embedContent of the Gemini API and
// of Vertex AI, and Vertex's predict for embeddings and pictures.
var geminiFamily = family{
	name: "gemini",
	positions: []position{
		gemModel:      {"modelVersion", word},
		gemUsage:      {"usageMetadata", mark},
		gemPrompt:     {"usageMetadata.promptTokenCount", word},
		gemCandidates: {"usageMetadata.candidatesTokenCount", word},
		gemResponse:   {"usageMetadata.responseTokenCount", word},
		gemThoughts:   {"usageMetadata.thoughtsTokenCount", word},
		gemToolUse:    {"usageMetadata.toolUsePromptTokenCount", word},
		gemCached:     {"usageMetadata.cachedContentTokenCount", word},
		gemTotal:      {"usageMetadata.totalTokenCount", word},
		gemTier:       {"usageMetadata.serviceTier", word},
		gemTraffic:    {"usageMetadata.trafficType", word},

		gemPromptKind:     {"usageMetadata.promptTokensDetails[].modality", word},
		gemPromptPart:     {"usageMetadata.promptTokensDetails[].tokenCount", word},
		gemToolUseKind:    {"usageMetadata.toolUsePromptTokensDetails[].modality", word},
		gemToolUsePart:    {"usageMetadata.toolUsePromptTokensDetails[].tokenCount", word},
		gemCandidatesKind: {"usageMetadata.candidatesTokensDetails[].modality", word},
		gemCandidatesPart: {"usageMetadata.candidatesTokensDetails[].tokenCount", word},
		gemResponseKind:   {"usageMetadata.responseTokensDetails[].modality", word},
		gemResponsePart:   {"usageMetadata.responseTokensDetails[].tokenCount", word},
		gemCacheKind:      {"usageMetadata.cacheTokensDetails[].modality", word},
		gemCachePart:      {"usageMetadata.cacheTokensDetails[].tokenCount", word},

		gemCandidate: {"candidates[]", mark},
		gemIndex:     {"candidates[].index", word},
		gemFinish:    {"candidates[].finishReason", word},
		gemQuery:     {"candidates[].groundingMetadata.webSearchQueries[]", word},
		gemMedia:     {"candidates[].content.parts[].inlineData.mimeType", word},
		gemText: {
			"candidates[].content.parts[].text candidates[].content.parts[].functionCall.name " +
				"candidates[].content.parts[].functionCall.args candidates[].content.parts[].executableCode.code " +
				"candidates[].content.parts[].codeExecutionResult.output", text,
		},
		gemFeedback:   {"promptFeedback", mark},
		gemEmbedding:  {"embedding", mark},
		gemEmbeddings: {"embeddings", mark},

		gemPrediction: {"predictions[]", mark},
		gemStatistics: {
			"predictions[].embeddings.statistics.token_count predictions[].embeddings.statistics.tokenCount", word,
		},
		gemPicture: {"predictions[].bytesBase64Encoded", mark},
	},
	extract: extractGemini,
}

const (
	gemModel = iota
	gemUsage
	gemPrompt
	gemCandidates
	gemResponse // Live's word for candidates
	gemThoughts
	gemToolUse
	gemCached
	gemTotal
	gemTier
	gemTraffic    // Vertex's word for the tier
	gemPromptKind // each part follows its kind
	gemPromptPart
	gemToolUseKind
	gemToolUsePart
	gemCandidatesKind
	gemCandidatesPart
	gemResponseKind
	gemResponsePart
	gemCacheKind
	gemCachePart
	gemCandidate
	gemIndex
	gemFinish
	gemQuery
	gemMedia
	gemText
	gemFeedback
	gemEmbedding
	gemEmbeddings
	gemPrediction
	gemStatistics
	gemPicture
)

func extractGemini(v view, t *tally) bool {
	candidates := v.count(gemCandidate)
	counted := v.kind(gemUsage) == typeObject
	switch {
	case counted, candidates > 0, v.kind(gemFeedback) == typeObject:
	case v.kind(gemPrediction) == typeObject:
		t.predictions(v)
		return true
	default:
		return false
	}
	g := made(&t.gemini)
	t.served(v, gemModel)
	if v.kind(gemEmbedding) != typeAbsent || v.kind(gemEmbeddings) != typeAbsent {
		t.output = true
	}
	finished := false
	if candidates > 0 {
		finished = v.word(gemFinish) != nil
		t.unended = true
		t.ended = t.ended || finished
		t.streamed += v.text(gemText)
		// Counts grow from piece to piece, where they are in each.
		t.piece = v.kind(gemMedia) == typeAbsent && v.kind(gemTotal) == typeAbsent
		g.several = g.several || candidates > 1 || string(v.raw(gemIndex)) > "0"
		v.each(gemMedia, func(_ int32, _ byte, raw []byte) {
			t.output = true
			if bytes.HasPrefix(raw, []byte(`"image/`)) {
				g.images++
			}
		})
		v.each(gemQuery, func(_ int32, _ byte, raw []byte) { g.searched(unquote(raw)) })
	}
	if counted {
		g.take(t, geminiCounts{
			prompt:   v.number(gemPrompt),
			toolUse:  v.number(gemToolUse),
			output:   v.number(gemCandidates).or(v.number(gemResponse)),
			thoughts: v.number(gemThoughts),
			cached:   v.number(gemCached),
			total:    v.number(gemTotal),
			in:       v.modalities(gemPromptKind).plus(v.modalities(gemToolUseKind)),
			out:      v.modalities(gemCandidatesKind).plus(v.modalities(gemResponseKind)),
			cache:    v.modalities(gemCacheKind),
		})
		tier := v.word(gemTraffic)
		if len(tier) == 0 {
			tier = v.word(gemTier)
		}
		say(&t.terms.ServiceTier, tier)
		// Of several candidates, one may end before the others do.
		t.complete = t.complete || finished && !g.several
	}
	return true
}

// geminiTally is what only Gemini's documents tell.
type geminiTally struct {
	seen       bool  // usage came
	output     int64 // the most that any chunk counted
	reasoning  int64 // the same
	several    bool  // candidates
	images     int64 // in the answer
	queries    []uint64
	searchSeed maphash.Seed
}

// counted tells whether usage came in Gemini's words.
func (t *tally) counted() bool { return t.gemini != nil && t.gemini.seen }

// geminiCounts is a usage object in the words of Google: the parts of a prompt and of
// an answer, each beside the others. What is zero is left out.
type geminiCounts struct {
	prompt, toolUse, output, thoughts, cached, total optional

	in, out, cache modalities
}

// modalities is how much of a count is what. The rest is text; documents count as text.
type modalities struct{ image, audio, video int64 }

func (m modalities) plus(n modalities) modalities {
	return modalities{m.image + n.image, m.audio + n.audio, m.video + n.video}
}

// add adds the tokens of a modality, which is in capitals or not.
func (m *modalities) add(name []byte, tokens int64) {
	switch {
	case bytes.EqualFold(name, []byte("IMAGE")):
		m.image += tokens
	case bytes.EqualFold(name, []byte("AUDIO")):
		m.audio += tokens
	case bytes.EqualFold(name, []byte("VIDEO")):
		m.video += tokens
	}
}

// usage brings the counts into the normal form.
func (c *geminiCounts) usage() Usage {
	u := Usage{
		Input:     c.prompt.n + c.toolUse.n,
		Output:    c.output.n + c.thoughts.n,
		CacheRead: c.cached.n,
		Reasoning: c.thoughts.n,
		ImageIn:   c.in.image,
		AudioIn:   c.in.audio,
		VideoIn:   c.in.video,
		ImageOut:  c.out.image,
		AudioOut:  c.out.audio,
		VideoOut:  c.out.video,

		ImageCached: c.cache.image,
		AudioCached: c.cache.audio,
	}
	if c.thoughts.n <= c.output.n && c.total.known && c.total.n == u.Input+c.output.n {
		u.Output = c.output.n // some count the thoughts among the rest
	}
	// The total is of all four. Images of several resolutions leave the prompt out.
	if rest := c.total.n - u.Input - u.Output; rest > 0 {
		if c.prompt.known {
			u.Output += rest
		} else {
			u.Input += rest
		}
	}
	u.bound()
	return u
}

// take takes the usage of a chunk. Each is of the whole call so far, and the last one
// counts: counts go down on the way as well as up.
func (g *geminiTally) take(t *tally, c geminiCounts) {
	u := c.usage()
	g.seen = true
	g.output, g.reasoning = max(g.output, u.Output), max(g.reasoning, u.Reasoning)
	t.report(u)
}

// modalities sums up the tokens of each modality among the details; the parts are at the
// position behind that of the kinds.
func (v view) modalities(kinds int) (m modalities) {
	if v.kind(kinds) == typeAbsent {
		return m
	}
	v.each(kinds, func(element int32, _ byte, raw []byte) {
		n, _ := countOf(v.at(kinds+1, element))
		m.add(unquote(raw), n)
	})
	return m
}

// predictions takes an answer of Vertex's predict: the tokens of each text that was
// embedded, or pictures.
func (t *tally) predictions(v view) {
	tokens := v.sum(gemStatistics)
	pictures := int64(v.count(gemPicture))
	t.output, t.listed = t.output || tokens.known || pictures > 0, true
	t.uncounted = t.uncounted || pictures > 0 && tokens.n == 0
	if tokens.known || pictures > 0 {
		t.report(Usage{Input: tokens.n, Images: pictures})
	}
}

// maxQueries bounds the searches told apart.
const maxQueries = 512

// searched notes a query that the model has searched the web with. Chunks repeat them.
func (g *geminiTally) searched(query []byte) {
	if len(bytes.TrimSpace(query)) == 0 || len(g.queries) == maxQueries {
		return
	}
	if len(g.queries) == 0 {
		g.searchSeed = maphash.MakeSeed()
	}
	h := maphash.Bytes(g.searchSeed, query)
	for _, q := range g.queries {
		if q == h {
			return
		}
	}
	g.queries = append(g.queries, h)
}

// conclude adds what the usage does not count, and for an answer that was cut what it
// counts too late.
func (g *geminiTally) conclude(r *Report) {
	if !g.seen || !r.Found {
		return
	}
	r.Usage.Images = g.images
	// Older models are billed by the prompt that was searched for, newer ones by the
	// query: the price decides.
	r.Usage.WebSearches = int64(len(g.queries))
	r.Usage.Grounded = min(r.Usage.WebSearches, 1)
	if r.Complete && !r.Failed {
		return
	}
	r.Usage.Output = max(r.Usage.Output, g.output, r.DeliveredTokens())
	r.Usage.Reasoning = max(r.Usage.Reasoning, g.reasoning)
	r.Usage.bound() // they may be of different chunks
}
