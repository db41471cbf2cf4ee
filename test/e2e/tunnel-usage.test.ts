/** Usage is counted once and correctly, even if a process dies; the test reads the rows on the gateway's disk. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { NO_USAGE } from '../../shared/wire/reported-usage.ts';
import { patience } from '../support/patience.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { answerOf, HandAgent } from '../support/tunnel/hand-agent.ts';
import { openTunnelBench } from '../support/tunnel/tunnel-bench.ts';

afterEach(endAll);

const recordSchema = z.object({
  requestId: z.string(),
  attempt: z.number(),
  prompt: z.number(),
  completion: z.number(),
  estimated: z.boolean(),
  complete: z.boolean(),
  aborted: z.boolean(),
  course: z.object({ status: z.number().nullable(), firstMs: z.number().nullable(), totalMs: z.number().nullable() }),
});
const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number(), failed: z.number() })) });
type StoredUsage = z.infer<typeof recordSchema>;

/** All usage rows in a gateway's data directory. */
function stored(cluster: TestCluster): StoredUsage[] {
  const files = readdirSync(cluster.gateway.data, { recursive: true, encoding: 'utf8' });
  return files
    .filter((name) => name.endsWith('.sqlite'))
    .flatMap((name) => {
      // The gateway that creates a file locks it for a moment.
      const database = new DatabaseSync(join(cluster.gateway.data, name), {
        readOnly: true,
        timeout: patience(10_000),
      });
      try {
        const rows = database.prepare('SELECT record FROM usage').all();
        return rows.map(({ record }) => recordSchema.parse(JSON.parse(String(record))));
      } catch (error) {
        if (String(error).includes('no such table')) return [];
        throw error;
      } finally {
        database.close();
      }
    });
}

const settled = (cluster: TestCluster, count: number) =>
  eventually(`${count} records`, 5_000, () => {
    const records = stored(cluster);
    return records.length >= count ? records : undefined;
  });

it('streams, unary answers, refusals and aborted ones: each is one record with the engine’s counts', async () => {
  const cluster = await openTestCluster();
  const chat = (standIn: object, more: object = {}, init: RequestInit = {}) =>
    cluster.ask('/v1/chat/completions', chatBody(standIn, more), init);
  const texts: string[] = [];
  const count = async (about: object, ask: () => Promise<unknown>) => {
    const before = stored(cluster).map(({ requestId }) => requestId);
    await ask();
    const now = (await settled(cluster, before.length + 1)).filter(({ requestId }) => !before.includes(requestId));
    expect(now).toHaveLength(1);
    expect(now[0]).toMatchObject(about);
    return now[0];
  };
  const exact = { completion: 7, complete: true, estimated: false, aborted: false };
  await count(exact, async () => (await chat({ tokens: 7 })).text());
  await count(exact, async () => texts.push(await (await chat({ tokens: 7 }, { stream: true })).text()));
  const asked = { stream: true, stream_options: { include_usage: true } };
  await count(exact, async () => texts.push(await (await chat({ tokens: 7 }, asked)).text()));
  // A client that did not ask for counts does not see the event that carried them.
  expect(texts.map((text) => text.includes('"usage"'))).toEqual([false, true]);
  await count({ completion: 0, prompt: 0 }, async () => (await chat({ status: 422 })).text());
  const aborted = await count({ aborted: true, complete: false, estimated: true }, async () => {
    const control = new AbortController();
    const response = await chat({ tokens: 10_000, tokensPerSecond: 50 }, { stream: true }, { signal: control.signal });
    const reader = response.body?.getReader();
    for (let events = 0; events < 10; events++) await reader?.read();
    control.abort();
  });
  expect(aborted?.completion).toBeGreaterThanOrEqual(9);
  // The agent has disconnected from its engine, which may notice it later than the gateway; its tokenizer may have been
  // called meanwhile.
  const { tokensSent } = await cluster.engine.when(({ abortedAt }) => abortedAt !== undefined, 10_000, 'the abort');
  expect(aborted?.completion).toBeLessThanOrEqual(tokensSent);
  expect(aborted?.prompt).toBeGreaterThan(0);
});

