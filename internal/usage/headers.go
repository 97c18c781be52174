package usage

import "net/http"

// headerTally is what the header of a response counts. Bedrock counts there for every
// family of models, TGI for its own API, and Fireworks counts only the prompt.
type headerTally struct {
	input, output optional // input includes the cache
	cached        optional
	written       optional

	tier, speed string // that served; Bedrock and Gemini
}

// take reads the header of the response.
func (h *headerTally) take(header http.Header) {
	say(&h.tier, headerField(header, "X-Gemini-Service-Tier"))
	say(&h.tier, headerField(header, "X-Amzn-Bedrock-Service-Tier"))
	say(&h.speed, headerField(header, "X-Amzn-Bedrock-Performanceconfig-Latency"))
	if input := headerCount(header, "X-Amzn-Bedrock-Input-Token-Count"); input.known {
		h.output = headerCount(header, "X-Amzn-Bedrock-Output-Token-Count")
		h.cached = headerCount(header, "X-Amzn-Bedrock-Cache-Read-Input-Token-Count")
		h.written = headerCount(header, "X-Amzn-Bedrock-Cache-Write-Input-Token-Count")
		input.n += h.cached.n + h.written.n
		h.input = input
		return
	}
	if h.input = headerCount(header, "X-Prompt-Tokens"); h.input.known {
		h.output = headerCount(header, "X-Generated-Tokens")
		return
	}
	if h.input = headerCount(header, "Fireworks-Prompt-Tokens"); h.input.known {
		h.cached = headerCount(header, "Fireworks-Cached-Prompt-Tokens")
	}
}

// headerField is [http.Header.Get] for a name in canonical form: to bring every name into
// it once more costs more than all else that is read of most headers.
func headerField(header http.Header, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func headerCount(header http.Header, name string) (o optional) {
	o.n, o.known = countOfDigits(headerField(header, name))
	return o
}

// conclude puts the counts into the report where the body had none; a body repeats
// them. Where the header counts only the prompt, the output is at least a token for
// every four bytes.
func (h *headerTally) conclude(r *Report) {
	switch {
	case !h.input.known:
		return
	case r.Found:
		if r.Usage.CacheRead == 0 && r.Usage.Input == h.input.n {
			r.Usage.CacheRead = h.cached.n
			r.Usage.bound()
		}
		return
	}
	u := Usage{Input: h.input.n, Output: h.output.n, CacheRead: h.cached.n, CacheWrite5m: h.written.n}
	if !h.output.known && r.Delivered > 0 {
		u.Output = r.DeliveredTokens()
		r.Complete = false
	}
	u.bound()
	r.Usage, r.Found = u, u != (Usage{}) || r.Delivered == 0
}
