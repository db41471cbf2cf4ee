/** Responses that an engine stores: only the project that created one finds it, at its node. */
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { endAll, eventually } from '../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
let client: OpenAI;
beforeAll(async () => {
  cluster = await openTestCluster({ nodes: 2 });
  client = openai(cluster.key);
});
afterAll(endAll);

const openai = (apiKey: string) => new OpenAI({ baseURL: cluster.base, apiKey, maxRetries: 0 });
const asked = (more: object = {}) => ({ model: MODEL, input: 'Say something.', max_output_tokens: 4, ...more });
const create = async (more: object = {}) => {
  const { data, response } = await client.responses.create(asked(more)).withResponse();
  return { ...data, node: response.headers.get('x-otela-node') };
};
/** Requests for stored responses that reached an engine. */
const reached = () =>
  cluster.engines.flatMap(({ requests }) => requests).filter(({ url }) => /^\/v1\/responses\/./.test(url)).length;

it('a response is retrieved, continued and deleted at the node that generated it', async () => {
  for (let n = 0; n < 6; n++) {
    const { id, node, output_text } = await create();
    const { data, response } = await client.responses.retrieve(id).withResponse();
    expect([data.id, data.output_text, response.headers.get('x-otela-node')]).toEqual([id, output_text, node]);
    expect((await create({ previous_response_id: id })).node).toBe(node);
    await client.responses.delete(id);
    await expect(client.responses.retrieve(id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  }
});

it('a streamed response is found, too, and is streamed again', async () => {
  let id = '';
  for await (const event of await client.responses.create({ ...asked(), stream: true }))
    if (event.type === 'response.created') ({ id } = event.response);
  const types: string[] = [];
  for await (const { type } of await client.responses.retrieve(id, { stream: true, starting_after: 0 }))
    types.push(type);
  expect(types.at(-1)).toBe('response.completed');
});

it('another project learns nothing of a response, whatever it asks, and its request reaches no engine', async () => {
  const { id } = await create();
  const stranger = openai(await cluster.gateway.createKey('stranger'));
  const before = reached();
  for (const operation of ['retrieve', 'delete', 'cancel'] as const)
    await expect(stranger.responses[operation](id)).rejects.toThrow(`Response with id '${id}' not found.`);
  const continued = stranger.responses.create(asked({ previous_response_id: id }));
  await expect(continued).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found' });
  for (const guess of ['resp_0', '..', '%2e%2e', 'models%2F..', 'a'.repeat(200), 'resp_%00', `${id}%2Fcancel`])
    expect((await cluster.ask(`/v1/responses/${guess}`)).status).toBeGreaterThanOrEqual(400);
  const folded = await cluster.ask('/v1/responses', asked({ Previous_Response_Id: id }));
  expect(folded.status).toBe(400);
  expect(reached()).toBe(before);
  expect((await client.responses.retrieve(id)).id).toBe(id);
});

it('a response that the client does not want stored is not found', async () => {
  const { id } = await create({ store: false });
  await expect(client.responses.retrieve(id)).rejects.toThrow('not found');
});

it('what is wrong with a request for a stored response is said', async () => {
  const { id } = await create();
  const response = await cluster.ask(`/v1/responses/${id}?stream=true&starting_after=x`);
  expect([response.status, await response.text()]).toEqual([400, expect.stringContaining('number of an event')]);
  expect((await cluster.ask(`/v1/responses/${id}`, {})).headers.get('allow')).toBe('GET, DELETE');
  // The engine says that only a response in the background can be cancelled.
  await expect(client.responses.cancel(id)).rejects.toBeInstanceOf(OpenAI.BadRequestError);
});

const usage = z.object({ data: z.array(z.object({ completion_tokens: z.number(), requests: z.number() })) });

it('the tokens of a response in the background count once, when it is retrieved complete', async () => {
  const { id: keyId, key } = z
    .object({ id: z.string(), key: z.string() })
    .parse(await cluster.gateway.admin('POST', 'keys', { name: 'background' }));
  const own = openai(key);
  const { id, status } = await own.responses.create({ ...asked({ stand_in: { polls: 1 } }), background: true });
  expect([status, (await own.responses.retrieve(id)).status]).toEqual(['queued', 'queued']);
  for (let n = 0; n < 3; n++) expect((await own.responses.retrieve(id)).output_text).not.toBe('');
  const tokens = await eventually('five requests in the usage', 10_000, async () => {
    const { data } = usage.parse(await cluster.gateway.admin('GET', `usage?group_by=key&key=${keyId}`));
    return data[0]?.requests === 5 ? data[0].completion_tokens : undefined;
  });
  expect(tokens).toBe(4);
  const other = await own.responses.create({ ...asked(), background: true });
  expect((await own.responses.cancel(other.id)).status).toBe('cancelled');
});

it('if the node has left, the client is told so', async () => {
  const { id, node } = await create();
  const at = (await cluster.gateway.serving(2)).findIndex(({ session }) => session === node);
  expect(at).toBeGreaterThanOrEqual(0);
  await cluster.gateway.admin('DELETE', `nodes/${node}`);
  await eventually(
    'the node is gone',
    10_000,
    async () =>
      (await cluster.gateway.nodes()).some(({ session, state }) => session === node && state === 'LEFT') || undefined,
  );
  await expect(client.responses.retrieve(id)).rejects.toThrow('no longer serves');
  const continued = client.responses.create(asked({ previous_response_id: id }));
  await expect(continued).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found' });
  await expect(continued).rejects.toThrow('Send the messages of the conversation as input.');
});