it('a gateway that is killed between an answer and its books loses no record and doubles none', async () => {
  const cluster = await openTestCluster();
  let answered = 0;
  for (let round = 0; round < 3; round++) {
    const answers = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 5 }));
        return response.status === 200 && (await response.text()).includes('"usage"');
      }),
    );
    answered += answers.filter(Boolean).length;
    await cluster.gateway.kill9();
    await cluster.gateway.restart();
    await cluster.gateway.serving(1, 10_000);
  }
  expect(answered).toBe(120);
  const records = await settled(cluster, answered);
  expect(records).toHaveLength(answered);
  expect(new Set(records.map(({ requestId, attempt }) => `${requestId}/${attempt}`)).size).toBe(answered);
  expect(records.every(({ completion, complete }) => completion === 5 && complete)).toBe(true);
  // The killed gateway had not stored every response. The agent reports how they ended, and all were completed.
  for (const { course } of records) {
    expect(course.status).toBe(200);
    expect(course.firstMs).toBeGreaterThan(0);
    expect(course.totalMs).toBeGreaterThanOrEqual(course.firstMs ?? Number.NaN);
  }
  const totals = await eventually('the totals', 10_000, async () => {
    const { data } = totalsSchema.parse(await cluster.gateway.admin('GET', 'usage'));
    return data[0]?.requests === answered ? data : undefined;
  });
  expect(totals).toEqual([{ requests: answered, failed: 0 }]);
});

it('a hundred counts are stored as they come and not at the next tick: the agent hears of them before anything else', async () => {
  const shop = await openTunnelBench();
  const agent = await new HandAgent(shop).join(['counted']);
  const asked = Array.from({ length: 100 }, () =>
    shop.ask('/v1/chat/completions', chatBody({}, { model: 'counted' })).then((response) => response.status),
  );
  await agent.when('open', 100, 20_000);
  const streams = agent.all('open').map(({ stream }) => stream);
  agent.send(...streams.flatMap((stream) => answerOf(stream)));
  agent.send({ type: 'data', stream: 1_000_000, offset: 0, bytes: new Uint8Array(1) });
  await agent.when('reset', 1, 20_000);
  expect(agent.frames.slice(-2).map(({ type }) => type)).toEqual(['settled', 'reset']);
  expect(new Set(await Promise.all(asked))).toEqual(new Set([200]));
  // A response that its Worker fetches later also ends later.
  const settledNow = () => agent.all('settled').flatMap((frame) => frame.streams);
  await eventually('all are settled', 20_000, () => (settledNow().length >= 100 ? true : undefined));
  expect(settledNow().toSorted((one, other) => one - other)).toEqual(streams);
});

it('a count said again by name, while its answer goes on, does not let the agent forget that answer', async () => {
  const shop = await openTunnelBench();
  const agent = await new HandAgent(shop).join(['counted']);
  const asked = shop.ask('/v1/chat/completions', chatBody({}, { model: 'counted', stream: true }));
  const { stream, requestId, attempt, receipt } = await agent.opening();
  const [one, rest] = ['data: {"one":1}\n\n', 'data: [DONE]\n\n'].map((text) => new TextEncoder().encode(text));
  if (one === undefined || rest === undefined) throw new Error('two pieces');
  const headers: [string, string][] = [['content-type', 'text/event-stream']];
  const usage = { ...NO_USAGE, prompt: 1, completion: 2, complete: true };
  agent.send(
    { type: 'accept', stream, bodyOffset: 0, bodyDone: true },
    { type: 'head', stream, status: 200, engineTenths: 10, headers },
    { type: 'data', stream, offset: 0, bytes: one },
  );
  const response = await asked;
  agent.send(
    { type: 'report', stream, usage, name: { requestId, attempt, receipt } },
    { type: 'report', stream: 1_000_000, usage, name: { requestId: 'of-another', attempt: 1, receipt } },
  );
  expect((await agent.when('settled')).streams).toEqual([1_000_000]);
  agent.send(
    { type: 'data', stream, offset: one.length, bytes: rest },
    { type: 'end', stream, offset: one.length + rest.length },
  );
  expect(await response.text()).toBe('data: {"one":1}\n\ndata: [DONE]\n\n');
  expect((await agent.when('settled', 2)).streams).toEqual([stream]);
});
