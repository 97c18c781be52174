package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // what benchmarks' Caddyfiles are made of
	_ "github.com/mholt/caddy-ratelimit"                 // to compare with

	_ "github.com/llmlimits/caddy-llm-limits" // what is measured
	"github.com/llmlimits/caddy-llm-limits/bench/provider"
)

// Port is what stands in a Caddyfile for the port to listen on.
const Port = "{{port}}"

// attempts is how often an address is looked for: somebody else may take one that was free.
const attempts = 10

// Provider serves the stand-in for a provider, and obeys orders.
func Provider(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: new(provider.Provider), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	return obey(l.Addr().String(), nil, in, out)
}

// Caddy serves a Caddyfile, and obeys orders.
func Caddy(caddyfile string, in io.Reader, out io.Writer) error {
	var addr string
	var err error
	for range attempts {
		if addr, err = FreeAddr(); err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(addr)
		if err = load(strings.ReplaceAll(caddyfile, Port, port)); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("starting caddy: %w", err)
	}
	err = obey(addr, seed, in, out)
	if stopErr := caddy.Stop(); err == nil {
		err = stopErr
	}
	return err
}

func load(caddyfile string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// SeedPath is a path that a Caddyfile may answer itself, behind the limiters.
const SeedPath = "/seed"

// seed has consumers counted by calling the server itself, without a network between.
func seed(consumers int) error {
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	errs := make([]error, workers)
	for _, srv := range app.(*caddyhttp.App).Servers {
		for w := range workers {
			wg.Go(func() {
				for i := w; i < consumers && errs[w] == nil; i += workers {
					errs[w] = seedOne(srv, i, consumers > MostKeys)
				}
			})
		}
		wg.Wait()
	}
	return errors.Join(errs...)
}

// seedOne has one consumer counted, who has no key of its own if there are many.
func seedOne(srv *caddyhttp.Server, consumer int, many bool) error {
	r, err := http.NewRequest(http.MethodGet, "http://bench"+SeedPath, http.NoBody)
	if err != nil {
		return err
	}
	key := consumer
	if many {
		key = 0
	}
	r.Header.Set("Authorization", "Bearer "+Key(key))
	r.Header.Set(ConsumerHeader, fmt.Sprintf("%07d", consumer))
	r.RemoteAddr = "127.0.0.1:1"
	w := &sink{header: http.Header{}}
	srv.ServeHTTP(w, r)
	if w.status != http.StatusOK {
		return fmt.Errorf("seeding consumer %d: answered with %d", consumer, w.status)
	}
	return nil
}

// sink is a client that looks at the status alone.
type sink struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (s *sink) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *sink) WriteHeader(status int) { s.status = status }

// Write implements http.ResponseWriter. It forgets what it is given.
func (s *sink) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return len(p), nil
}
