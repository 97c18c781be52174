package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// errClosed is that of calls after Close.
var errClosed = fmt.Errorf("counting in Redis: closed: %w", store.ErrUnavailable)

// unavailable says in a word or two why the server could not be asked. It repeats
// nothing of the server's or the network's own words, which may hold addresses.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("counting in Redis: %s: %w", reason(err), store.ErrUnavailable)
}

func reason(err error) string {
	if reply, ok := errors.AsType[goredis.Error](err); ok {
		word, _, _ := strings.Cut(reply.Error(), " ")
		switch {
		case strings.Contains(reply.Error(), "max number of clients"):
			return "too many clients"
		case word == "" || word == "ERR" || word != strings.ToUpper(word):
			return "the server reports an error"
		}
		return word
	}
	netErr, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return "no connection is free"
	case errors.Is(err, goredis.ErrClosed):
		return "closed"
	case isDial(err):
		return "no connection"
	case errors.Is(err, context.DeadlineExceeded), isNet && netErr.Timeout():
		return "timeout"
	default:
		return "connection lost"
	}
}

// untouched tells whether a command that failed so has certainly not been run.
// Scripts read and parse all before they write, so that one which fails has
// changed nothing either.
func untouched(err error) bool {
	if _, ok := errors.AsType[goredis.Error](err); ok {
		return true
	}
	return isDial(err) || errors.Is(err, goredis.ErrPoolTimeout) ||
		errors.Is(err, goredis.ErrPoolExhausted) || errors.Is(err, goredis.ErrClosed)
}

// lost tells whether the connection ended, so that it is worth to try another at
// once.
func lost(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case untouched(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return false
	default:
		return ok && !netErr.Timeout()
	}
}

func isDial(err error) bool {
	opErr, ok := errors.AsType[*net.OpError](err)
	return ok && opErr.Op == "dial"
}
