// Cohere's clients of both versions of its API.
import { Cohere, CohereClient, CohereClientV2, CohereError } from 'cohere-ai';

import { listed, messages, question } from './common.mjs';

export function connect({ url, key, patient }) {
  const options = { environment: `${url}/cohere`, token: key, maxRetries: patient ? undefined : 0 };
  const v1 = new CohereClient(options);
  const v2 = new CohereClientV2(options);
  const model = 'command-a-03-2025';
  const chat = { model, messages, maxTokens: 64 };
  const old = { model, message: question, maxTokens: 64 };
  return {
    calls: {
      'chat': () => v2.chat(chat),
      'chat stream': () => listed(v2.chatStream(chat)),
      'chat of version 1': () => v1.chat(old),
      'chat stream of version 1': () => listed(v1.chatStream(old)),
      'embed': () =>
        v2.embed({ model: 'embed-v4.0', texts: [question], inputType: 'search_query', embeddingTypes: ['float'] }),
      'rerank': () => v2.rerank({ model: 'rerank-v3.5', query: question, documents: ['slowly', 'fast'] }),
    },
    free: {
      'models': () => v1.models.list(),
    },
  };
}

export function described(error) {
  const classes = ['TooManyRequestsError', 'UnauthorizedError', 'ForbiddenError'];
  return {
    class: classes.find((name) => error instanceof Cohere[name]) ?? error.name,
    status: error instanceof CohereError ? error.statusCode : 0,
    message: error.body?.message ?? error.message,
  };
}
