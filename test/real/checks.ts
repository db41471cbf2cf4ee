/** What must hold between a client and a real engine. Each check returns what it saw, or throws. */
import assert from 'node:assert/strict';
import { named, same, stream } from './answers.ts';
import { batch, sealed } from './clients.ts';
import { drained, leaving, resumed } from './ends.ts';
import { added, crowd, MANY } from './figures.ts';
import type { Place } from './place.ts';
import { chat, GREEDY, MESSAGES, TOOL, text } from './questions.ts';
import { fetched } from './shared-cache.ts';

export interface Check {
  what: string;
  /** Number of engines that it needs; it may end one of them. */
  replicas?: number;
  /** True: it needs a chat model, not one that embeds or ranks. */
  talks?: true;
  run(place: Place): Promise<string>;
}

/** @param root the path at which engines have it outside /v1: some have it only there, others only under /v1 */
const unary = (what: string, path: string, body: (model: string) => object, root?: string): Check => ({
  what,
  run: async (place) => {
    const paths = root === undefined ? [path] : [root, path];
    const { status, text } = await same(place, path, paths, body(place.model));
    return `${status}, ${text.length} bytes, the same`;
  },
});

async function hardware({ gateway, servingAfterMs, replicas }: Place): Promise<string> {
  const nodes = await gateway.nodes();
  assert.equal(nodes.length, replicas.length);
  const [node] = nodes;
  assert.ok(node !== undefined && node.models.length > 0);
  return `${replicas.length} serving after ${(servingAfterMs / 1_000).toFixed(0)} s: ${JSON.stringify({ models: node.models, hardware: node.hardware })}`;
}

/** In this order, because the last ones end engines. */
export const CHECKS: readonly Check[] = [
  { what: 'the node, as the registry has it', run: hardware },
  unary('chat', '/v1/chat/completions', (model) => chat(model)),
  unary('chat with log probabilities', '/v1/chat/completions', (model) =>
    chat(model, { logprobs: true, top_logprobs: 2 }),
  ),
  unary('chat, two choices', '/v1/chat/completions', (model) => chat(model, { n: 2 })),
  unary('completions', '/v1/completions', (model) => text(model)),
  unary('responses', '/v1/responses', (model) => ({
    model,
    input: 'Say something.',
    ...GREEDY,
    max_output_tokens: 32,
  })),
  unary('messages', '/v1/messages', (model) => chat(model)),
  unary('messages, tokens counted', '/v1/messages/count_tokens', (model) => ({ model, messages: MESSAGES })),
  unary('tokenize', '/v1/tokenize', (model) => ({ model, messages: MESSAGES }), '/tokenize'),
  unary('detokenize', '/v1/detokenize', (model) => ({ model, tokens: [20, 21, 22, 300] }), '/detokenize'),
  unary('embeddings', '/v1/embeddings', (model) => ({ model, input: ['a lake', 'a mountain'] })),
  unary('rerank', '/v1/rerank', (model) => ({ model, query: 'lake', documents: ['a lake', 'a hill'] }), '/rerank'),
  unary('score', '/v1/score', (model) => ({ model, text_1: 'lake', text_2: ['a lake', 'a hill'] }), '/score'),
  unary('classify', '/v1/classify', (model) => ({ model, input: 'a lake' }), '/classify'),
  unary('an error of the engine’s', '/v1/chat/completions', (model) => chat(model, { max_tokens: -1 })),
  unary('a prompt that is too long', '/v1/completions', (model) => text(model, { prompt: 'lake '.repeat(100_000) })),
  unary('structured output', '/v1/chat/completions', (model) =>
    chat(model, {
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'yes',
          schema: { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] },
        },
      },
    }),
  ),
  { what: 'chat, streamed', talks: true, run: (place) => stream(place, '/v1/chat/completions', chat(place.model)) },
  { what: 'completions, streamed', talks: true, run: (place) => stream(place, '/v1/completions', text(place.model)) },
  unary('a tool’s call', '/v1/chat/completions', (model) => chat(model, { ...TOOL, max_tokens: 200 })),
  {
    what: 'responses, streamed',
    talks: true,
    run: (place) =>
      named(
        place,
        '/v1/responses',
        { model: place.model, input: 'Say.', ...GREEDY, max_output_tokens: 32 },
        /^response\.(completed|incomplete)$/,
      ),
  },
  {
    what: 'messages, streamed',
    talks: true,
    run: (place) => named(place, '/v1/messages', chat(place.model), /^message_stop$/),
  },
  { what: 'a sealed chat', talks: true, run: sealed },
  { what: 'a batch', talks: true, run: batch },
  { what: 'a client leaves a stream', talks: true, run: (place) => leaving(place, { stream: true }) },
  { what: 'a client leaves a unary answer', talks: true, run: (place) => leaving(place, {}) },
  { what: 'added to the first token', talks: true, run: added },
  { what: `${MANY} streams at once`, talks: true, run: crowd },
  {
    what: 'chat goes on when its node is lost',
    talks: true,
    replicas: 2,
    run: (place) => resumed(place, '/v1/chat/completions', chat(place.model, { max_tokens: 1_000, ignore_eos: true })),
  },
  {
    what: 'completions go on when their node is lost',
    talks: true,
    replicas: 2,
    run: (place) => resumed(place, '/v1/completions', text(place.model, { max_tokens: 1_000, ignore_eos: true })),
  },
  { what: 'what another engine computed', talks: true, replicas: 2, run: fetched },
  { what: 'drain', talks: true, run: drained },
];
