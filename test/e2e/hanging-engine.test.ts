/**
 * An engine that accepts requests and answers none, while `/health` and `/v1/models` stay 200: routing detects it, and
 * detects when it is over.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Engine } from '../support/engine.ts';
import { promise } from '../support/patience.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

/**
 * Maximum time until routing detects the hang: the detector's silence, and one interval each of the tunnel and of the
 * comparison.
 */
const FOUND_MS = 25_000 + promise(10_000);
/** Duration of a prefill that is longer than a silence that counts as a hang. */
const PREFILL_MS = 23_000;

let cluster: TestCluster;
let hung: Engine;
let well: Engine;
let key: string;

beforeAll(async () => {
  cluster = await openTestCluster({ nodes: 2 });
  const [first, second] = cluster.engines;
  if (first === undefined || second === undefined) throw new Error('two nodes');
  hung = first;
  well = second;
  const project = await cluster.gateway.createProject('traced');
  await cluster.gateway.admin('PATCH', `projects/${project}`, { trace: true });
  key = await cluster.gateway.createKey('traced', { project_id: project });
});
afterAll(endAll);

async function trace() {
  const [from, to] = [-600_000, 60_000].map((ms) => new Date(Date.now() + ms).toISOString());
  const response = await fetch(`${cluster.gateway.url}/admin/trace?from=${from}&to=${to}`, {
    headers: { authorization: `Bearer ${cluster.gateway.adminKey}` },
  });
  const lines = (await response.text()).split('\n').filter((line) => line !== '');
  return lines.map((line) => rowSchema.parse(JSON.parse(line)));
}

const seen = (engine: Engine) => engine.requests.filter(({ method }) => method === 'POST').length;

interface Asked {
  status: number;
  attempts: number;
  text: string;
  ms: number;
}

async function ask(more: object = {}, headers: Record<string, string> = {}): Promise<Asked> {
  const from = Date.now();
  const init = { headers: { authorization: `Bearer ${key}`, ...headers } };
  const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 3 }, more), init);
  const text = await response.text();
  const late = /: otela .*attempts=(\d+)/.exec(text)?.[1];
  const attempts = Number(response.headers.get('x-otela-attempts') ?? late);
  return { status: response.status, attempts, text, ms: Date.now() - from };
}

const hangs = async () =>
  z
    .object({ data: z.array(z.object({ breaker: z.object({ state: z.string(), hangs: z.boolean() }) })) })
    .parse(await cluster.gateway.admin('GET', 'nodes'))
    .data.filter(({ breaker }) => breaker.hangs).length;

describe('one of two replicas hangs', () => {
  it('20 clients are answered, the hung ones by the other node within about 30 s, and nobody is sent there after that', async () => {
    hung.control({ fault: 'hang' });
    const clients = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => {
        await sleep(n * 300);
        return ask(n % 2 === 0 ? { stream: true } : {});
      }),
    );
    expect(clients.map(({ status }) => status)).toEqual(clients.map(() => 200));
    const moved = clients.filter(({ attempts }) => attempts === 2);
    expect(moved.length).toBeGreaterThan(0);
    expect(Math.max(...clients.map(({ attempts }) => attempts))).toBe(2);
    expect(Math.max(...clients.map(({ ms }) => ms))).toBeLessThan(FOUND_MS);
    expect(clients.every(({ text }) => text.includes('stand-in'))).toBe(true);
    await eventually('the engine is told to stop', 5_000, () => (hung.running() === 0 ? true : undefined));
    expect(await hangs()).toBe(1);

    // Both attempts are on record, and only one is charged.
    const rows = await eventually('all rows', 20_000, async () => {
      const found = await trace();
      return found.length >= clients.length + moved.length ? found : undefined;
    });
    expect(rows).toHaveLength(clients.length + moved.length);
    const charged = rows.filter(({ input_tokens, output_tokens }) => input_tokens + output_tokens > 0);
    expect(charged).toHaveLength(clients.length);
    expect(rows.filter(({ attempt, aborted }) => attempt === 1 && aborted)).toHaveLength(moved.length);
    expect(rows.filter(({ attempt }) => attempt === 2)).toHaveLength(moved.length);
  });

  it('a conversation that begins now stays at the other node, and what tries the node is one request at a time', async () => {
    const before = seen(hung);
    const turns: Asked[] = [];
    for (let turn = 0; turn < 20; turn++) turns.push(await ask({}, { 'x-otela-session': `after-${turn % 4}` }));
    expect(turns.every(({ status }) => status === 200)).toBe(true);
    // Only probes moved to another node. A probe may be withdrawn before it reached the engine.
    const moved = turns.filter(({ attempts }) => attempts === 2).length;
    expect(moved).toBeLessThanOrEqual(2);
    expect(seen(hung) - before).toBeLessThanOrEqual(moved);
    expect(well.requests.length).toBeGreaterThan(20);
  });

  it('it serves again soon after it answers', async () => {
    hung.control({});
    const before = seen(hung);
    await eventually('requests go there again', 40_000, async () => {
      const { status } = await ask();
      if (status !== 200) throw new Error(`status ${status}`);
      await sleep(200);
      return seen(hung) - before >= 5 && (await hangs()) === 0 ? true : undefined;
    });
  });
});

const rowSchema = z.looseObject({
  attempt: z.number(),
  aborted: z.boolean(),
  input_tokens: z.number(),
  output_tokens: z.number(),
});

it('a long prefill is no hang of a node that answers others meanwhile', async () => {
  const long = ask({ stream: true, stand_in: { tokens: 3, delayMs: PREFILL_MS, earlyHead: true } });
  const until = Date.now() + PREFILL_MS;
  while (Date.now() < until) {
    const others = await Promise.all([ask(), ask(), ask(), ask()]);
    expect(others.every(({ status, attempts }) => status === 200 && attempts === 1)).toBe(true);
    await sleep(100);
  }
  expect(await long).toMatchObject({ attempts: 1, status: 200 });
  expect(await hangs()).toBe(0);
});
