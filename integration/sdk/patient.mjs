// Calls under a limit that is soon free again, one call after the other, until the SDK
// had to try one again, and prints them: {"<sdk>": [{ok, statuses}, …]}. The SDK has
// its defaults.
import { attempt, report } from './clients.mjs';

// One window holds few calls, so the second or third is refused. More are made only
// where the machine is so slow that each call has a window to itself.
const MOST_CALLS = 50;

async function untilRetried(name) {
  const calls = [];
  while (calls.length < MOST_CALLS && !calls.some((call) => call.statuses.length > 1)) {
    calls.push(await attempt(name));
  }
  return calls;
}

const names = ['openai', 'anthropic'];
const results = await Promise.all(names.map(untilRetried));
report(Object.fromEntries(names.map((name, i) => [name, results[i]])));
