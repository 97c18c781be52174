// Makes each kind of call once for each application that is not to get an answer, and
// prints how that ended: {"<application>": {"<call>": {error, statuses}}}. The argument
// has the options with which an application makes its clients: {"<application>": {…}}.
import { attempt, report } from './clients.mjs';

const applications = JSON.parse(process.argv[2]);

const results = {};
for (const [application, options] of Object.entries(applications)) {
  results[application] = {};
  for (const name of ['openai', 'openaiStream', 'anthropic', 'anthropicStream']) {
    results[application][name] = await attempt(name, options);
  }
}
report(results);
