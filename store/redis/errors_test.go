package redis

import (
	"context"
	"io"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// reply is an error that came as a reply.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError implements goredis.Error.
func (reply) RedisError() {}

// What is taken for untouched is sent under another number, so that it must be sure.
func TestOnlyRefusalsOfTheServerAreUntouched(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{reply("OOM command not allowed when used memory > 'maxmemory'."), true},
		{reply("READONLY You can't write against a read only replica."), true},
		{reply("CLUSTERDOWN The cluster is down"), true},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @user_script:7."), true},
		{reply("ERR max number of clients reached"), true},
		{reply("ERR Error running script (call to f_1): @user_script:7: -OOM command not allowed"), true},
		{reply("ERR user_script:7: attempt to index a nil value script: 1, on @user_script:7."), true},
		{reply("ERR unknown command 'evalsha'"), true},
		{reply("upstream disconnected"), false},
		{reply("upstream failure"), false},
		{reply("ERR Connection timed out"), false},
		{reply("ERR"), false},
		{reply(""), false},
		{goredis.Nil, false},
		{goredis.ErrPoolTimeout, true},
		{io.EOF, false},
		{context.DeadlineExceeded, false},
	} {
		if got := untouched(tt.err); got != tt.want {
			t.Errorf("%q: untouched is %v", tt.err, got)
		}
	}
}
