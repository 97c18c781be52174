package integration

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

// beCaddy is set for a test binary that is to be Caddy, with its command line.
const beCaddy = "LLM_TEST_BE_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(beCaddy) != "" {
		caddycmd.Main()
		return
	}
	flag.Parse()
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.Contains(arg, "test.parallel") }) {
		// those that run beside each other wait most of the time: for clients and browsers
		if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
	}
	os.Exit(datadir.Run(m))
}

// process is a Caddy in a process of its own, which can be killed.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	addr  string
	admin string
	out   output
	ended chan struct{}
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// keeper is where processes one after the other keep their counts.
type keeper struct {
	up   *upstream
	data string // the data directory
	// persist is the option's line, empty for the default.
	persist string
	// config, if set, is the Caddyfile in the place of the one below.
	config func(addr, admin string) string
	// exe is a Caddy; empty for the test itself.
	exe string
}

// caddyfile is a config that counts the calls of app-a.
func (k *keeper) caddyfile(addr, admin string) string {
	if k.config != nil {
		return k.config(addr, admin)
	}
	return fmt.Sprintf(`{
	admin unix/%s
	auto_https off
	persist_config off
	grace_period 30s
	llm {
		store memory {
			%s
		}
	}
}
http://%s {
	api_key_auth {
		key a %s {
			application app-a
		}
	}
	token_limit apps {
		consumer_based
		limit 1_000_000_000 tokens per month
		limit 1_000_000 requests per week
	}
	reverse_proxy %s
}
`, admin, k.persist, addr, hashOf(keyA), k.up.addr)
}

// command is a Caddy command with a config file.
func (k *keeper) command(t testing.TB, name, addr, admin string) *exec.Cmd {
	t.Helper()
	exe, err := k.exe, error(nil)
	if exe == "" {
		exe, err = os.Executable()
	}
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(config, []byte(k.caddyfile(addr, admin)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, name, "--config", config, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), beCaddy+"=1", "XDG_DATA_HOME="+k.data, "XDG_CONFIG_HOME="+k.data)
	return cmd
}

// launch starts a process, and returns when it serves or has ended.
func (k *keeper) launch(t testing.TB) *process {
	t.Helper()
	p := &process{t: t, addr: loopback.Address(t), admin: filepath.Join(t.TempDir(), "a.sock"), ended: make(chan struct{})}
	p.cmd = k.command(t, "run", p.addr, p.admin)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.start()
	return p
}

// start starts the process and waits until it serves or has ended. The test ends it.
func (p *process) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			return
		default:
		}
		if p.loaded() {
			return
		}
	}
	p.t.Fatalf("it does not serve: %s", &p.out)
}

// loaded tells whether the process serves. Somebody else may at its address, so that it is
// asked itself: it answers when its config has been loaded.
func (p *process) loaded() bool {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/config/", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := adminClient(p.admin).Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	config, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && string(bytes.TrimSpace(config)) != "null"
}

// run starts a process that must serve.
func (k *keeper) run(t testing.TB) *process {
	t.Helper()
	for range 5 {
		p := k.launch(t)
		select {
		case <-p.ended:
			if !strings.Contains(p.out.String(), "address already in use") {
				t.Fatalf("it ended: %s", &p.out)
			}
		default:
			return p
		}
	}
	t.Fatal("no port is free")
	return nil
}

// end sends a signal and waits until the process is gone.
func (p *process) end(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Fatalf("it does not end: %s", &p.out)
	}
}

// chat makes a call of 60 tokens.
func (p *process) chat() error {
	body := `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+p.addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+keyA)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	return err
}

func (p *process) chats(n int) {
	p.t.Helper()
	for range n {
		if err := p.chat(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// used is the tokens and requests that app-a has used, once none are held.
func (p *process) used() (tokens, requests int64) {
	p.t.Helper()
	g := &gateway{t: p.t, admin: p.admin}
	used, held := map[string]int64{}, int64(0)
	atRest(func() bool {
		var rows []row
		g.adminGet("/llm/usage?instance=apps&consumer=app-a", &rows)
		held = 0
		for _, r := range rows {
			used[r.Unit] = r.Used
			held += r.Reserved
		}
		return held == 0
	})
	if held != 0 {
		p.t.Errorf("%d are held", held)
	}
	return used["tokens"], used["requests"]
}

// wantUsed checks what calls have used, all of which have ended.
func (p *process) wantUsed(want int64) {
	p.t.Helper()
	if tokens, requests := p.used(); tokens != want || requests != want/60 {
		p.t.Errorf("%d tokens and %d requests are used, want %d and %d", tokens, requests, want, want/60)
	}
}

func newKeeper(t testing.TB, h http.HandlerFunc) *keeper {
	t.Helper()
	return &keeper{up: newUpstream(t, h), data: t.TempDir()}
}

// file is where the counts are, in the default directory.
func (k *keeper) file() string {
	return filepath.Join(k.data, "caddy", "llm", "counters.log")
}
