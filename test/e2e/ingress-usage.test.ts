/** The usage of an agent's ingress while there was no gateway reaches a gateway's records later, and counts once. */

import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { UsageDelivery } from '../../agent/ingress/usage-delivery.ts';
import { UsageQueue } from '../../agent/ingress/usage-queue.ts';
import { type IngressUsage, ingressUsageSchema } from '../../shared/usage/ingress-usage.ts';
import { ingressUsage } from '../support/ingress-usage.ts';
import { endAll, eventually } from '../support/processes.ts';
import { type Bench, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

let workshop: TunnelBench;

beforeAll(async () => {
  workshop = await openTunnelBench();
});
afterAll(endAll);

async function stored(bench: Bench): Promise<IngressUsage[]> {
  const rows = await workshop.rows(bench, 'SELECT record FROM ingress_usage ORDER BY number');
  return rows.map((row) => ingressUsageSchema.parse(JSON.parse(String(Object(row).record))));
}

it('is delivered over the tunnel, through cuts, once each and exact where it became exact', async () => {
  const queue = new UsageQueue({ directory: undefined, log: () => {} });
  const delivery = new UsageDelivery(queue);
  queue.add(Array.from({ length: 100 }, (_, n) => ingressUsage(n, { estimated: n === 0 })));
  const bench = await workshop.addNode({}, { usage: delivery });
  bench.path.cut();
  await eventually('the queue to be empty', 10_000, () => (queue.size === 0 ? true : undefined));
  queue.add([ingressUsage(0, { completion_tokens: 77 }), ingressUsage(5)]);
  await eventually('the queue to be empty', 10_000, () => (queue.size === 0 ? true : undefined));
  const records = await stored(bench);
  expect(records.length).toBe(100);
  expect(records.find(({ request_id }) => request_id === 'request-0')).toMatchObject({
    completion_tokens: 77,
    estimated: false,
  });
});

const totalsSchema = z.object({
  data: z.array(
    z.object({
      key: z.string(),
      model: z.string(),
      provider: z.string(),
      requests: z.number(),
      completion_tokens: z.number(),
    }),
  ),
});

it('stands in the totals under the provider whose agent reports it, each attempt once, whatever it claims', async () => {
  const queue = new UsageQueue({ directory: undefined, log: () => {} });
  const delivery = new UsageDelivery(queue);
  await workshop.addNode({}, { usage: delivery });
  const at = Date.now();
  const model = 'm-totals';
  queue.add([
    ...Array.from({ length: 20 }, (_, n) =>
      ingressUsage(1000 + n, { model, at, provider: 'eth', completion_tokens: 2 }),
    ),
    ingressUsage(2000, { model, at: at + 86_400_000, completion_tokens: 1_000 }),
    ingressUsage(2002, { model, at: at - 27 * 86_400_000, completion_tokens: 1_000 }),
    ingressUsage(2001, { model, at, provider: 'eth', completion_tokens: 50, estimated: true }),
  ]);
  const totals = async () => {
    const answer = await workshop.admin('GET', 'usage?group_by=key,model,provider&model=m-totals');
    return totalsSchema.parse(answer).data[0];
  };
  await eventually('the totals', 15_000, async () => ((await totals())?.requests === 21 ? true : undefined));
  queue.add([
    ingressUsage(2001, { model, at, provider: 'eth', completion_tokens: 6 }),
    ingressUsage(1000, { model, at }),
  ]);
  const total = await eventually('the exact totals', 15_000, async () => {
    const now = await totals();
    return now?.completion_tokens === 46 ? now : undefined;
  });
  expect(queue.size).toBe(0);
  for (const reason of ['backdated', 'future'])
    await eventually(`${reason} to be counted`, 5_000, async () =>
      (await workshop.metric(`otela_usage_anomalies_total{provider="lab",reason="${reason}"}`)) === 1
        ? true
        : undefined,
    );
  expect(total).toEqual({ key: 'ingress:lab', model, provider: 'lab', requests: 21, completion_tokens: 46 });
});

it('survives the object that took it', async () => {
  const queue = new UsageQueue({ directory: undefined, log: () => {} });
  const delivery = new UsageDelivery(queue);
  const bench = await workshop.addNode({}, { usage: delivery });
  queue.add([ingressUsage(1), ingressUsage(2)]);
  await eventually('the queue to be empty', 10_000, () => (queue.size === 0 ? true : undefined));
  await workshop.crash(bench);
  queue.add([ingressUsage(2), ingressUsage(3)]);
  await eventually('the queue to be empty', 15_000, () => (queue.size === 0 ? true : undefined));
  expect((await stored(bench)).map(({ request_id }) => request_id)).toEqual(['request-1', 'request-2', 'request-3']);
});

it('an agent that sends something else loses its socket, and the gateway nothing', async () => {
  const queue = new UsageQueue({ directory: undefined, log: () => {} });
  const bench = await workshop.addNode(
    {},
    {
      usage: {
        connected: (sender) => sender.send(1, '{"request_id":"x"}'),
        disconnected: () => {},
        stored: () => queue.add([ingressUsage(1)]),
      },
    },
  );
  await eventually('the socket to be closed', 10_000, () =>
    bench.log.some((line) => line.includes('no usage records')) ? true : undefined,
  );
  expect(queue.size).toBe(0);
  expect(await stored(bench)).toEqual([]);
});
