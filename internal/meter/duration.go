package meter

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Durations are how long recordings and videos play, in milliseconds.
type Durations struct {
	Audio, Video int64
	// AudioSaid and VideoSaid are set if somebody said so of that kind.
	AudioSaid, VideoSaid bool
}

// maxDuration is the longest that is believed.
const maxDuration = 31 * 24 * time.Hour

// trusted are the header fields by which somebody in front of the gateway says how long
// recordings and videos play.
type trusted struct{ audio, video []string }

// errDurationHeader is for a field of which it is not clear what it is about.
var errDurationHeader = errors.New("a header that is trusted must have either audio or video in its name, such as X-Audio-Duration")

// CheckDurationHeader tells whether a header field can be one that says a duration.
func CheckDurationHeader(name string) error {
	lower := strings.ToLower(name)
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
		return fmt.Errorf("%q is not the name of a header", name)
	}
	if strings.Contains(lower, "audio") == strings.Contains(lower, "video") {
		return fmt.Errorf("%q: %w", name, errDurationHeader)
	}
	return nil
}

func newTrusted(names []string) *trusted {
	t := new(trusted)
	for _, name := range names {
		name = http.CanonicalHeaderKey(name)
		if strings.Contains(strings.ToLower(name), "video") {
			t.video = append(t.video, name)
		} else {
			t.audio = append(t.audio, name)
		}
	}
	return t
}

// TrustedDurations reads the header fields that the operator trusts. What they say must
// be seconds, as a decimal number from 0 to 31 days, and the same wherever it is said.
// The error may be shown to the client.
func (c *Call) TrustedDurations(h http.Header) (d Durations, err error) {
	t := c.m.trusted.Load()
	if t == nil {
		return d, nil
	}
	if d.Audio, err = t.read(h, t.audio, &d.AudioSaid); err != nil {
		return Durations{}, err
	}
	if d.Video, err = t.read(h, t.video, &d.VideoSaid); err != nil {
		return Durations{}, err
	}
	return d, nil
}

func (*trusted) read(h http.Header, names []string, said *bool) (millis int64, err error) {
	came := false
	for _, name := range names {
		for _, v := range h[name] {
			n, ok := parseSeconds(v)
			switch {
			case !ok:
				return 0, fmt.Errorf("the header %s must be seconds, such as 12.5", name)
			case came && n != millis:
				return 0, fmt.Errorf("the header %s contradicts another one", name)
			}
			millis, came, *said = n, true, true
		}
	}
	return millis, nil
}

// parseSeconds reads digits, which may have a point among them, as milliseconds, rounded
// up: no sign, no exponent, no word.
func parseSeconds(s string) (millis int64, ok bool) {
	s = strings.TrimSpace(s)
	whole, fraction, point := strings.Cut(s, ".")
	if !digits(whole) || point && !digits(fraction) || len(whole) > 9 {
		return 0, false
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return 0, false
	}
	millis = seconds * 1000
	for i, scale := 0, int64(100); i < len(fraction); i, scale = i+1, scale/10 {
		if scale > 0 {
			millis += int64(fraction[i]-'0') * scale
		} else if strings.Trim(fraction[i:], "0") != "" {
			millis++
			break
		}
	}
	return millis, millis <= maxDuration.Milliseconds()
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
