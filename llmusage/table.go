package llmusage

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"
)

// look is how a table looks.
type look struct {
	terminal bool
	width    int  // in columns; 0 is as wide as it gets
	colour   bool // what is used up is red
	blocks   bool // the terminal knows block elements
}

// column is one of a table. Cells have no line breaks or control characters.
type column struct {
	title string
	right bool // numbers
	least int  // how narrow it may get; 0 is as wide as its cells
	drop  int  // which goes first where there is no room; 0 is never
	cells []string
	width int
}

// The columns, where they need to be told apart.
const (
	barLeast = 6
	barMost  = 20
	gap      = 2
)

// render is the table of counters, with a line for each.
func render(rows []counter, l look, now time.Time) string {
	taken := make([]int64, len(rows))
	cols := []*column{
		{title: "CONSUMER", least: 8},
		{title: "INSTANCE", least: 8, drop: 4},
		{title: "RULE", least: 16},
		{title: "USED", right: true},
		{title: "RESERVED", right: true, drop: 3},
		{title: "LIMIT", right: true},
		{title: "", least: barLeast, drop: 2},
		{title: "", right: true},
		{title: "RESETS IN", drop: 1},
	}
	reserved := false
	for i := range rows {
		r := &rows[i]
		taken[i] = takenOf(r)
		reserved = reserved || r.Reserved != "0"
		for j, cell := range r.cells(taken[i], now) {
			cols[j].cells = append(cols[j].cells, cell)
		}
	}
	bar := cols[6]
	for _, c := range cols {
		c.width = cells(c.title)
		for _, cell := range c.cells {
			c.width = max(c.width, cells(cell))
		}
	}
	bar.width = barMost
	if !reserved {
		cols = append(cols[:4], cols[5:]...)
	}
	if l.width > 0 {
		cols = fit(cols, l.width)
	}

	var b strings.Builder
	line(&b, cols, func(c *column) string { return c.title }, nil)
	for i := range rows {
		line(&b, cols, func(c *column) string {
			if c == bar {
				return barText(taken[i], c.width, l.blocks)
			}
			return c.cells[i]
		}, func(c *column, text string) string {
			if c != bar || !l.colour {
				return text
			}
			return painted(taken[i], text)
		})
	}
	return b.String()
}

// cells are the texts of a row; that of the bar is drawn once there is room for it.
func (r *counter) cells(taken int64, now time.Time) []string {
	consumer, rule, resets := plain(r.Consumer), plain(r.Rule), ""
	if r.Consumer == "" {
		consumer = "(shared)"
	}
	if r.Model != "" {
		rule += ": " + plain(r.Model)
	}
	if r.ResetsAt != nil && r.ResetsAt.After(now) {
		resets = wait(r.ResetsAt.Sub(now))
	}
	amount := func(n string) string { return amountText(r.Unit, n) }
	return []string{
		consumer, plain(r.Instance), rule,
		amount(r.Used.String()), amount(r.Reserved.String()), amount(r.Limit.String()),
		"", strconv.FormatInt(taken/10, 10) + "%", resets,
	}
}

// takenOf is how much of a limit is not free, in thousandths.
func takenOf(r *counter) int64 {
	limit, err := r.Limit.Float64()
	left, err2 := r.Remaining.Float64()
	switch {
	case err != nil || err2 != nil:
		return 0
	case left <= 0:
		return 1000
	case left >= limit:
		return 0
	}
	return min(int64((limit-left)/limit*1000), 999)
}

// barText draws a bar. It is full only when nothing is left.
func barText(taken int64, width int, blocks bool) string {
	full := int(taken) * width / 1000
	if blocks {
		return strings.Repeat("█", full) + strings.Repeat("░", width-full)
	}
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}

func painted(taken int64, text string) string {
	switch {
	case taken >= 1000:
		return "\x1b[31m" + text + "\x1b[0m"
	case taken >= nearly:
		return "\x1b[33m" + text + "\x1b[0m"
	}
	return text
}

// fit makes columns narrower, and then leaves some out, until they fit or no more can be
// done.
func fit(cols []*column, width int) []*column {
	for total(cols) > width {
		widest := -1
		for i, c := range cols {
			if c.least > 0 && c.width > c.least && (widest < 0 || c.width > cols[widest].width) {
				widest = i
			}
		}
		if widest >= 0 {
			cols[widest].width--
			continue
		}
		first := -1
		for i, c := range cols {
			if c.drop > 0 && (first < 0 || c.drop < cols[first].drop) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		cols = append(cols[:first:first], cols[first+1:]...)
	}
	return cols
}

func total(cols []*column) int {
	n := gap * (len(cols) - 1)
	for _, c := range cols {
		n += c.width
	}
	return n
}

// line writes a line of cells. What paint adds takes no room.
func line(b *strings.Builder, cols []*column, text func(*column) string, paint func(*column, string) string) {
	var l strings.Builder
	for i, c := range cols {
		if i > 0 {
			l.WriteString(strings.Repeat(" ", gap))
		}
		cell := cut(text(c), c.width)
		pad := strings.Repeat(" ", max(0, c.width-cells(cell)))
		if paint != nil {
			cell = paint(c, cell)
		}
		if c.right {
			cell, pad = pad, cell
		}
		l.WriteString(cell)
		l.WriteString(pad)
	}
	b.WriteString(strings.TrimRight(l.String(), " "))
	b.WriteByte('\n')
}

// cut takes a text to so many columns.
func cut(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	n := 1 // for the dots
	for i, r := range s {
		if n += cellsOf(r); n > most {
			return s[:i] + "…"
		}
	}
	return s
}

// cells is how many columns a text takes.
func cells(s string) (n int) {
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// plain is a text without what could move the cursor or hide other text: names of
// consumers may be a client's.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, s)
}
