/**
 * The alerts and the dashboard of `deploy/`, in the real Prometheus, with a real gateway and real agents: no alert
 * fires on a good day, each fault raises its alert, and no expression names a metric that does not exist. Windows and
 * waits of the alerts are shortened here; promtool tests the real ones (alert-timing.yml).
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { z } from 'zod';
import { AGENT_FAMILIES } from '../../agent/observe/metric-families.ts';
import { overviewJson } from '../../deploy/grafana/overview.ts';
import { FAMILIES } from '../../gateway/observe/metric-families.ts';
import { fileOf } from '../docs/page.ts';
import { which } from '../support/abilities.ts';
import { startAgent } from '../support/agent.ts';
import { certificateThatEnds } from '../support/certificate-that-ends.ts';
import { type FileSystem, mountFileSystem } from '../support/file-system.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { Prometheus, shortenedRules } from '../support/prometheus.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { ROOT } from '../support/where.ts';

const TOKEN = 'only-for-prometheus';
const NODES = 4;
const LIAR = 'liar/model';
const FIRES_MS = 40_000;
/** Maximum usage records in memory. A fault of a minute would not fill the default of 50,000. */
const HELD_RECORDS = 100;
/** Alerts of several gateways and of whole fleets: test/netns/game-day.test.ts has them. */
const OF_GAME_DAY = [
  'OtelaTlsCertificateEnding',
  'OtelaClockWrong',
  'OtelaAgentVersionsMixed',
  'OtelaKeysRefused',
  'OtelaModelEnding',
];
/** Alerts of gateways with PostgreSQL: test/e2e/postgresql/processes.test.ts has their metrics. */
const OF_DATABASE = [
  'OtelaDatabaseConnectionsExhausted',
  'OtelaDatabaseSilent',
  'OtelaObjectsUnstored',
  'OtelaObjectsWithoutOwner',
];

const missing = ['prometheus', 'promtool'].find((program) => which(program) === undefined);

let cluster: TestCluster;
let prometheus: Prometheus;
let disk: FileSystem | string;
/** Each alert that a test has seen fire. */
const seen = new Set<string>();

/** An engine that claims to have written a hundred million tokens. */
async function startLiar(context = 4096): Promise<string> {
  const usage = { prompt_tokens: 1, completion_tokens: 100_000_000, total_tokens: 100_000_001 };
  const message = { role: 'assistant', content: 'Much.' };
  const answer = {
    ...{ id: 'x', object: 'chat.completion', created: 1, model: LIAR, usage },
    choices: [{ index: 0, message, finish_reason: 'stop' }],
  };
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const models = { object: 'list', data: [{ id: LIAR, object: 'model', max_model_len: context }] };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(request.url === '/v1/models' ? models : answer));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

beforeAll(async () => {
  if (missing !== undefined) return;
  disk = mountFileSystem({ sizeMiB: 96 });
  const data = typeof disk === 'string' ? await temporaryDirectory('otela-gateway') : join(disk.path, 'data');
  await certificateThatEnds(data);
  const tokenFile = join(await temporaryDirectory(), 'metrics-token');
  await writeFile(tokenFile, TOKEN, { mode: 0o600 });
  cluster = await openTestCluster({
    nodes: NODES,
    agentArgs: ['--metrics', '127.0.0.1:0', '--metrics-token-file', tokenFile],
    gateway: {
      data,
      env: { OTELA_METRICS_TOKEN: TOKEN, USAGE_HELD_RECORDS: String(HELD_RECORDS) },
      queue: { unary_ms: 30_000, stream_ms: 30_000 },
    },
  });
  const hosts = await Promise.all(
    cluster.agents.map(async (agent) => (await agent.line(/metrics http:\/\/(\S+)\/metrics/, 10_000))[1] ?? ''),
  );
  await startAgent({ gateways: [cluster.gateway.url], token: cluster.token, engineUrl: await startLiar() });
  await cluster.gateway.serving(1, 15_000, LIAR);
  const gateway = { url: `${cluster.gateway.url}/metrics`, token: TOKEN };
  prometheus = await Prometheus.start({
    gateway,
    agents: { hosts, token: TOKEN },
    rules: shortenedRules(),
    intervalS: 1,
  });
});
beforeEach(({ skip }) => {
  if (missing !== undefined) skip(`not installed: ${missing}`);
});
afterAll(endAll);

async function ask(standIn: object = {}, more: object = {}): Promise<void> {
  const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 3, ...standIn }, more));
  await response.text().catch(() => '');
}

