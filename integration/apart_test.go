package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

// startApart is start for a test that runs beside others: its Caddy has a process of its
// own, for there is one at a time in this. It cannot be reloaded. The process must end
// well, which it does not if it has had a data race.
func startApart(t testing.TB, up *upstream, caddyfile string) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := newGateway(t, dir)
	for range 10 {
		g.addr = loopback.Address(t)
		p := g.launch(up, caddyfile, dir)
		select {
		case <-p.ended:
			if !strings.Contains(p.out.String(), "address already in use") {
				t.Fatalf("it ended: %s", &p.out)
			}
		default:
			t.Cleanup(func() {
				g.client.CloseIdleConnections()
				p.end(os.Interrupt)
				if !p.cmd.ProcessState.Success() {
					t.Errorf("Caddy ends with %s: %s", p.cmd.ProcessState, &p.out)
				}
			})
			return g
		}
	}
	t.Fatal("no port is free")
	return nil
}

// launch starts a process, and returns when it serves or has ended.
func (g *gateway) launch(up *upstream, caddyfile, dir string) *process {
	g.t.Helper()
	config, err := g.adapt(up, caddyfile)
	if err != nil {
		g.t.Fatal(err)
	}
	file := filepath.Join(dir, "caddy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		g.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		g.t.Fatal(err)
	}
	p := &process{t: g.t, addr: g.addr, admin: g.admin, ended: make(chan struct{})}
	p.cmd = exec.Command(exe, "run", "--config", file)
	p.cmd.Env = append(os.Environ(), beCaddy+"=1", "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.start()
	return p
}
