/** An example body for each endpoint of /v1. Engines define all other fields. */
const MODEL = 'Qwen/Qwen3-8B';

export const REQUEST_EXAMPLES: Readonly<Record<string, object>> = {
  '/v1/chat/completions': {
    model: MODEL,
    messages: [{ role: 'user', content: 'What is a lattice?' }],
    max_tokens: 200,
  },
  '/v1/completions': { model: MODEL, prompt: 'A lattice is', max_tokens: 50 },
  '/v1/responses': { model: MODEL, input: 'What is a lattice?' },
  '/v1/messages': { model: MODEL, max_tokens: 200, messages: [{ role: 'user', content: 'What is a lattice?' }] },
  '/v1/messages/count_tokens': { model: MODEL, messages: [{ role: 'user', content: 'What is a lattice?' }] },
  '/v1/embeddings': { model: 'BAAI/bge-m3', input: ['What is a lattice?'] },
  '/v1/rerank': { model: 'BAAI/bge-reranker-v2-m3', query: 'lattice', documents: ['An order with meets and joins.'] },
  '/v1/score': { model: 'BAAI/bge-reranker-v2-m3', text_1: 'lattice', text_2: 'An order with meets and joins.' },
  '/v1/classify': { model: MODEL, input: 'This works well.' },
  '/v1/tokenize': { model: MODEL, prompt: 'What is a lattice?' },
  '/v1/detokenize': { model: MODEL, tokens: [3838, 374] },
  '/v1/pooling': { model: 'BAAI/bge-m3', input: 'A lattice has meets and joins.' },
  '/v1/moderations': { model: 'meta-llama/Llama-Guard-3-8B', input: 'This works well.' },
  '/v1/images/generations': { model: 'stabilityai/sdxl-turbo', prompt: 'A lake between mountains', n: 1 },
  '/v1/audio/speech': { model: 'hexgrad/Kokoro-82M', input: 'Hello.', voice: 'af_heart' },
};
