/** What an operator sees: /metrics, read by Prometheus's own parser, and one line in the log for each request. */
import { spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { AGENT_FAMILIES } from '../../agent/observe/metric-families.ts';
import { FAMILIES } from '../../gateway/observe/metric-families.ts';
import { pythonWith } from '../support/abilities.ts';
import { endAll, eventually, Managed } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { AGENT_MAIN, GATEWAY_MAIN, NODE, ROOT } from '../support/where.ts';

const TOKEN = 'only-for-prometheus';
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = `00-${TRACE}-00f067aa0ba902b7-01`;
const PROMPT = 'nobody-but-the-engine-reads-this';
const PARSE = `import json, sys
from prometheus_client.parser import text_string_to_metric_families as parse
print(json.dumps([[f.name, f.type, [[s.name, s.labels, s.value] for s in f.samples]] for f in parse(sys.stdin.read())]))`;

const python = pythonWith(ROOT, 'prometheus_client');
const parsed = z.array(
  z.tuple([z.string(), z.string(), z.array(z.tuple([z.string(), z.record(z.string(), z.string()), z.number()]))]),
);
const line = z.looseObject({
  event: z.literal('request'),
  at: z.iso.datetime(),
  request_id: z.string(),
  status: z.number(),
  attempts: z.number(),
  total_ms: z.number(),
  error: z.string().optional(),
});

let cluster: TestCluster;
let agentText = '';
beforeAll(async () => {
  cluster = await openTestCluster({
    agentArgs: ['--metrics', '127.0.0.1:0'],
    gateway: { env: { OTELA_METRICS_TOKEN: TOKEN, REQUEST_LOG: 'all' } },
  });
});
afterAll(endAll);

async function page(): Promise<string> {
  const response = await fetch(`${cluster.gateway.url}/metrics`, { headers: { authorization: `Bearer ${TOKEN}` } });
  expect(response.status).toBe(200);
  return response.text();
}

/**
 * Resolves with the samples of /metrics by name and sorted labels, as soon as `enough` returns true: counts arrive a
 * second late.
 */
function samples(what: string, enough: (of: (name: string, labels?: object) => number) => boolean) {
  return eventually(what, 10_000, async () => {
    const lines = (await page()).split('\n').filter((one) => one !== '' && !one.startsWith('#'));
    const of = (name: string, labels: object = {}) =>
      lines
        .filter((one) => one.startsWith(`${name}{`) || one.startsWith(`${name} `))
        .filter((one) => Object.entries(labels).every(([key, value]) => one.includes(`${key}="${value}"`)))
        .reduce((sum, one) => sum + Number(one.slice(one.lastIndexOf(' '))), 0);
    return enough(of) ? of : undefined;
  });
}

function logged(requestId: string) {
  return eventually(`the line of ${requestId}`, 5_000, async () => {
    const lines = cluster.gateway.process.output.split('\n').filter((one) => one.includes(`"${requestId}"`));
    expect(lines.length).toBeLessThan(2);
    return lines.map((one) => line.parse(JSON.parse(one)))[0];
  });
}

it('requests of every kind are counted and logged, each once, and the trace reaches the engine', async () => {
  const ask = async (id: string, standIn: object, more: object = {}) => {
    const body = { ...chatBody({ ...standIn }, more), messages: [{ role: 'user', content: PROMPT }] };
    const response = await cluster.ask('/v1/chat/completions', body, {
      headers: { 'x-request-id': id, traceparent: PARENT },
    });
    await response.text().catch(() => {});
    return response.status;
  };
  expect(await ask('whole', { tokens: 5 })).toBe(200);
  expect(await ask('streamed', { tokens: 20 }, { stream: true })).toBe(200);
  expect(await ask('engine-says-no', { status: 400 })).toBe(400);
  expect(
    await ask('broken', { fault: 'reset', afterTokens: 5, tokens: 50, tokensPerSecond: 25 }, { stream: true }),
  ).toBe(200);
  expect(await ask('unknown', {}, { model: 'made-up' })).toBe(404);
  expect(cluster.engine.requests.at(-1)?.headers.traceparent).toBe(PARENT);

  const whole = await logged('whole');
  expect(whole).toMatchObject({
    ...{ trace_id: TRACE, endpoint: 'chat/completions', model: MODEL, stream: false, attempts: 1, status: 200 },
    ...{ provider: 'lab', node: expect.stringMatching(/^[a-z2-7]{26}$/), key: expect.stringMatching(/^key_/) },
  });
  expect(whole.error).toBeUndefined();
  expect(await logged('streamed')).toMatchObject({ stream: true, status: 200, first_ms: expect.any(Number) });
  expect(await logged('engine-says-no')).toMatchObject({ status: 400, attempts: 1 });
  expect(await logged('broken')).toMatchObject({ status: 200, error: 'upstream_error' });
  expect(await logged('unknown')).toMatchObject({ status: 404, error: 'model_not_found', attempts: 0 });
  for (const secret of [PROMPT, cluster.key, cluster.gateway.adminKey, cluster.token, TOKEN])
    expect(cluster.gateway.process.output).not.toContain(secret);

  const of = await samples(
    'all of them',
    (all) => all('otela_requests_total') >= 5 && all('otela_usage_records_total') >= 4,
  );
  expect(of('otela_requests_total')).toBe(5);
  expect(of('otela_requests_total', { status: '404', error: 'model_not_found' })).toBe(1);
  expect(of('otela_attempts_total', { outcome: '2xx', gen_ai_request_model: MODEL })).toBe(3);
  expect(of('otela_attempts_total', { outcome: '4xx' })).toBe(1);
  expect(of('otela_streams_broken_total')).toBe(1);
  expect(of('otela_requests_in_flight')).toBe(0);
  expect(of('gen_ai_server_request_duration_seconds_count', { gen_ai_provider_name: 'lab' })).toBe(4);
  expect(of('gen_ai_client_token_usage_count', { gen_ai_token_type: 'output' })).toBeGreaterThanOrEqual(2);
  expect(of('gen_ai_server_time_per_output_token_seconds_count')).toBe(1);
  expect(of('otela_registry_nodes', { state: 'SERVING' })).toBe(1);
  expect(of('otela_tunnels_open')).toBe(1);
});

it('a client that leaves is counted as such, wherever its request stands', async () => {
  const before = (await samples('the page', () => true))('otela_clients_left_total');
  const leave = async (id: string, standIn: object) => {
    const left = new AbortController();
    const asking = cluster.ask('/v1/chat/completions', chatBody({ id, ...standIn }, { stream: true }), {
      signal: left.signal,
      headers: { 'x-request-id': id },
    });
    await cluster.engine.when((request) => request.bodyStart.includes(id) && request.bodyBytes > 0, 5_000, id);
    left.abort();
    await asking.then((response) => response.text()).catch(() => {});
  };
  await leave('left-before-the-head', { delayMs: 30_000 });
  await leave('left-in-the-middle', { tokens: 10_000, tokensPerSecond: 20 });
  await samples(
    'two who left',
    (of) => of('otela_clients_left_total') === before + 2 && of('otela_requests_in_flight') === 0,
  );
  expect(await logged('left-before-the-head')).toMatchObject({ error: 'client_left', status: 499 });
});

it('whatever becomes of requests, none stays in flight and each is counted once', async () => {
  const before = await samples('nothing in flight', (of) => of('otela_requests_in_flight') === 0);
  const kinds: { standIn: object; more?: object; leaveMs?: number }[] = [
    { standIn: { tokens: 3 } },
    { standIn: { tokens: 30, tokensPerSecond: 200 }, more: { stream: true } },
    { standIn: { tokens: 5_000, tokensPerSecond: 100 }, more: { stream: true }, leaveMs: 150 },
    { standIn: { delayMs: 20_000 }, leaveMs: 100 },
    { standIn: { fault: 'reset', afterTokens: 2, tokens: 9, tokensPerSecond: 50 }, more: { stream: true } },
    { standIn: { fault: 'reset-before-head' } },
    { standIn: { status: 503 } },
    { standIn: {}, more: { model: 'made-up' } },
    { standIn: {}, more: { model: 7 } },
  ];
  const ROUNDS = 12;
  const storm = Array.from({ length: ROUNDS }, () => kinds).flat();
  const ends = await Promise.allSettled(
    storm.map(async ({ standIn, more, leaveMs }) => {
      const signal = leaveMs === undefined ? null : AbortSignal.timeout(leaveMs);
      const response = await cluster.ask('/v1/chat/completions', chatBody(standIn, more), { signal });
      await response.text();
    }),
  );
  // Some clients that disconnected may never have reached the gateway: a busy machine connects late.
  const stayed = ends.filter((_, n) => storm[n]?.leaveMs === undefined).length;
  await samples('each counted once', (of) => {
    const more = (name: string) => of(name) - before(name);
    const left = more('otela_clients_left_total');
    const whole = left <= storm.length - stayed && more('otela_requests_total') === stayed + left;
    return whole && of('otela_requests_in_flight') === 0;
  });
});

it('a node shows what runs there now, and what went wrong there last', async () => {
  const [node] = await cluster.gateway.nodes();
  const read = async () => z.looseObject({}).parse(await cluster.gateway.admin('GET', `nodes/${node?.session}`));
  const left = new AbortController();
  const body = chatBody({ tokens: 10_000, tokensPerSecond: 20 }, { stream: true });
  const running = await cluster.ask('/v1/chat/completions', body, { signal: left.signal });
  expect(await read()).toMatchObject({ in_flight: 1, tunnel: { outbox: expect.any(Number) } });
  left.abort();
  await running.text().catch(() => {});
  await eventually('nothing runs there', 5_000, async () => ((await read()).in_flight === 0 ? true : undefined));
  expect(await read()).toMatchObject({
    last_errors: expect.arrayContaining([expect.objectContaining({ code: 'engine_closed', status: 200 })]),
  });
  expect(await cluster.gateway.admin('GET', 'nodes')).toMatchObject({ data: [{ session: node?.session }] });
  const at = ['--url', cluster.gateway.url, '--key-file', join(cluster.gateway.data, 'admin.key')];
  const list = new Managed([NODE, GATEWAY_MAIN, 'nodes', 'list', '--state', 'SERVING', ...at]);
  await list.end(10_000);
  expect(list.output).toMatch(
    new RegExp(`^session +state +provider .*\\n${node?.session} +SERVING +lab +testbed +`, 'm'),
  );
});

it('an agent shows its figures to its owner and to holders of the key alone', async () => {
  const [agent] = cluster.agents;
  if (agent === undefined) throw new Error('no agent');
  const [, url = '', keyFile = ''] = await agent.line(/metrics (http:\S+\/metrics), its key is in (\S+)/, 5_000);
  // By now the agent's directory has the name of the session.
  const [, state = ''] = await agent.line(/session \S+, state in (\S+)/, 5_000);
  const file = join(state, basename(keyFile));
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const key = readFileSync(file, 'utf8').trim();
  const get = (headers: Record<string, string>, path = url) => fetch(path, { headers });
  expect((await get({})).status).toBe(401);
  expect((await get({ authorization: `Bearer ${key}x` })).status).toBe(401);
  expect((await get({ authorization: `Bearer ${key}` }, `${url}/more`)).status).toBe(404);
  const text = await (await get({ authorization: `Bearer ${key}` })).text();
  for (const one of ['state{state="SERVING"} 1', 'engine_answering 1', 'models{state="ready"} 1', 'mesh_channels 0'])
    expect(text).toContain(`otela_agent_${one}\n`);
  expect(text).toContain(`otela_agent_tunnel_connected{gateway="${new URL(cluster.gateway.url).host}"} 1\n`);
  const command = new Managed([NODE, AGENT_MAIN, 'metrics'], { env: { XDG_RUNTIME_DIR: dirname(dirname(state)) } });
  expect((await command.end(10_000)).code).toBe(0);
  const names = (page: string) => [...page.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
  expect(names(command.output)).toEqual(names(text));
  agentText = text;
});

it('a wrong request is told the id that is in the log', async () => {
  const response = await cluster.ask('/v1/chat/completions');
  expect(await logged(response.headers.get('x-request-id') ?? '')).toMatchObject({ status: 405 });
});

it("Prometheus's own parser reads the page, with the types that are declared", async ({ skip }) => {
  if (python === undefined)
    return skip('no Python with prometheus_client: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv');
  await cluster.ask('/v1/chat/completions', chatBody());
  const read = spawnSync(python, ['-c', PARSE], { input: (await page()) + agentText, encoding: 'utf8' });
  expect(read.stderr).toBe('');
  const families = parsed.parse(JSON.parse(read.stdout));
  // Prometheus's parser drops `_total` from a counter's name, as OpenMetrics does.
  const declared = new Map(
    [...FAMILIES, ...AGENT_FAMILIES].map(({ name, kind }) => [
      kind === 'counter' ? name.replace(/_total$/, '') : name,
      kind,
    ]),
  );
  expect(families.length).toBeGreaterThan(25);
  for (const [name, type, of] of families) {
    expect(type, name).toBe(declared.get(name));
    expect(of.length, name).toBeGreaterThan(0);
  }
});
