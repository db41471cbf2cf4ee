/** Engines with a shared KV cache (`--kv-transfer-config`): one fetches what another computed. */
import assert from 'node:assert/strict';
import { eventually } from '../support/processes.ts';
import { NotThere } from './answers.ts';
import { ask, metric, newKey, type Place, targets } from './place.ts';
import { GREEDY } from './questions.ts';

const GONE_MS = 60_000;
/** Longer than a few of the cache's chunks: 256 tokens each by default. */
const LAKES = 'Name a lake, and say why it is known. '.repeat(100);

/** A conversation's node drains: the other one continues with keys and values that it fetched. */
export async function fetched(place: Place): Promise<string> {
  const { gateway, model } = place;
  const { key } = await newKey(gateway);
  const { through } = targets(place, key);
  const turn = async () => {
    const body = { model, messages: [{ role: 'user', content: LAKES }], ...GREEDY, max_tokens: 16 };
    const answer = await ask(through, '/v1/chat/completions', body, { headers: { 'x-otela-session': 'cached' } });
    assert.equal(answer.status, 200, answer.text.slice(0, 500));
    const text: unknown = JSON.parse(answer.text).choices[0].message.content;
    return { node: answer.headers.get('x-otela-node'), text };
  };
  const hits = () => Promise.all(place.replicas.map(({ url }) => metric(url, 'vllm:external_prefix_cache_hits_total')));
  const asked = () =>
    Promise.all(place.replicas.map(({ url }) => metric(url, 'vllm:external_prefix_cache_queries_total')));
  const first = await turn();
  if ((await asked()).every((tokens) => !(tokens > 0))) throw new NotThere('its engines share no cache');
  const before = await hits();
  assert.equal((await turn()).node, first.node);
  await gateway.admin('POST', `nodes/${first.node}/drain`);
  await gateway.serving(place.replicas.length - 1, GONE_MS);
  const ended = await eventually('the end of the drained agent', GONE_MS, async () => {
    const at = place.replicas.findIndex(({ agent }) => !agent.running);
    return at === -1 ? undefined : at;
  });
  place.replicas.splice(ended, 1);
  before.splice(ended, 1);
  const second = await turn();
  assert.notEqual(second.node, first.node);
  assert.equal(second.text, first.text);
  const gained = (await hits()).map((tokens, at) => tokens - (before[at] ?? 0));
  assert.ok(
    gained.some((tokens) => tokens > 0),
    `no engine fetched anything: ${gained.join()}`,
  );
  return `after a drain the other engine fetched ${Math.max(...gained)} tokens, and gave the same text`;
}
