package apikeyauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "llm-key",
		Usage: "new|list|rotate|disable|enable|revoke",
		Short: "Issues, lists, rotates, disables and revokes API keys of an LLM gateway",
		Long: `
Issues, lists, rotates, disables, enables and revokes API keys of an LLM gateway.

By itself it asks a running Caddy, whose api_key_auth has keys_store: at the
admin address '` + caddy.DefaultAdminListen + `', or the one of --address, or the
one of the config that --config names.

With --file it changes a keys file instead, and needs no running Caddy; the
gateway reads the file by itself when it has changed. Comments and layout of
the file, its mode and its owner stay.

A key is shown once, by new and rotate. Nobody can look it up again.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(newCommand(), listCommand(), rotateCommand(), enableCommand(false), enableCommand(true), revokeCommand())
		},
	})
}

// manager is where keys are managed: a running Caddy, or a keys file.
type manager interface {
	issue(req *keyRequest) (issued, error)
	list() ([]keyRow, error)
	rotate(id, grace, end string) (issued, error)
	enable(id string, on bool) error
	revoke(id string) error
}

func newCommand() *cobra.Command {
	cmd := command("new [--id <id>] [--application <app>] [--group <name>] [--models <glob>,...] [--expires <time>] [--anew]", "Issues a key",
		cobra.NoArgs, func(cmd *cobra.Command, m manager, _ string) error {
			fl := caddycmd.Flags{FlagSet: cmd.Flags()}
			req := &keyRequest{ID: fl.String("id"), Application: fl.String("application"), Group: fl.String("group"), Expires: fl.String("expires"), Anew: fl.Bool("anew")}
			if cmd.Flags().Changed("models") {
				models, err := cmd.Flags().GetStringSlice("models")
				if err != nil {
					return err
				}
				req.Models = append(Models{}, models...)
			}
			key, err := m.issue(req)
			if err != nil {
				return err
			}
			return show(cmd, key)
		})
	cmd.Flags().String("id", "", "The key's public name (made up if omitted)")
	cmd.Flags().String("application", "", "The application that its use counts for")
	cmd.Flags().String("group", "", "The application's group")
	cmd.Flags().StringSlice("models", nil, "Globs of the models that it may use, or none (all if omitted)")
	cmd.Flags().String("expires", "", "When it stops working: a date or an RFC 3339 time (never if omitted)")
	cmd.Flags().Bool("anew", false, "Begin again with this key, in a store that has lost all keys")
	return cmd
}

func listCommand() *cobra.Command {
	return command("list", "Lists keys, without their secrets", cobra.NoArgs, func(cmd *cobra.Command, m manager, _ string) error {
		rows, err := m.list()
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd, rows)
		}
		return table(cmd.OutOrStdout(), rows, time.Now())
	})
}

func rotateCommand() *cobra.Command {
	cmd := command("rotate <id> [--grace <duration>] [--end previous|current]", "Gives a key another secret; the one before works for a time of grace yet", cobra.ExactArgs(1),
		func(cmd *cobra.Command, m manager, id string) error {
			fl := caddycmd.Flags{FlagSet: cmd.Flags()}
			key, err := m.rotate(id, fl.String("grace"), fl.String("end"))
			if err != nil {
				return err
			}
			key.ID = id
			return show(cmd, key)
		})
	cmd.Flags().String("grace", "24h", "How long the secret before works yet, at most 90d; 0s for not at all")
	cmd.Flags().String("end", "", "Which secret ends at once if the key has two: previous, or current, the one of the last rotation")
	return cmd
}

func revokeCommand() *cobra.Command {
	return command("revoke <id>", "Has a key stop working, with all its secrets", cobra.ExactArgs(1), func(cmd *cobra.Command, m manager, id string) error {
		if err := m.revoke(id); err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd, struct {
				Revoked string `json:"revoked"`
			}{id})
		}
		fmt.Fprintf(cmd.OutOrStdout(), "revoked %s\n", id)
		return nil
	})
}

// enableCommand turns a key on or off.
func enableCommand(on bool) *cobra.Command {
	verb, short := "disable", "Has a key stop working until it is enabled again, with all its secrets"
	if on {
		verb, short = "enable", "Has a key that was disabled work again"
	}
	return command(verb+" <id>", short, cobra.ExactArgs(1), func(cmd *cobra.Command, m manager, id string) error {
		if err := m.enable(id, on); err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd, struct {
				ID      string `json:"id"`
				Enabled bool   `json:"enabled"`
			}{id, on})
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%sd %s\n", verb, id)
		return nil
	})
}

var errSecretArgument = errors.New("this is a key, not the id of one: it is known to the shell's history now, so revoke it by its id, which llm-key list shows")

// command is a subcommand with the flags that all have.
func command(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, m manager, id string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.Flags().String("address", "", "Address of the administration API listener (if --config is not used)")
	cmd.Flags().StringP("config", "c", "", "Configuration file (if --address is not used)")
	cmd.Flags().StringP("adapter", "a", "", "Name of config adapter to apply (if --config is used)")
	cmd.Flags().StringP("file", "f", "", "Keys file to use instead of a running Caddy")
	cmd.Flags().Bool("json", false, "Print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return caddycmd.WrapCommandFuncForCobra(func(fl caddycmd.Flags) (int, error) {
			id := strings.Join(args, "")
			if apikey.Looks(id) {
				return caddy.ExitCodeFailedStartup, errSecretArgument
			}
			m, err := managerOf(fl)
			if err == nil {
				err = run(cmd, m, id)
			}
			if err != nil {
				return caddy.ExitCodeFailedStartup, err
			}
			return caddy.ExitCodeSuccess, nil
		})(cmd, args)
	}
	return cmd
}

func managerOf(fl caddycmd.Flags) (manager, error) {
	file, address, config := fl.String("file"), fl.String("address"), fl.String("config")
	if file != "" {
		if address != "" || config != "" {
			return nil, errors.New("--file changes a file, --address and --config ask a running Caddy: give one of them")
		}
		return &fileManager{path: file, now: time.Now}, nil
	}
	address, err := caddycmd.DetermineAdminAPIAddress(address, nil, config, fl.String("adapter"))
	if err != nil {
		return nil, fmt.Errorf("finding the admin address: %w", err)
	}
	return &adminManager{address}, nil
}

// show prints a new key, the one time that it is seen.
func show(cmd *cobra.Command, key issued) error {
	if wantsJSON(cmd) {
		return printJSON(cmd, key)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "id:  %s\nkey: %s\n", key.ID, key.Key)
	fmt.Fprintln(cmd.ErrOrStderr(), "Keep the key now: it is not shown again.")
	return nil
}

func wantsJSON(cmd *cobra.Command) bool { return caddycmd.Flags{FlagSet: cmd.Flags()}.Bool("json") }

func printJSON(cmd *cobra.Command, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
	return err
}

// table prints keys, each in a line.
func table(w io.Writer, rows []keyRow, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tAPPLICATION\tGROUP\tMODELS\tEXPIRES\tCREATED\tSTATE")
	for _, r := range rows {
		models := "all"
		if r.Models != nil {
			models = strings.Join(r.Models, ",")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, dash(r.Application), dash(r.Group), models, date(r.Expires), date(r.Created), stateOf(&r, now))
	}
	return t.Flush()
}

func stateOf(r *keyRow, now time.Time) string {
	switch {
	case r.Disabled:
		return "disabled"
	case r.Expires != nil && !now.Before(*r.Expires):
		return "expired"
	case r.PreviousUntil != nil && now.Before(*r.PreviousUntil):
		return "rotated, the secret before works until " + date(r.PreviousUntil)
	}
	return "active"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func date(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
