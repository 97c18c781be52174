// Makes calls with the clients of the vendors and prints how each ended:
// {"<client>": {"<call>": {ok} or {error}}}. The argument says which clients, and how
// they are made: {"<client>": {vendor, url, key, free, only, …}}; what else it has goes
// to the vendor's client. With `free` also calls that cost nothing are made; `only`
// names one call, which is made `times` times, and `within` bounds the milliseconds that
// each call may take before nobody waits for it any more.
import { report } from './clients.mjs';

const late = Symbol('late');

async function attempt(call, described, within) {
  try {
    if (!within) {
      return { ok: await call() };
    }
    const ok = await Promise.race([call(), new Promise((end) => setTimeout(end, within, late))]);
    return ok === late ? { error: { class: 'late' } } : { ok };
  } catch (error) {
    return { error: { ...described(error), text: String(error) } };
  }
}

async function run({ vendor, free, only, times = 1, within, ...options }) {
  const { connect, described } = await import(`./vendors/${vendor}.mjs`);
  const made = connect(options);
  const calls = { ...made.calls, ...(free ? made.free : {}) };
  const ended = {};
  for (const name of only ? [only] : Object.keys(calls)) {
    for (let i = 1; i <= times; i++) {
      ended[times > 1 ? `${name} ${i}` : name] = await attempt(calls[name], described, within);
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
process.stdout.write('', () => process.exit()); // though calls may be waiting
