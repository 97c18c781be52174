// Ollama's client.
import { Ollama } from 'ollama';

import { listed, messages, question } from './common.mjs';

export function connect({ url, key }) {
  const ollama = new Ollama({ host: `${url}/ollama`, headers: { Authorization: `Bearer ${key}` } });
  const model = 'qwen3:4b';
  const options = { num_predict: 64 };
  return {
    calls: {
      'chat': () => ollama.chat({ model, messages, options }),
      'chat stream': () => listed(ollama.chat({ model, messages, options, stream: true })),
      'generate': () => ollama.generate({ model, prompt: question, options }),
      'generate stream': () => listed(ollama.generate({ model, prompt: question, options, stream: true })),
      'embed': () => ollama.embed({ model: 'nomic-embed-text', input: question }),
    },
    free: {
      'models': () => ollama.list(),
      'model': () => ollama.show({ model }),
    },
  };
}

// described tells the class by name: it is not exported.
export function described(error) {
  return { class: error.name, status: error.status_code, message: error.message };
}
