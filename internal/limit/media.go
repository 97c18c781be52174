package limit

import (
	"net/http"
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// media is what a call has of pictures, recordings and videos, known before it is made.
type media struct {
	images    int64 // that are sent
	generated int64 // that are asked for
	drawn     int64 // 1 if it may draw others besides, by a tool or beside text
	audio     int64 // milliseconds
	video     int64 // milliseconds
}

// of is how much of a unit a call has. One that may draw is taken to draw one picture, so
// that it is refused when the limit is reached.
func (m *media) of(u Unit) int64 {
	switch u {
	case Images:
		return add(add(m.images, m.generated), m.drawn)
	case AudioSeconds:
		return m.audio
	case VideoSeconds:
		return m.video
	default:
		return 0
	}
}

// mediaOf works out what a call has of what the rules count. It is refused where the
// length of a recording must be known and is not.
func mediaOf(r *http.Request, call *meter.Call, rules []*rule) (media, *Refusal) {
	if uncounted(call) || !slices.ContainsFunc(rules, func(ru *rule) bool { return ru.media }) {
		return media{}, nil
	}
	var seconds, audio, video bool // audio and video: those that can refuse
	for _, ru := range rules {
		switch ru.unit {
		case AudioSeconds:
			seconds, audio = true, audio || !ru.shadow
		case VideoSeconds:
			seconds, video = true, video || !ru.shadow
		default:
		}
	}
	q := call.Request
	m := media{images: int64(q.Images), generated: q.GeneratedImages, audio: q.AudioMillis, video: q.VideoMillis}
	if q.Draws {
		m.drawn = 1
	}
	if !seconds {
		return m, nil
	}
	said, err := call.TrustedDurations(r.Header)
	if err != nil {
		return m, &Refusal{Status: http.StatusBadRequest, Code: "invalid_duration", Message: err.Error()}
	}
	// what was measured is true where somebody says less
	m.audio, m.video = max(m.audio, said.Audio), max(m.video, said.Video)
	// what is said of one kind says nothing of the other, which may be the one that is sent
	lacks := audio && !said.AudioSaid || video && !said.VideoSaid && q.API != usage.OpenAIAudio
	if unknown := q.DurationUnknown || call.Endpoint.Class == usage.Realtime; unknown && lacks {
		return m, &Refusal{
			Status: http.StatusBadRequest, Code: "duration_unknown",
			Message: "this gateway admits only recordings and videos whose length it can tell: send the file itself, in a common format",
		}
	}
	return m, nil
}

// settled is what of a unit of media a call has used in the end. What the answer counts
// counts, where it does.
func (m *media) settled(u Unit, o *meter.Outcome, used *usage.Usage) int64 {
	if o.Source == meter.SourceNone {
		return 0
	}
	switch u {
	case Images:
		if used.Images > 0 {
			return add(m.images, used.Images)
		}
		return add(m.images, m.generated)
	case AudioSeconds:
		if used.AudioMillis > 0 {
			return used.AudioMillis
		}
		return m.audio
	default:
		return m.of(u)
	}
}
