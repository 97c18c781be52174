package usage

import (
	"net/http"
	"net/url"
	"strings"
)

// setRealtime finds out whether an upgrade can be metered, and of which model it is.
//
// Only a WebSocket of HTTP/1.1 can (RFC 6455, section 4.1); the caller knows the version.
func (ep *Endpoint) setRealtime(method string, segs []string, u *url.URL, h http.Header) {
	if ep.Model == "" {
		ep.Model = endpointQueryModel(u)
	}
	if method != http.MethodGet || len(segs) == 0 || len(h["Upgrade"]) != 1 || !strings.EqualFold(h["Upgrade"][0], "websocket") {
		return
	}
	last := segs[len(segs)-1]
	switch {
	case strings.EqualFold(last, "realtime"):
		ep.API, ep.Dialect = OpenAIRealtime, OpenAI
	case strings.EqualFold(last, "responses"):
		// each message names its model, whatever the address says
		ep.API, ep.Dialect, ep.Model = OpenAIResponses, OpenAI, ""
	case hasSuffixFold(last, ".BidiGenerateContent"), strings.EqualFold(last, "BidiGenerateContent"):
		// the first message names the model
		ep.API, ep.Dialect, ep.Model = GeminiLive, Gemini, ""
	default:
		return
	}
	ep.Class = Realtime
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// endpointQueryModel is the model of a Realtime address, or the deployment where it is
// Azure's, if it names just one. The case of parameters matters at some servers only.
func endpointQueryModel(u *url.URL) (model string) {
	if strings.Contains(u.RawQuery, ";") {
		return "" // which separates parameters for some servers
	}
	named := false
	for name, values := range u.Query() {
		if !strings.EqualFold(name, "model") && !strings.EqualFold(name, "deployment") {
			continue
		}
		for _, v := range values {
			if named && v != model {
				return ""
			}
			model, named = v, true
		}
	}
	return model
}
