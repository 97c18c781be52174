package redis

import (
	"context"
	_ "embed"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var (
	//go:embed amount.lua
	amountLua string
	//go:embed counter.lua
	counterLua string
	//go:embed apply.lua
	applyLua string
	//go:embed common.lua
	commonLua string
	//go:embed claim.lua
	claimLua string
	//go:embed release.lua
	releaseLua string
)

const (
	// connections is how many there are to each server at most. One serves some
	// thousands of calls a second.
	connections = 64
	// buffer of a connection, each way. Commands and replies are mostly smaller.
	buffer = 8 << 10
	// idleMost ends connections before firewalls forget them.
	idleMost = 4 * time.Minute
)

// command is one that go-redis must not repeat on its own: whether it is to be
// sent again after a lost reply is decided here. Redirections it follows.
type command struct{ *goredis.Cmd }

// NoRetry implements goredis.Cmder.
func (command) NoRetry() bool { return true }

// connect returns a client that has not dialled yet.
func connect(o *Options) goredis.UniversalClient {
	c := goredis.UniversalOptions{
		Addrs: o.Addresses, MasterName: o.Master, IsClusterMode: o.Cluster, DB: o.DB,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLS, Dialer: o.dialer,

		// A batch is sent again by its number, never blindly.
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		// Sooner than the call's own time is up, or it could not be told from silence.
		PoolTimeout:           o.Timeout / 2,
		ContextTimeoutEnabled: true,

		PoolSize: connections, MaxActiveConns: connections, ConnMaxIdleTime: idleMost,
		ReadBufferSize: buffer, WriteBufferSize: buffer, PipelinePoolSize: -1,
		DisableIdentity: true, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch {
	case o.Cluster:
		return goredis.NewClusterClient(c.Cluster())
	case o.Master != "":
		f := c.Failover()
		f.SentinelUsername, f.SentinelPassword = o.SentinelUsername, o.SentinelPassword
		return goredis.NewFailoverClient(f)
	default:
		return goredis.NewClient(c.Simple())
	}
}

// countLua applies a batch. See apply.lua for what it is given, and common.lua for
// why it is put together so.
func countLua() string {
	return "local function whole(now, values, ARGV)\n" + amountLua + counterLua + applyLua + "end\n" + commonLua
}

// script is a Lua script. Servers forget them, so it is sent whole where needed.
type script struct{ source, sum string }

func newScript(source string) *script {
	return &script{source: source, sum: goredis.NewScript(source).Hash()}
}

// call returns the command that runs the script on a key by its sum.
func (sc *script) call(ctx context.Context, key string, args []any) command {
	all := make([]any, 0, 4+len(args))
	all = append(all, "evalsha", sc.sum, 1, key)
	return command{goredis.NewCmd(ctx, append(all, args...)...)}
}

// text returns the reply of a command. A server that does not know the script is
// sent it.
func (sc *script) text(ctx context.Context, c goredis.UniversalClient, cmd command) (string, error) {
	if goredis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		all := append([]any{"eval", sc.source}, cmd.Args()[2:]...)
		cmd = command{goredis.NewCmd(ctx, all...)}
		_ = c.Process(ctx, cmd) // the error is the command's, too
	}
	return cmd.Text()
}

// run runs the script on a key.
func (sc *script) run(ctx context.Context, c goredis.UniversalClient, key string, args ...any) (string, error) {
	cmd := sc.call(ctx, key, args)
	_ = c.Process(ctx, cmd) // the error is the command's, too
	return sc.text(ctx, c, cmd)
}
