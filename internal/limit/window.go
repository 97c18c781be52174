package limit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// levels are the calendar windows, and what a client is told that has used one up.
var levels = map[string]string{
	"minute": "minutely", "hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly",
}

// lengths are those of calendar windows that are always as long.
var lengths = map[string]time.Duration{
	"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// window reads a rule's window. words is how the config says it; id is the same for
// all ways to say it.
func (rc *Rule) window(zone *time.Location) (w *store.Window, words, id string, err error) {
	if rc.Unit == Concurrent {
		if rc.Window != "" || rc.Rolling || rc.Burst != "" {
			return nil, "", "", errors.New("a limit of concurrent calls has no window")
		}
		return store.None(), "", "", nil
	}
	words = rc.Window
	if words == "" {
		return nil, "", "", fmt.Errorf("limit of %s needs a window, such as `per hour`", rc.Unit)
	}
	if rc.Rolling && rc.Burst != "" {
		return nil, "", "", errors.New("a limit is either rolling or has a burst")
	}
	if !rc.Rolling && rc.Burst == "" {
		if _, ok := levels[words]; ok {
			w, err = store.Calendar(words, zone)
			id = words
			if zone != time.UTC {
				id += " " + zone.String()
			}
			return w, words, id, err
		}
	}

	length, ok := lengths[words]
	if !ok {
		if words == "month" {
			return nil, "", "", errors.New("a month has no fixed length: use a duration such as 30d for a rolling window or a burst")
		}
		// a µ would not fit into the header fields that name the window
		if length, err = caddy.ParseDuration(words); err != nil || strings.ContainsFunc(words, notASCII) {
			return nil, "", "", fmt.Errorf("window %q is neither minute, hour, day, week or month nor a duration such as 90s or 30d", words)
		}
	}
	switch {
	case rc.Rolling:
		w, err = store.Rolling(length)
		words, id = "rolling "+words, "rolling "+length.String()
	case rc.Burst != "":
		w, err = store.Bucket(length)
		words, id = words+" burst", "burst "+length.String()
	default:
		w, err = store.Fixed(length)
		id = length.String()
	}
	if err != nil {
		return nil, "", "", fmt.Errorf("window %q: %w", rc.Window, err)
	}
	return w, words, id, nil
}

func notASCII(r rune) bool { return r > '~' }

// level is what a client is told about a window that is used up.
func level(words string) string {
	if l, ok := levels[words]; ok {
		return l
	}
	if words == "" {
		return string(Concurrent)
	}
	return strings.TrimSuffix(words, " burst")
}
