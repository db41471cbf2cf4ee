/**
 * The most common scenarios of a gateway, each cut into steps. Its result is the same wherever its objects were
 * evicted.
 */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { z } from 'zod';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock } from '../admin/support.ts';
import { runDurableObjectAlarm } from '../support/durable.ts';
import { AnsweringAgent, chunk } from './answering-agent.ts';

/** `running`: a request is at a node or in a queue, so that the objects that hold it are not idle. */
export type Step = 'idle' | 'running';
export type Story = () => AsyncGenerator<Step, unknown>;

const idSchema = z.looseObject({ id: z.string() });
const anySchema = z.looseObject({});
const ANSWER = JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 2 } });
let models = 0;

/** A key and a node with a unique model, so that it gets no requests of other scenarios. */
async function served() {
  const model = `model-${++models}`;
  const [{ key, id }, agent] = [await seedKey('consumer'), await AnsweringAgent.join(model)];
  const limits = { tokens_per_month: 1_000_000, concurrent_requests: 4 };
  await database(env).update(apiKeys).set({ limits }).where(eq(apiKeys.id, id));
  const ask = (more: object = {}, path = '/v1/chat/completions') =>
    knock('POST', path, { key, body: { model, messages: [{ role: 'user', content: 'x' }], ...more } });
  return { model, key, id, agent, ask };
}

async function upload(key: string, text: string, purpose = 'user_data'): Promise<string> {
  const part = (name: string) => `--b\r\ncontent-disposition: form-data; name="${name}"`;
  const body = `${part('purpose')}\r\n\r\n${purpose}\r\n${part('file')}; filename="f.jsonl"\r\n\r\n${text}\r\n--b--\r\n`;
  const headers = { 'content-type': 'multipart/form-data; boundary=b' };
  return (await good(knock('POST', '/v1/files', { key, headers, body }), idSchema)).id;
}

async function* chat() {
  const { agent, ask } = await served();
  yield 'idle' as const;
  const answer = ask();
  const open = await agent.opened();
  yield 'running' as const;
  agent.begin(open);
  yield 'running' as const;
  agent.end(open, agent.data(open, ANSWER));
  const [status, text] = [(await answer).status, await (await answer).text()];
  yield 'idle' as const;
  agent.close();
  return [status, text];
}

async function* stream() {
  const { agent, ask } = await served();
  yield 'idle' as const;
  const answer = ask({ stream: true });
  const open = await agent.opened();
  yield 'running' as const;
  agent.begin(open);
  const half = agent.data(open, chunk('a'));
  yield 'running' as const;
  const whole = agent.data(open, `${chunk('b')}data: [DONE]\n\n`, half);
  yield 'running' as const;
  agent.end(open, whole);
  const text = await (await answer).text();
  agent.close();
  return [(await answer).status, text];
}

async function* waits() {
  const { agent, ask, model } = await served();
  await agent.agent.publish(agent.agent.words('SERVING', { models: [{ id: model, state: 'loading' }] }));
  yield 'idle' as const;
  const answer = ask();
  await new Promise((resolve) => setTimeout(resolve, 50)); // it is on its way into the queue, which no API shows
  yield 'running' as const;
  await agent.agent.publish(agent.agent.words('SERVING', { models: [{ id: model, state: 'ready' }] }));
  const open = await agent.opened();
  yield 'running' as const;
  agent.begin(open);
  agent.end(open, agent.data(open, ANSWER));
  const text = await (await answer).text();
  agent.close();
  return [(await answer).status, text];
}

async function* batch() {
  const { key } = await seedKey('consumer');
  const request = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: 'm', messages: [] } };
  const input = await upload(key, `${JSON.stringify(request)}\n`, 'batch');
  yield 'idle' as const;
  const wanted = { input_file_id: input, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const { id } = await good(knock('POST', '/v1/batches', { key, body: wanted }), idSchema);
  const object = () => env.BATCH.getByName(id);
  yield 'idle' as const;
  await runDurableObjectAlarm(object());
  yield 'idle' as const;
  const lease = await object().grant('node', [0], undefined);
  if (lease === null) throw new Error('nothing is leased');
  const ref = { node: 'node', chunk: lease.chunk, epoch: lease.epoch };
  yield 'idle' as const;
  const renewed = await object().renewal(ref);
  yield 'idle' as const;
  await object().commit(ref, [{ line: 0, status_code: 200, request_id: 'r', body: ANSWER }], 'lab');
  yield 'idle' as const;
  const shownSchema = z.looseObject({ status: z.string(), output_file_id: z.string().nullable() });
  const shown = () => good(knock('GET', `/v1/batches/${id}`, { key }), shownSchema);
  for (let n = 0; n < 5 && (await shown()).status !== 'completed'; n++) {
    await runDurableObjectAlarm(object());
    yield 'idle' as const;
  }
  const { status, output_file_id: output } = await shown();
  const answer = await knock('GET', `/v1/files/${output}/content`, { key });
  return [renewed, status, JSON.parse(await answer.text()).response.body];
}

async function* uploads() {
  const { key } = await seedKey('consumer');
  const declared = { filename: 'f', purpose: 'user_data', bytes: 8, mime_type: 'text/plain' };
  const { id } = await good(knock('POST', '/v1/uploads', { key, body: declared }), idSchema);
  const parts: string[] = [];
  for (const text of ['abcd', 'efgh']) {
    yield 'idle' as const;
    const body = `--b\r\ncontent-disposition: form-data; name="data"; filename="d"\r\n\r\n${text}\r\n--b--\r\n`;
    const headers = { 'content-type': 'multipart/form-data; boundary=b' };
    parts.push((await good(knock('POST', `/v1/uploads/${id}/parts`, { key, headers, body }), idSchema)).id);
  }
  yield 'idle' as const;
  const fileSchema = z.looseObject({ file: idSchema });
  const path = `/v1/uploads/${id}/complete`;
  const { file } = await good(knock('POST', path, { key, body: { part_ids: parts } }), fileSchema);
  yield 'idle' as const;
  return (await knock('GET', `/v1/files/${file.id}/content`, { key })).text();
}

