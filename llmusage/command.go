package llmusage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "llm-usage",
		Usage: "[--address <interface>] [--config <path> [--adapter <name>]] [--instance <id>] [--consumer <application>] [--json] [--watch[=<interval>]]",
		Short: "Shows what consumers have used of their limits",
		Long: `
Asks a running Caddy what is used of each limit, and by whom, and prints a table.

The admin endpoint is the one of --address, or of the config file of --config, or else
Caddy's default. With --instance or --consumer only the counters of one limiter or one
application are shown. A consumer in parentheses, (shared), stands for a counter that all
callers share.

--json prints the rows as one JSON array instead, as GET /llm/usage of the admin API has
them. --watch shows the table again and again, every two seconds unless it says otherwise,
and less often where a round takes more than a tenth of that.

There is no colour where the output is no terminal, or where NO_COLOR is set.
`,
		CobraFunc: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringP("address", "", "", "The address of the admin endpoint, if not that of --config or the default")
			f.StringP("config", "c", "", "A config file in which the admin address stands")
			f.StringP("adapter", "a", "", "The name of the adapter of the config file")
			f.String("instance", "", "Only the limiter of this id")
			f.String("consumer", "", "Only the counters of this application")
			f.Bool("json", false, "Print JSON")
			f.Duration("watch", 0, "Show it again at this interval")
			f.Lookup("watch").NoOptDefVal = "2s"
			cmd.Args = cobra.NoArgs
			cmd.RunE = caddycmd.WrapCommandFuncForCobra(command)
		},
	})
}

// command is `caddy llm-usage`.
func command(fl caddycmd.Flags) (int, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(fl.String("address"), nil, fl.String("config"), fl.String("adapter"))
	if err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("finding the admin address: %w", err)
	}
	p := printer{
		of:  query{address: address, instance: fl.String("instance"), consumer: fl.String("consumer")},
		out: os.Stdout, look: lookOf(os.Stdout), now: time.Now,
	}
	every := fl.Duration("watch")
	switch {
	case every == 0 && fl.Bool("json"):
		err = p.json()
	case every == 0:
		err = p.table()
	case fl.Bool("json"):
		err = errors.New("--watch shows a table, and --json prints none")
	case every < time.Second:
		err = fmt.Errorf("--watch %s is less than a second", every)
	default:
		err = p.watch(every, time.Sleep)
	}
	if err != nil {
		return caddy.ExitCodeFailedQuit, err
	}
	return caddy.ExitCodeSuccess, nil
}

// printer prints what a query finds.
type printer struct {
	of   query
	out  io.Writer
	look look
	now  func() time.Time
}

func (p *printer) json() error {
	rows, err := p.of.rows()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i, r := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		if err := json.Compact(&b, r); err != nil {
			return err
		}
	}
	b.WriteString("\n]\n")
	_, err = p.out.Write(b.Bytes())
	return err
}

func (p *printer) table() error {
	text, err := p.text()
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.out, text)
	return err
}

func (p *printer) text() (string, error) {
	rows, err := p.of.counters()
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "Nothing is counted yet.\n", nil
	}
	return render(rows, p.look, p.now()), nil
}

// emptied takes a terminal back to an empty page.
const emptied = "\x1b[H\x1b[2J\x1b[3J"

// rest is how many times as long as a round took the next one is waited for, at least: of
// many consumers it has the store look through all its keys.
const rest = 9

// watch prints the table until writing fails. Once there has been one, a gateway that is
// away is told and waited for.
func (p *printer) watch(every time.Duration, sleep func(time.Duration)) error {
	for first := true; ; first = false {
		began := p.now()
		text, err := p.text()
		took := p.now().Sub(began)
		if err != nil {
			if first {
				return err
			}
			text = "Error: " + plain(strings.TrimSpace(err.Error())) + "\n"
		}
		if p.look.terminal {
			text = emptied + text
		}
		if _, err := io.WriteString(p.out, text); err != nil {
			return err
		}
		sleep(max(every, rest*took))
		if p.look.terminal {
			p.look.width = widthOf(p.out, p.look.width)
		}
	}
}

// lookOf is how a table looks on a file.
func lookOf(f *os.File) look {
	l := look{terminal: term.IsTerminal(int(f.Fd()))}
	if l.terminal {
		l.width = widthOf(f, 80)
		l.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			l.blocks = strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
			break
		}
	}
	return l
}

// widthOf is how many columns a terminal has, or otherwise if that cannot be told.
func widthOf(w io.Writer, otherwise int) int {
	f, ok := w.(*os.File)
	if !ok {
		return otherwise
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil || n <= 0 {
		return otherwise
	}
	return n
}
