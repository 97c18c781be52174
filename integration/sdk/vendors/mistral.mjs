// Mistral's client.
import { Mistral } from '@mistralai/mistralai';
import { SDKError } from '@mistralai/mistralai/models/errors';

import { listed, messages, question } from './common.mjs';

export function connect({ url, key }) {
  const mistral = new Mistral({ serverURL: `${url}/mistral`, apiKey: key });
  const chat = { model: 'mistral-small-latest', maxTokens: 64, messages };
  const fim = { model: 'codestral-latest', maxTokens: 64, prompt: 'func cool(', suffix: '}' };
  const conversation = { model: 'mistral-medium-latest', inputs: question, store: false };
  return {
    calls: {
      'chat': () => mistral.chat.complete(chat),
      'chat stream': () => listed(mistral.chat.stream(chat)),
      'fill in': () => mistral.fim.complete(fim),
      'embeddings': () => mistral.embeddings.create({ model: 'mistral-embed', inputs: [question] }),
      'conversation': () => mistral.beta.conversations.start(conversation),
      'conversation stream': () => listed(mistral.beta.conversations.startStream(conversation)),
    },
    free: {
      'models': () => mistral.models.list(),
    },
  };
}

export function described(error) {
  return {
    class: error instanceof SDKError ? 'SDKError' : error.name,
    status: error.statusCode,
    message: error.body ? JSON.parse(error.body).message : error.message,
  };
}