async function* keys() {
  const { key: operator } = await seedKey('operator');
  const admin = (method: string, path: string, body?: object) =>
    knock(method, `/admin${path}`, { key: operator, ...(body && { body }) });
  const keySchema = z.looseObject({ id: z.string(), key: z.string() });
  const { id, key } = await good(admin('POST', '/keys', { name: 'k' }), keySchema);
  const status = async () => (await knock('GET', '/v1/models', { key })).status;
  yield 'idle' as const;
  const said = [await status()];
  // An isolate learns of a change within five seconds.
  const changed = async () => {
    const before = said.at(-1);
    for (const until = Date.now() + 5_000; Date.now() < until && (await status()) === before; )
      await new Promise((resolve) => setTimeout(resolve, 100));
    said.push(await status());
  };
  await good(admin('PATCH', `/keys/${id}`, { scopes: ['usage'] }), anySchema);
  yield 'idle' as const;
  await changed();
  await good(admin('DELETE', `/keys/${id}`), anySchema);
  yield 'idle' as const;
  await changed();
  return said;
}

async function* node() {
  const { agent, model } = await served();
  const { key } = await seedKey('operator');
  const nodesSchema = z.looseObject({ data: z.array(z.looseObject({ session: z.string(), state: z.string() })) });
  const seen = async () => {
    const { data } = await good(knock('GET', '/admin/nodes', { key }), nodesSchema);
    return data.find(({ session }) => session === agent.agent.session)?.state;
  };
  yield 'idle' as const;
  const said = [await seen()];
  await agent.agent.publish(agent.agent.words('SERVING', { models: [{ id: model, state: 'loading' }] }));
  yield 'idle' as const;
  said.push(await seen());
  await agent.agent.publish(agent.agent.words('LEFT'));
  agent.close();
  yield 'idle' as const;
  return [...said, await seen()];
}

async function* settings() {
  const { key } = await seedKey('operator');
  const headers = { 'idempotency-key': crypto.randomUUID() };
  const put = (name: string) => knock('POST', '/admin/projects', { key, body: { name }, headers });
  const first = (await put('p')).status;
  yield 'idle' as const;
  const again = (await put('p')).status;
  yield 'idle' as const;
  const audit = await good(
    knock('GET', '/admin/audit?limit=1', { key }),
    z.looseObject({ data: z.array(z.looseObject({ action: z.string() })) }),
  );
  return [first, again, audit.data[0]?.action];
}

async function* usage() {
  const { agent, ask, id } = await served();
  const { key: operator } = await seedKey('operator');
  const answer = ask();
  const open = await agent.opened();
  agent.begin(open);
  agent.end(open, agent.data(open, ANSWER));
  await (await answer).text();
  yield 'idle' as const;
  const totalSchema = z.looseObject({ requests: z.number(), prompt_tokens: z.number(), completion_tokens: z.number() });
  const sums = () =>
    good(knock('GET', `/admin/usage?key=${id}`, { key: operator }), z.looseObject({ data: z.array(totalSchema) }));
  const hours = [env.TUNNEL.getByName(agent.agent.session), env.USAGE.getByName(usageShardOf(Date.now()))];
  let { data } = await sums();
  for (let n = 0; n < 100 && data.length === 0; n++) {
    // The report arrives after the response, and alarms pass it on.
    for (const object of hours) await runDurableObjectAlarm(object);
    if (n === 0) yield 'idle' as const;
    await new Promise((resolve) => setTimeout(resolve, 20));
    ({ data } = await sums());
  }
  agent.close();
  return data.map(({ requests, prompt_tokens: prompt, completion_tokens: completion }) => [
    requests,
    prompt,
    completion,
  ]);
}

async function* login() {
  const { key: operator } = await seedKey('operator');
  const admin = (path: string, body: object) => knock('POST', `/admin${path}`, { key: operator, body });
  const { id } = await good(admin('/users', { name: 'ada' }), idSchema);
  const keySchema = z.looseObject({ key: z.string() });
  const { key } = await good(admin('/keys', { name: 'k', user_id: id }), keySchema);
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const form = (path: string, fields: Record<string, string>) =>
    knock('POST', path, { headers, body: new URLSearchParams(fields).toString() });
  const codes = z.looseObject({ device_code: z.string(), user_code: z.string() });
  const { device_code, user_code } = await good(form('/login/device', { client_id: crypto.randomUUID() }), codes);
  yield 'idle' as const;
  const approved = (await knock('POST', '/admin/device-logins', { key, body: { user_code } })).status;
  yield 'idle' as const;
  const grant = { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code };
  const granted = z.looseObject({ access_token: z.string() });
  const { access_token: machine } = await good(form('/login/device/token', grant), granted);
  yield 'idle' as const;
  return [approved, (await knock('GET', '/v1/models', { key: machine })).status];
}

export const STORIES: Readonly<Record<string, Story>> = {
  chat,
  stream,
  batch,
  upload: uploads,
  'key made, changed and revoked': keys,
  'node joins and leaves': node,
  'admin change': settings,
  'usage read': usage,
  'queue wait': waits,
  login,
};
