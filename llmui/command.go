package llmui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "llm-ui",
		Usage: "[--address <interface>] [--config <path> [--adapter <name>]] [--listen <host:port>] [--no-open]",
		Short: "Serves a page about LLM consumers, limits and keys to this machine's browser",
		Long: `
Serves the operator's page about the limits of LLM traffic: consumers against
their limits, spend and refusals over time, keys, and the limits themselves.

It runs until it is interrupted, on a loopback port, and prints a link that opens
the page once. Press Enter for another link. What the page shows and changes is
that of a running Caddy, by its admin endpoint: the address is that of the
--address flag, or else of the given config file, or else the default.
`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Flags().StringP("address", "", "", "The address of the admin endpoint, if not the default")
			cmd.Flags().StringP("config", "c", "", "Configuration file to read the admin endpoint's address from, if --address is not used")
			cmd.Flags().StringP("adapter", "a", "", "Name of config adapter to apply (when --config is used)")
			cmd.Flags().StringP("listen", "l", "127.0.0.1:0", "Loopback address to serve the page at; port 0 is any that is free")
			cmd.Flags().BoolP("no-open", "", false, "Do not open a browser")
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return run(cmd)
			}
		},
	})
}

// run is the command: it serves the page until it is interrupted.
func run(cmd *cobra.Command) error {
	text := func(name string) string { return cmd.Flag(name).Value.String() }
	address, err := caddycmd.DetermineAdminAPIAddress(text("address"), nil, text("config"), text("adapter"))
	if err != nil {
		return fmt.Errorf("finding the admin endpoint: %w", err)
	}
	a, err := newAdmin(address)
	if err != nil {
		return err
	}
	l, err := listen(text("listen"))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	s := newServer(a, hostsOf(l.Addr()))
	// What is used from now on is in the history, though nobody has opened the page yet.
	soon, cancel := context.WithTimeout(ctx, sampleEvery)
	s.takeSample(soon, time.Now())
	cancel()

	invite := func(w io.Writer) string {
		link := "http://" + l.Addr().String() + s.link()
		fmt.Fprintln(w, link)
		return link
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Limits of the Caddy at %s. This link opens the page once; press Enter for another.\n", address)
	link := invite(out)
	if text("no-open") == strconv.FormatBool(false) {
		defer openBrowser(link)()
	}
	go func() {
		for lines := bufio.NewScanner(cmd.InOrStdin()); lines.Scan(); {
			invite(out)
		}
	}()
	return s.serve(ctx, l)
}

// listen listens at a loopback address. Any other is refused: who may come in is told by
// a link in clear text.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", address, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("listen address %q is not of a loopback interface, such as 127.0.0.1:0 or [::1]:0", address)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}

// hostsOf are the names by which a browser may call: the address itself, and localhost,
// which an SSH tunnel may end at.
func hostsOf(addr net.Addr) []string {
	host := addr.String()
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		return []string{host}
	}
	return []string{host, net.JoinHostPort("localhost", port)}
}

// serve serves until the context ends.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.sampleLoop(ctx)
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() {
		<-ctx.Done()
		_ = srv.Close() // what is under way is a page that is looked at
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}
