package integration

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
)

// beCaddy is set for a test binary that is to be Caddy, with its command line.
const beCaddy = "LLM_TEST_BE_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(beCaddy) != "" {
		caddycmd.Main()
		return
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
}

// caddyfile is a config that counts the calls of app-a.
func (k *keeper) caddyfile(addr, admin string) string {
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
	exe, err := os.Executable()
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
	p := &process{t: t, addr: freeAddr(t), admin: filepath.Join(t.TempDir(), "a.sock"), ended: make(chan struct{})}
	p.cmd = k.command(t, "run", p.addr, p.admin)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			return p
		default:
		}
		resp, err := http.Get("http://" + p.addr + "/") // 401: it has no key
		if err == nil {
			_ = resp.Body.Close()
			return p
		}
	}
	t.Fatalf("it does not serve: %s", &p.out)
	return nil
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

// used is the tokens that app-a has used; requests are checked to fit.
func (p *process) used() int64 {
	p.t.Helper()
	g := &gateway{t: p.t, admin: p.admin}
	var rows []row
	g.adminGet("/llm/usage?instance=apps&consumer=app-a", &rows)
	used := map[string]int64{}
	for _, r := range rows {
		used[r.Unit] = r.Used
		if r.Reserved != 0 {
			p.t.Errorf("%d %s are held", r.Reserved, r.Unit)
		}
	}
	if used["tokens"] != 60*used["requests"] {
		p.t.Errorf("%d tokens are of %d requests", used["tokens"], used["requests"])
	}
	return used["tokens"]
}

func (p *process) wantUsed(want int64) {
	p.t.Helper()
	if got := p.used(); got != want {
		p.t.Errorf("%d tokens are used, want %d", got, want)
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

func TestAProcessThatIsKilledLosesASecondAtMost(t *testing.T) {
	// A machine under load may write late; one that always does is wrong.
	var got string
	for range 3 {
		k := newKeeper(t, nil)
		p := k.run(t)
		p.chats(20)
		kill := time.Now().Add(time.Second)
		made := int64(20)
		for time.Now().Before(kill) {
			if err := p.chat(); err != nil {
				t.Fatal(err)
			}
			made++
		}
		p.end(syscall.SIGKILL)
		used := k.run(t).used()
		if used > 60*made {
			t.Fatalf("%d tokens are used by %d calls", used, made)
		}
		if used >= 60*20 {
			return
		}
		got = fmt.Sprintf("%d tokens are left of 1200 that were charged a second before", used)
	}
	t.Error(got)
}

func TestAProcessThatIsStoppedLosesNothing(t *testing.T) {
	k := newKeeper(t, nil)
	var want int64
	for i, persist := range []string{"", "", "persist " + filepath.Join(t.TempDir(), "own"), ""} {
		k.persist = persist
		if i == 2 {
			want = 0 // another directory
		}
		if i == 3 {
			want = 2 * 7 * 60
		}
		p := k.run(t)
		p.wantUsed(want)
		p.chats(7)
		p.end(syscall.SIGTERM)
		want += 7 * 60
	}
	k.run(t).wantUsed(want)
}

func TestCallsThatEndDuringAStopAreCounted(t *testing.T) {
	reached, release := make(chan struct{}, 10), make(chan struct{})
	k := newKeeper(t, func(w http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-release
		sixtyTokens(w, r)
	})
	p := k.run(t)
	errs := make(chan error, 5)
	for range 5 {
		go func() { errs <- p.chat() }()
		select {
		case <-reached:
		case err := <-errs:
			t.Fatal(err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.out.String(), "shutting down"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not stop: %s", &p.out)
		}
	}
	close(release)
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	<-p.ended
	k.run(t).wantUsed(5 * 60)
}

func TestATornFileKeepsWhatWasWrittenBefore(t *testing.T) {
	k := newKeeper(t, nil)
	p := k.run(t)
	p.chats(5)
	p.end(syscall.SIGTERM)
	data, err := os.ReadFile(k.file())
	if err != nil {
		t.Fatal(err)
	}
	torn := append(bytes.Clone(data), data[len(data)-20:len(data)-5]...)
	if err := os.WriteFile(k.file(), torn, 0o600); err != nil {
		t.Fatal(err)
	}
	p = k.run(t)
	p.wantUsed(5 * 60)
	if log := p.out.String(); !strings.Contains(log, "its end was cut off") || !strings.Contains(log, `"dropped_bytes": 15`) && !strings.Contains(log, `"dropped_bytes":15`) {
		t.Errorf("the log is %s", log)
	}
	p.chats(1)
	p.end(syscall.SIGKILL)
}

func TestASecondProcessOnADirectoryIsRefused(t *testing.T) {
	for _, tc := range []struct{ name, persist string }{
		{"the default", ""},
		{"one of its own", "persist " + filepath.Join(t.TempDir(), "own")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKeeper(t, nil)
			k.persist = tc.persist
			first := k.run(t)
			first.chats(1)
			second := k.launch(t)
			select {
			case <-second.ended:
			case <-time.After(time.Minute):
				t.Fatalf("it goes on: %s", &second.out)
			}
			dir := cmp.Or(strings.TrimPrefix(tc.persist, "persist "), filepath.Dir(k.file()))
			for _, want := range []string{dir, "another Caddy with the same persist directory is running; give each its own"} {
				if !strings.Contains(second.out.String(), want) {
					t.Errorf("it does not say %q: %s", want, &second.out)
				}
			}
			if second.cmd.ProcessState.Success() {
				t.Error("it ended as if all were well")
			}
			for _, name := range []string{"validate", "adapt"} {
				if out, err := k.command(t, name, first.addr, first.admin).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", name, err, out)
				}
			}
			first.chats(1)
			first.wantUsed(2 * 60)
			first.end(syscall.SIGTERM)
			k.run(t).wantUsed(2 * 60)
		})
	}
}

func TestValidatingLeavesNoTrace(t *testing.T) {
	k := newKeeper(t, nil)
	k.persist = "persist " + filepath.Join(k.data, "own")
	for _, name := range []string{"validate", "adapt"} {
		if out, err := k.command(t, name, "127.0.0.1:1", filepath.Join(t.TempDir(), "a.sock")).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	for _, path := range []string{filepath.Join(k.data, "own"), filepath.Dir(k.file())} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there (%v)", path, err)
		}
	}
}

func TestADirectoryThatCannotBeMadeIsWarnedOf(t *testing.T) {
	k := newKeeper(t, nil)
	k.data = filepath.Join(k.data, "file")
	if err := os.WriteFile(k.data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, persist := range []string{"", "persist " + filepath.Join(k.data, "own")} {
		k.persist = persist
		p := k.run(t)
		p.chats(2)
		p.wantUsed(2 * 60)
		if log := p.out.String(); !strings.Contains(log, "counts are in memory only") || !strings.Contains(log, "not a directory") {
			t.Errorf("the log is %s", log)
		}
		p.end(syscall.SIGTERM)
	}
}
