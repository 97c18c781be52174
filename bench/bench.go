package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/bench/load"
	"github.com/llmlimits/caddy-llm-limits/bench/server"
)

// Roles of this program, by its first argument.
const (
	roleProvider = "-provider"
	roleCaddy    = "-caddy"
)

// bench is one run.
type bench struct {
	times    float64
	profiles string // a directory; empty for none

	dir      string // for what the servers write
	provider *server.Process
	redis    string // address; empty where there is none
}

// figures are what a scenario showed.
type figures struct {
	*load.Result
	// Allocs and Bytes are what is allocated for a call beyond what the other site does.
	Allocs, Bytes float64
	// Memory is what a stream under way takes beyond what it takes at the other site, in
	// bytes; 0 for scenarios without streams.
	Memory float64
}

// run prints the table, a line when a scenario has ended.
func (b *bench) run(chosen []Scenario, out io.Writer) (err error) {
	if b.dir, err = os.MkdirTemp("", "llm-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.provider, err = server.Start(b.dir, roleProvider); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.provider.Stop()) }()
	if stop, redisErr := b.startRedis(); redisErr == nil {
		defer stop()
	} else {
		fmt.Fprintf(out, "without Redis: %v\n\n", redisErr)
	}
	t := newTable(out)
	for i := range chosen {
		s := &chosen[i]
		if s.Redis && b.redis == "" {
			continue
		}
		f, err := b.measure(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		t.line(s, f)
	}
	t.end()
	return nil
}

// gateway is one of two sites that run.
type gateway struct {
	*server.Process
	load.Server
}

func (b *bench) start(s *Scenario, site Site, name string) (*gateway, error) {
	o := &Options{Ends: "reverse_proxy " + b.provider.Addr, Consumers: s.Consumers, AccessLog: s.AccessLog}
	if s.Redis {
		o.Redis = b.redis
	}
	if s.Consumers > 1 && s.Consumers <= server.MostKeys {
		o.KeysFile = filepath.Join(b.dir, fmt.Sprintf("keys-%d.json", s.Consumers))
		if err := server.WriteKeys(o.KeysFile, s.Consumers); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(b.dir, name)
	if err != nil {
		return nil, err
	}
	p, err := server.Start(dir, roleCaddy, site.Caddyfile(o))
	if err != nil {
		return nil, err
	}
	g := &gateway{Process: p, Server: load.Server{Addr: p.Addr, Request: s.request(), CPU: p.CPU}}
	if s.Consumers > 1 && site != Plain {
		if _, err := p.Do(server.Order{Seed: s.Consumers}); err != nil {
			return nil, errors.Join(err, g.stop())
		}
	}
	return g, nil
}

func (g *gateway) stop() error {
	g.Server.Close()
	return g.Process.Stop()
}

// measure runs a scenario.
func (b *bench) measure(s *Scenario) (f *figures, err error) {
	var both [2]*gateway
	defer func() {
		for _, g := range both {
			if g != nil {
				err = errors.Join(err, g.stop())
			}
		}
	}()
	for i, site := range []Site{s.Site, s.Against} {
		g, err := b.start(s, site, string(rune('a'+i)))
		if err != nil {
			return nil, err
		}
		both[i] = g
	}
	l := s.load(b.times)
	f = new(figures)
	if f.Memory, err = b.warm(s, l, both); err != nil {
		return nil, err
	}
	if b.profiles != "" {
		for i, g := range both {
			name := fmt.Sprintf("%s.%c.pprof", strings.ReplaceAll(s.Name, " ", "-"), 'a'+i)
			if _, err := g.Do(server.Order{Profile: filepath.Join(b.profiles, name)}); err != nil {
				return nil, err
			}
		}
	}
	before, err := ask(both, server.Order{})
	if err != nil {
		return nil, err
	}
	if f.Result, err = l.Compare(&both[0].Server, &both[1].Server); err != nil {
		return nil, err
	}
	after, err := ask(both, server.Order{Profile: "-"})
	if err != nil {
		return nil, err
	}
	per := func(i int, of func(*server.Answer) uint64) float64 {
		calls := []int64{f.A.Calls, f.B.Calls}[i]
		return float64(of(&after[i])-of(&before[i])) / float64(calls)
	}
	mallocs := func(a *server.Answer) uint64 { return a.Mallocs }
	bytes := func(a *server.Answer) uint64 { return a.Bytes }
	f.Allocs = per(0, mallocs) - per(1, mallocs)
	f.Bytes = per(0, bytes) - per(1, bytes)
	return f, nil
}

// ask gives both the same order.
func ask(both [2]*gateway, o server.Order) (as [2]server.Answer, err error) {
	for i, g := range both {
		if as[i], err = g.Do(o); err != nil {
			return as, err
		}
	}
	return as, nil
}

// warmth is how long each server is loaded before it counts.
const warmth = time.Second

// warm loads both until they do what they will do, and sees to it that they have equally
// large heaps: the larger a heap, the less often it is collected, which makes a server
// look cheaper by more than what is to be measured. memory is what a stream takes more at
// the first of them, in bytes.
func (b *bench) warm(s *Scenario, l *load.Load, both [2]*gateway) (memory float64, err error) {
	var busy, idle [2]uint64
	for i, g := range both {
		if s.Events == 0 {
			if err := l.Warm(&g.Server, warmth); err != nil {
				return 0, err
			}
			continue
		}
		// what is made once, with the first calls, is no part of a stream
		if err := l.Warm(&g.Server, 0); err != nil {
			return 0, err
		}
		a, err := g.Do(server.Order{Collect: true})
		if err != nil {
			return 0, err
		}
		idle[i] = a.Heap + a.Stacks
		done := make(chan error, 1)
		go func() { done <- l.Warm(&g.Server, 0) }()
		time.Sleep(time.Duration(s.Events) * s.Pace / 2)
		a, err = g.Do(server.Order{Collect: true})
		if err := errors.Join(err, <-done); err != nil {
			return 0, err
		}
		busy[i] = a.Heap + a.Stacks
	}
	if s.Events > 0 {
		memory = (float64(busy[0]) - float64(idle[0]) - float64(busy[1]) + float64(idle[1])) / float64(s.Workers)
	}
	live, err := ask(both, server.Order{Collect: true})
	if err != nil {
		return 0, err
	}
	small := 0
	if live[0].Heap > live[1].Heap {
		small = 1
	}
	if _, err := both[small].Do(server.Order{Ballast: int(live[1-small].Heap - live[small].Heap), Collect: true}); err != nil {
		return 0, err
	}
	return memory, nil
}

// startRedis starts a Redis that writes nothing to disk. stop is only to be called without
// an error.
func (b *bench) startRedis() (stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	port := addr[strings.LastIndexByte(addr, ':')+1:]
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.dir)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.redis = addr
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, nil
}
