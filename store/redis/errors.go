package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// errClosed is that of calls after Close.
var errClosed = fmt.Errorf("counting in Redis: closed: %w", store.ErrUnavailable)

var (
	errReply = errors.New("reply is not understood")
	// errClock is that of a batch which the server has found to be of another time,
	// over and over. It had no effect.
	errClock = errors.New("clocks do not agree")
)

// unavailable says in a word or two why the server could not be asked. It repeats
// nothing of the server's or the network's own words, which may hold addresses.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	if crowded(err) {
		return fmt.Errorf("counting in Redis: %s: %w", reason(err), store.ErrBusy)
	}
	return fmt.Errorf("counting in Redis: %s: %w", reason(err), store.ErrUnavailable)
}

// crowded tells whether all connections were in use for too long. If that is for the
// server's sake, those who use them find that out.
func crowded(err error) bool {
	return errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted)
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
	case errors.Is(err, errReply), errors.Is(err, errClock):
		return err.Error()
	case crowded(err):
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

// refusals are the first words of replies by which a server says that it does not
// run a command in the state that it is in.
var refusals = map[string]bool{
	"NOSCRIPT": true, "OOM": true, "READONLY": true, "LOADING": true, "MASTERDOWN": true,
	"CLUSTERDOWN": true, "MOVED": true, "ASK": true, "TRYAGAIN": true, "CROSSSLOT": true,
	"BUSY": true, "NOPERM": true, "NOAUTH": true, "WRONGPASS": true, "WRONGTYPE": true,
	"MISCONF": true, "NOREPLICAS": true, "NOPROTO": true, "DENIED": true,
}

// refusalPhrases are of replies without a word of their own. Scripts read and parse
// all before they write, so that one which fails has changed nothing either; servers
// before version 7 say so in their own words, whatever the cause.
var refusalPhrases = []string{
	"ERR max number of clients", "ERR unknown command", "ERR Error running script",
	"ERR Error compiling script", "ERR user_script:",
}

// untouched tells whether a command that failed so has certainly not been run. An
// error that is none of the server's own does not say so: a proxy also answers with
// one where the server has run the command and its reply was lost.
func untouched(err error) bool {
	if reply, ok := errors.AsType[goredis.Error](err); ok {
		text := reply.Error()
		word, _, _ := strings.Cut(text, " ")
		return refusals[word] || slices.ContainsFunc(refusalPhrases, func(p string) bool { return strings.HasPrefix(text, p) })
	}
	return isDial(err) || crowded(err) || errors.Is(err, errClock) || errors.Is(err, goredis.ErrClosed)
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
