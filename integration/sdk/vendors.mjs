// Makes calls with the clients of the vendors and prints how each ended:
// {"<client>": {"<call>": {ok} or {error}}}. The argument says which clients, and how
// they are made: {"<client>": {vendor, url, key, free, only, …}}; what else it has goes
// to the vendor's client. With `free` also calls that cost nothing are made; `only`
// names one call, which is made `times` times.
import { report } from './clients.mjs';

async function attempt(call, described) {
  try {
    return { ok: await call() };
  } catch (error) {
    return { error: { ...described(error), text: String(error) } };
  }
}

async function run({ vendor, free, only, times = 1, ...options }) {
  const { connect, described } = await import(`./vendors/${vendor}.mjs`);
  const made = connect(options);
  const calls = { ...made.calls, ...(free ? made.free : {}) };
  const ended = {};
  for (const name of only ? [only] : Object.keys(calls)) {
    for (let i = 1; i <= times; i++) {
      ended[times > 1 ? `${name} ${i}` : name] = await attempt(calls[name], described);
    }
  }
  return ended;
}

const results = {};
await Promise.all(
  Object.entries(JSON.parse(process.argv[2])).map(async ([client, options]) => {
    results[client] = await run(options);
  }),
);
report(results);
