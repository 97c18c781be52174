package llmusage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/store"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// The page is whole in itself: it loads nothing, runs no script, and is not to be framed.
// Its one style sheet is known by its hash.
var (
	policy = "default-src 'none'; style-src 'sha256-" + cssHash() + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	pageTemplate = template.Must(template.New("page").Parse(strings.Replace(pageHTML, "/* page.css */", pageCSS, 1)))
)

func cssHash() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// page is what the template shows: limits, or what the problem is.
type page struct {
	Problem string

	Consumer, KeyID, Group string
	At                     stamp
	Current                bool
	Spent                  []bar // limits that nothing is left of
	Bars                   []bar
}

// stamp is an instant, for people and for programs.
type stamp struct{ ISO, Text string }

// bar is one limit.
type bar struct {
	Instance string
	Title    string // `Tokens per hour`
	Model    string
	Models   string // globs
	PerModel bool
	Group    string

	Used, Reserved, Remaining, Limit string // with their unit where that is not in the title
	Held                             bool   // something is reserved
	Concurrent                       bool   // calls count while they are at work, and not at all afterwards
	Permille                         int64  // of the limit that is not free
	State                            string // `used up`, `nearly used up`, or empty
	Class                            string // of the state

	Resets *stamp
	Wait   string // until then: `24 min`
	Slides bool   // what is used becomes free bit by bit until then
}

func pageOf(d *document) *page {
	p := &page{Consumer: d.Consumer, KeyID: d.KeyID, Group: d.Group, At: stampOf(d.At, d.At), Current: d.Current}
	for i := range d.Limits {
		b := barOf(&d.Limits[i], d.At)
		if b.Group == d.Group {
			b.Group = ""
		}
		p.Bars = append(p.Bars, b)
		if d.Limits[i].quota.Remaining == 0 {
			p.Spent = append(p.Spent, b)
		}
	}
	return p
}

// nearly is how much of a limit is taken when little is left, in thousandths.
const nearly = 800

func barOf(r *row, now time.Time) bar {
	q := &r.quota
	b := bar{
		Instance: r.Instance, Title: titleOf(q), Model: r.Model, Models: strings.Join(r.Models, ", "), PerModel: r.PerModel, Group: r.Group,
		Used: amountOf(q, q.Used, up), Reserved: amountOf(q, q.Reserved, up), Remaining: amountOf(q, q.Remaining, down), Limit: amountOf(q, q.Limit, down),
		Held: q.Reserved > 0, Permille: permille(q.Limit-q.Remaining, q.Limit),
	}
	if kind := q.Store.Window.Kind(); kind == store.KindNone {
		b.Concurrent, b.Used = true, b.Reserved // a call is used for as long as it is held
	} else {
		b.Slides = kind == store.KindRolling || kind == store.KindBucket
	}
	switch {
	case q.Remaining == 0:
		b.State, b.Class = "used up", "spent"
	case b.Permille >= nearly:
		b.State, b.Class = "nearly used up", "near"
	}
	if q.ResetsAt != nil && q.ResetsAt.After(now) && q.Limit > q.Remaining {
		s := stampOf(*q.ResetsAt, now)
		b.Resets, b.Wait = &s, wait(q.ResetsAt.Sub(now))
	}
	return b
}

// permille is part of whole in thousandths, from 0 to 1000; 1000 is all of it.
func permille(part, whole int64) int64 {
	if part >= whole {
		return 1000
	}
	if part <= 0 {
		return 0
	}
	return min(int64(float64(part)/float64(whole)*1000), 999)
}

// stampOf is an instant as people read it, with its day if that is not the same as now.
func stampOf(t, now time.Time) stamp {
	t = t.UTC()
	layout := "15:04 UTC"
	if t.Sub(now) < time.Minute {
		layout = "15:04:05 UTC"
	}
	if t.Format(time.DateOnly) != now.UTC().Format(time.DateOnly) {
		day := "Mon 2 Jan, "
		if t.Sub(now) > 300*24*time.Hour {
			day = "2 Jan 2006, "
		}
		layout = day + layout
	}
	return stamp{t.Format(time.RFC3339), t.Format(layout)}
}

// titles are the units as a heading begins with them.
var titles = map[string]string{
	"input_tokens": "Input tokens", "output_tokens": "Output tokens", "uncached_tokens": "Uncached tokens",
	"audio_seconds": "Seconds of audio", "video_seconds": "Seconds of video",
	"usd": "US dollars", "concurrent": "Calls at one time",
}

// titleOf is a rule as a heading: its words without the globs, which stand beneath.
func titleOf(q *llmapp.Quota) string {
	words, _, _ := strings.Cut(q.Words, " (")
	unit, rest, _ := strings.Cut(words, " ")
	title := titles[unit]
	if title == "" {
		first, size := utf8.DecodeRuneInString(unit)
		title = string(unicode.ToUpper(first)) + unit[size:]
	}
	if steady, ok := strings.CutSuffix(rest, " burst"); ok {
		rest = steady + ", with a burst"
	}
	return strings.TrimSpace(title + " " + rest)
}

func writePage(w http.ResponseWriter, r *http.Request, status int, p *page) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return err
	}
	return write(w, r, status, "text/html; charset=utf-8", b.Bytes())
}