/** Sends requests, four per turn, until the alert fires. Its texts must have no gaps. */
async function raises(name: string, send: () => Promise<void> = async () => {}) {
  let over = false;
  const sending = (async () => {
    while (!over) {
      await Promise.allSettled(Array.from({ length: 4 }, send));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  const alert = await prometheus.fires(name, FIRES_MS).finally(() => {
    over = true;
  });
  await sending;
  seen.add(name);
  for (const text of Object.values(alert.annotations)) expect(text).not.toMatch(/<error|<no value>|NaN/);
  expect(alert.labels.severity).toMatch(/^(critical|warning)$/);
  return alert;
}

it('on a good day only the certificate is told of, which has three days left', async () => {
  for (let n = 0; n < 20; n++) await ask({}, n % 2 === 0 ? {} : { stream: true });
  const limited = {
    authorization: `Bearer ${await cluster.gateway.createKey('limited', { limits: { requests_per_minute: 1 } })}`,
  };
  for (let n = 0; n < 3; n++)
    await (await cluster.ask('/v1/chat/completions', chatBody(), { headers: limited })).arrayBuffer();
  await createBatch();
  await eventually('five seconds of scrapes', 20_000, async () => {
    const [counted] = await prometheus.query('count_over_time(up{job="otela-gateway"}[1m])');
    return (counted?.value ?? 0) >= 5 ? true : undefined;
  });
  const certificate = await raises('OtelaCertificateEnding', ask);
  expect(certificate.annotations.summary).toMatch(/ends in (2d 23h|3d)/);
  expect((await prometheus.firing()).map(({ labels }) => labels.alertname)).toEqual(['OtelaCertificateEnding']);
});

it('a provider that reports more than can be is named', async () => {
  const alert = await raises('OtelaUsageNotAsReported', () => ask({}, { model: LIAR }));
  expect(alert.labels).toMatchObject({ provider: 'lab', reason: 'over_bound' });
});

it('replicas under one name that have different contexts', async () => {
  const { url } = cluster.gateway;
  await startAgent({ gateways: [url], token: cluster.token, engineUrl: await startLiar(2048) });
  const alert = await raises('OtelaModelReplicasDiffer');
  expect(alert.labels).toMatchObject({ gen_ai_request_model: LIAR, fact: 'context' });
});

it('one engine of several that fails is left out, and said to be', async () => {
  cluster.engine.control({ fault: 'reset-before-head' });
  await raises('OtelaBreakerOpen', ask);
});

it('engines that fail, break off or are slow', async () => {
  const all = (behaviour: Parameters<TestCluster['engine']['control']>[0]) => {
    for (const engine of cluster.engines) engine.control(behaviour);
  };
  all({ status: 500 });
  await raises('OtelaRequestsFailing', ask);
  all({ fault: 'reset', afterTokens: 5, tokensPerSecond: 25 });
  await raises('OtelaStreamsBreaking', async () => {
    await ask({ tokens: 50 }, { stream: true });
    const continued = { model: MODEL, stream: true, prompt: 'Say something: ', max_tokens: 50 };
    const response = await cluster.ask('/v1/completions', continued, { headers: { 'x-otela-resume': '1' } });
    await response.text().catch(() => '');
  });
  all({ delayMs: 6_000 });
  const slow = await raises('OtelaSlowFirstToken', () => ask({}, { stream: true }));
  expect(slow.labels.gen_ai_request_model).toBe(MODEL);
  all({});
});

it('an engine that is gone, and nodes that fall silent with requests and batches waiting for them', async () => {
  await cluster.engine.close();
  await raises('OtelaEngineNotAnswering');
  const stopped = cluster.agents.slice(1);
  for (const agent of stopped) agent.signal('SIGSTOP');
  await createBatch();
  await raises('OtelaNodesSuspected');
  await raises('OtelaClusterFrozen');
  await cluster.gateway.admin('PATCH', `catalogue/${MODEL}`, { always_on: true });
  const alwaysOn = await raises('OtelaAlwaysOnModelDown');
  expect(alwaysOn.labels.gen_ai_request_model).toBe(MODEL);
  await cluster.gateway.admin('DELETE', `catalogue/${MODEL}`);
  const model = await raises('OtelaModelWithoutNode');
  expect(model.labels.gen_ai_request_model).toBe(MODEL);
  // The nodes may have left long ago, but requests for a model with settings wait in any case.
  await cluster.gateway.admin('PUT', `models/${MODEL}`, {});
  const left = new AbortController();
  void cluster.ask('/v1/chat/completions', chatBody(), { signal: left.signal }).catch(() => undefined);
  await raises('OtelaQueueStanding');
  left.abort();
  await raises('OtelaBatchesStalled');
  for (const agent of stopped) agent.signal('SIGCONT');
});

async function createBatch(): Promise<void> {
  const headers = { authorization: `Bearer ${cluster.key}` };
  const form = new FormData();
  const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: chatBody() };
  form.set('purpose', 'batch');
  form.set('file', new Blob([`${JSON.stringify(line)}\n`]), 'lines.jsonl');
  const file = await fetch(`${cluster.base}/files`, { method: 'POST', headers, body: form });
  const { id } = z.object({ id: z.string() }).parse(await file.json());
  const wish = { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' };
  expect((await cluster.ask('/v1/batches', wish)).status).toBe(200);
}

it('a full disk, and more records than memory holds meanwhile', async ({ skip }) => {
  if (typeof disk === 'string') return skip(disk);
  // Fills the disk again each time, because an object that is reset frees space, and because other programs write to
  // this disk.
  const { fill } = disk;
  await raises('OtelaStorageFailing', () => {
    fill(0);
    return ask();
  });
  const lost = await raises('OtelaUsageRecordsLost', () => {
    fill(0);
    return ask();
  });
  expect(lost.labels.severity).toBe('critical');
  disk.empty();
});

const dashboardSchema = z.object({
  panels: z.array(z.object({ title: z.string(), targets: z.array(z.object({ expr: z.string() })).optional() })),
});
/**
 * Panels without data in this test: the mock engine reports no cache, stored files are counted every ten minutes, the
 * machine may have no GPU (agent/life/gpus-of-agent has their metrics), and the gateway has no database.
 */
const NOT_HERE = [
  ...['KV cache in use, by agent', 'Stored files'],
  ...['GPUs in use, by agent', 'GPU power, by agent', 'Hottest GPU, by agent'],
  ...['Connections to PostgreSQL', 'Since the last answer of PostgreSQL', 'Slots of objects, by owner'],
  'Objects with changes that are not stored',
];
const dashboard = () => dashboardSchema.parse(JSON.parse(overviewJson()));
/** The variables as Grafana fills them in, with all values chosen. */
const filledIn = (expr: string) =>
  expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*').replaceAll('$model', '.*');

it('after such a day every panel of the dashboard has something to show', async () => {
  const empty: string[] = [];
  for (const { title, targets = [] } of dashboard().panels.filter((panel) => !NOT_HERE.includes(panel.title)))
    for (const { expr } of targets)
      if ((await prometheus.query(`last_over_time((${filledIn(expr)})[10m:2s])`)).length === 0)
        empty.push(`${title}: ${expr}`);
  expect(empty).toEqual([]);
});

it('no expression names a metric that no program has', async () => {
  const asked = fileOf('docs/observability.md', 'queries.promql')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  expect(asked.length).toBeGreaterThan(1);
  const panels = dashboard().panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => filledIn(expr)));
  const alerts = (await prometheus.alertRules()).map(({ query }) => query);
  const names = new Set(
    [...FAMILIES, ...AGENT_FAMILIES].flatMap(({ name, kind }) =>
      kind === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
    ),
  );
  const labels = new Set([...FAMILIES, ...AGENT_FAMILIES].flatMap((family) => family.labels));
  for (const expr of [...asked, ...panels, ...alerts]) {
    await prometheus.query(expr);
    for (const [word] of expr.matchAll(/\b(?:otela|gen_ai)_[a-z_]+/g))
      expect(names.has(word) || labels.has(word), `${word} in ${expr}`).toBe(true);
  }
});

it('a gateway that is down, as Prometheus and as its agents see it', async () => {
  await cluster.gateway.kill9();
  await raises('OtelaGatewayDown');
  await raises('OtelaTunnelDown');
  expect((await prometheus.firing()).map(({ labels }) => labels.alertname)).not.toContain('OtelaModelWithoutNode');
});

it('every alert was raised by its fault above, and is timed by promtool', async ({ skip }) => {
  if (typeof disk === 'string') return skip(disk);
  const names = (await prometheus.alertRules()).map(({ name }) => name);
  expect([...seen, ...OF_GAME_DAY, ...OF_DATABASE].toSorted()).toEqual(names.toSorted());
  const timing = readFileSync(join(ROOT, 'test/e2e/files/alert-timing.yml'), 'utf8');
  for (const name of names) expect(timing).toContain(`alertname="${name}"`);
});

it('alerts fire when their time is over and not before', () => {
  const { stdout, stderr, status } = spawnSync('promtool', ['test', 'rules', 'test/e2e/files/alert-timing.yml'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  expect(`${stdout}${stderr}`).toContain('SUCCESS');
  expect(status).toBe(0);
});
