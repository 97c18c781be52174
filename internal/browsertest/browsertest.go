// Package browsertest looks at pages as people do: it runs scripts in a headless
// Chromium. A test binary has one browser, whose scripts run one at a time; it is
// started by the first and ends with the process.
//
// It needs chromium and node in the path and the packages of integration/browser. A
// test without them fails: one that were skipped would say that a page works where
// nobody has looked.
package browsertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The lines to type where something is missing.
const (
	InstallChromium = "sudo apt-get install -y chromium"
	InstallNode     = "sudo apt-get install -y nodejs npm"
	InstallPackages = "npm ci --prefix integration/browser"
)

const (
	// patience is how long a step of a script may take, far more than it needs, for
	// machines that are busy.
	patience = 30 * time.Second
	// scriptPatience bounds a whole script, the start of the browser included.
	scriptPatience = 4 * time.Minute
)

// Script is a module in JavaScript that drives pages. Its default export is a function;
// integration/browser/run.mjs says what that is given.
type Script struct {
	// Path of the module, as seen from the test's package.
	Path string
	// URL is the page's. Requests to other origins are problems.
	URL string
	// Args are for the script, as JSON. Keys that it shows to nobody are fine here.
	Args any
}

// job is a script as run.mjs takes it.
type job struct {
	Script   string `json:"script"`
	URL      string `json:"url"`
	Args     any    `json:"args"`
	Dir      string `json:"dir"`      // for pictures, empty where nobody keeps them
	Patience int64  `json:"patience"` // with each step, in milliseconds
}

// answer is what run.mjs says of a job.
type answer struct {
	Result   json.RawMessage `json:"result"`
	Error    string          `json:"error"`    // what the script threw
	Problems []string        `json:"problems"` // with the page, of which the script may know nothing
	Shots    []string        `json:"shots"`    // files
}

// Run runs a script and reads what it returns into a value; nil is for none. The test
// fails if the script throws, and if a page had an error on its console, an exception, a
// violation of its content security policy or a request to another origin that the
// script did not allow. Pictures are made with `go test -artifacts`, which keeps them.
func Run(t testing.TB, s Script, into any) {
	t.Helper()
	path, err := filepath.Abs(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	dir := ""
	if keeps() {
		dir = t.ArtifactDir()
	}
	line, err := json.Marshal(job{Script: path, URL: s.URL, Args: s.Args, Dir: dir, Patience: patience.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := theBrowser.do(line)
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(reply, &a); err != nil {
		t.Fatalf("reading what run.mjs says: %v in %s", err, reply)
	}
	for _, shot := range a.Shots {
		t.Logf("picture: %s", shot)
	}
	for _, p := range a.Problems {
		t.Errorf("%s: %s", s.Path, p)
	}
	if a.Error != "" {
		t.Fatalf("%s: %s", s.Path, a.Error)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(a.Result, into); err != nil {
		t.Fatalf("%s: %v in %s", s.Path, err, a.Result)
	}
}

// keeps tells whether artifacts are kept: pictures take a quarter of the time. Tests
// replace it.
var keeps = func() bool {
	f := flag.Lookup("test.artifacts")
	return f != nil && f.Value.String() == "true"
}

// browser is a node that drives a Chromium.
type browser struct {
	mu     sync.Mutex
	cmd    *exec.Cmd // nil until it is started, and after it has ended
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

var theBrowser browser

// do hands a job over and returns the answer.
func (b *browser) do(line []byte) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	// A script that never ends is ended with its browser; the next starts another.
	late := time.AfterFunc(scriptPatience, func() { _ = b.cmd.Process.Kill() })
	_, err := b.in.Write(append(line, '\n'))
	var reply []byte
	if err == nil {
		reply, err = b.out.ReadBytes('\n')
	}
	if !late.Stop() {
		err = errors.Join(err, fmt.Errorf("it took more than %v", scriptPatience))
	}
	if err != nil {
		_ = b.in.Close()
		_ = b.cmd.Process.Kill() // it has ended, as a rule
		_ = b.cmd.Wait()
		b.cmd = nil
		return nil, fmt.Errorf("running a script in Chromium: %w\n%s", err, b.stderr.String())
	}
	return reply, nil
}

// start runs node, which starts Chromium. It ends when its stdin does: with this
// process, however that ends.
func (b *browser) start() error {
	chromium, err := lookChromium()
	if err != nil {
		return err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("this test needs node; install it with: %s", InstallNode)
	}
	dir, err := packages()
	if err != nil {
		return err
	}
	b.stderr.Reset()
	c := exec.Command(node, "run.mjs", chromium) //nolint:noctx // it serves all tests of the process
	c.Dir, c.Stderr = dir, &b.stderr
	if b.in, err = c.StdinPipe(); err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	b.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting node: %w", err)
	}
	b.cmd = c
	return nil
}

func lookChromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("this test needs chromium; install it with: %s", InstallChromium)
}

// packages is the folder integration/browser, once its npm packages are installed. Tests
// run in the folder of their package, somewhere below the module's.
func packages() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = up
	}
	dir = filepath.Join(dir, "integration", "browser")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "playwright-core", "package.json")); err != nil {
		return "", fmt.Errorf("this test needs playwright-core; install it with: %s", InstallPackages)
	}
	return dir, nil
}
