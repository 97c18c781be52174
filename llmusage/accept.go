package llmusage

import (
	"math"
	"mime"
	"strconv"
	"strings"
)

// rangesMost bounds the media ranges that are looked at.
const rangesMost = 32

// wantsHTML tells whether who sends these Accept fields would rather have HTML than JSON,
// as browsers say they do. Who does not care gets JSON.
func wantsHTML(accept []string) bool {
	fields := strings.Join(accept, ",")
	return quality(fields, "text", "html") > quality(fields, "application", "json")
}

// quality is how welcome a type is, from 0 to 1: the weight of the most specific media
// range that it is in (RFC 9110, 12.5.1), and 0 if it is in none. What cannot be read does
// not count.
func quality(fields, kind, subtype string) float64 {
	best, q := -1, 0.0
	for i, part := range strings.SplitN(fields, ",", rangesMost+1) {
		if i == rangesMost {
			break
		}
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		specific := -1
		switch media {
		case kind + "/" + subtype:
			specific = 2
		case kind + "/*":
			specific = 1
		case "*/*":
			specific = 0
		}
		if specific <= best {
			continue
		}
		weight := 1.0
		if s, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(s, 64); err != nil || math.IsNaN(weight) || weight < 0 || weight > 1 {
				continue
			}
		}
		best, q = specific, weight
	}
	return q
}
