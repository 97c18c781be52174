package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Process is a server that runs.
type Process struct {
	// Addr is where it listens.
	Addr string

	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	says  bytes.Buffer // on the standard error; of interest if something goes wrong
}

// Start starts this program anew with other arguments, which must lead it to [Caddy] or
// [Provider]. Its files are kept below dir.
func Start(dir string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p := &Process{cmd: cmd}
	cmd.Stderr = &p.says
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a, err := p.answer()
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	p.Addr = a.Addr
	return p, nil
}

// Do gives an order and waits until it is done.
func (p *Process) Do(o Order) (Answer, error) {
	line, err := json.Marshal(o)
	if err != nil {
		return Answer{}, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return Answer{}, fmt.Errorf("asking a server: %w", err)
	}
	return p.answer()
}

func (p *Process) answer() (a Answer, err error) {
	if !p.lines.Scan() {
		return a, errors.New("a server has ended")
	}
	if err := json.Unmarshal(p.lines.Bytes(), &a); err != nil {
		return a, fmt.Errorf("reading a server's answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// CPU is the processor time that the process has used, all its threads together.
func (p *Process) CPU() (time.Duration, error) { return processCPU(p.cmd.Process.Pid) }

// Stop ends the process.
func (p *Process) Stop() error {
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("running a server: %w:\n%s", err, p.says.Bytes())
	}
	return nil
}
