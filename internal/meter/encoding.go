package meter

import (
	"net/http"
	"slices"
	"strings"
)

// encodings are those of a response that can be read while it passes.
var encodings = []string{"gzip", "x-gzip", "deflate", "br", "zstd", "identity"}

// limitEncodings takes out of a request the codings that would hide what a call uses.
func limitEncodings(h http.Header) {
	lines := h["Accept-Encoding"]
	if len(lines) == 0 {
		return // the transport asks for one that it undoes itself
	}
	var kept []string
	all := true
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(item, ";")
			if slices.Contains(encodings, strings.ToLower(strings.TrimSpace(name))) {
				kept = append(kept, strings.TrimSpace(item))
			} else {
				all = false
			}
		}
	}
	switch {
	case all:
	case len(kept) == 0:
		h["Accept-Encoding"] = []string{"identity"}
	default:
		h["Accept-Encoding"] = []string{strings.Join(kept, ", ")}
	}
}
