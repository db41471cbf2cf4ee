import { expect, test } from 'vitest';
import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import { dispatchQueued, queueScope } from '../../../shared/proxy/dispatch-queued.ts';
import type { AttemptContext, QueueRequest } from '../../../shared/proxy/proxy-host.ts';
import { sealStaleError } from '../../../shared/proxy/sealed-requests.ts';
import { entry } from '../routing/support.ts';
import { contextOf, FakeHost } from './fake-host.ts';

const STREAM = ['data: 1\n\n', 'data: [DONE]\n\n'];

/** Records the host's calls of `open` and of the queue. */
class Watched extends FakeHost {
  readonly opened: AttemptContext<string>[] = [];
  readonly queued: QueueRequest<string>[] = [];

  override open(attempt: AttemptContext<string>) {
    this.opened.push(attempt);
    return super.open(attempt);
  }

  override async waitForTurn(place?: QueueRequest<string>) {
    if (place !== undefined) this.queued.push(place);
    await this.clock.advance(1_000);
    return super.waitForTurn();
  }

  override onAttemptFailed(node?: { session: string }, code?: string): void {
    this.log.push(`failed: ${node?.session}, ${code}`);
  }
}

test('each attempt has its own number, and host and record learn the earlier failures', async () => {
  const host = new Watched();
  host.add(entry('a'), 'engine_unreachable');
  host.add(entry('b'), STREAM);
  const { choice, attempts } = await dispatchQueued(await contextOf(host));
  expect([choice.node.session, attempts]).toEqual(['b', 2]);
  expect(host.opened.map(({ plan }) => [plan.number, plan.movable])).toEqual([
    [1, true],
    [2, false],
  ]);
  expect(host.log).toEqual([
    'ended: a, failed',
    'attempt: engine_unreachable',
    'failed: a, engine_unreachable',
    'attempt: 200',
  ]);
});

test('an attempt carries the time that the request waited, and who may write the rest', async () => {
  const host = new Watched();
  host.add(entry('a'), STREAM);
  const context = await contextOf(host);
  await host.clock.advance(250);
  await dispatchQueued(context);
  expect(host.opened[0]).toMatchObject({ waitedMs: 250, continues: false, offloads: true, caller: 'key' });
});

test.each([
  ['a unary request', { whole: '{"model":"m"}' }, undefined],
  ['one with a limit of concurrent requests', {}, { headers: {}, concurrent: true, release: () => {} }],
])('%s is not written past the pipeline', async (_, options, reservation) => {
  const host = new Watched();
  host.reservation = reservation;
  host.add(entry('a'), STREAM);
  await dispatchQueued(await contextOf(host, options));
  expect(host.opened[0]?.offloads).toBe(false);
});

test('a stream that may continue elsewhere is not written past the pipeline', async () => {
  const host = new Watched();
  host.add(entry('a'), STREAM);
  await dispatchQueued({ ...(await contextOf(host)), continues: true });
  expect(host.opened[0]).toMatchObject({ continues: true, offloads: false });
});

test('a body that streams is not moved to another node once one has it', async () => {
  const host = new Watched();
  for (const session of ['a', 'b']) host.add(entry(session), STREAM);
  const headers = { 'x-otela-model': 'm', 'content-type': 'application/octet-stream' };
  const context = await contextOf(host, { pieces: ['body'], headers });
  expect(context.parsed.body.kind).not.toBe('kept');
  await dispatchQueued(context);
  expect(host.opened.map(({ plan, offloads }) => [plan.movable, offloads])).toEqual([[false, false]]);
  await dispatchQueued(await contextOf(host));
  expect(host.opened.at(-1)).toMatchObject({ plan: { movable: true }, offloads: true });
});

test.each([429, 503, 'engine_unreachable'] as const)(
  'a node that answers %s immediately takes no request from a free node',
  async (answer) => {
    const host = new Watched();
    // `a` is chosen first among equals, and has no open requests because its engine refuses immediately.
    for (const session of ['a', 'b']) host.add(entry(session), STREAM);
    // As many others fail, so the breaker of `a` stays closed.
    for (let n = 0; n < 100; n++) host.memory.breakers.ended(`gone-${n}`, 'failed', false, host.clock.now());
    host.open = async (attempt) => {
      host.opened.push(attempt);
      const status = attempt.choice.node.session === 'a' ? answer : 200;
      if (typeof status === 'string') throw new AttemptError(status, 'as the test has it');
      const head = { headers: [], forwardMs: 0, engineMs: 0 };
      return { status, head, read: async () => undefined, cancel: () => {} };
    };
    const answered = new Map<number, number>();
    for (let n = 0; n < 1_000; n++) {
      const delivery = await dispatchQueued(await contextOf(host));
      answered.set(delivery.answer.status, (answered.get(delivery.answer.status) ?? 0) + 1);
      await delivery.read();
      await host.clock.advance(10);
    }
    expect(answered).toEqual(new Map([[200, 1_000]]));
    // It is asked again from time to time, and so comes back.
    const asked = host.opened.filter(({ choice }) => choice.node.session === 'a').length;
    expect(asked).toBeGreaterThan(5);
    expect(asked).toBeLessThan(50);
  },
);

test('a fallback is asked under its own name, receipt and time-outs', async () => {
  const host = new Watched();
  host.add(entry('a', { models: [{ id: 'small', state: 'ready' }] }), STREAM);
  const route = {
    fallbacks: ['small'],
    receiptFor: (model: string) => `receipt of ${model}`,
    timeoutsFor: () => ({ first_byte_ms: 7 }),
  };
  const { choice } = await dispatchQueued(await contextOf(host, { route }));
  expect(choice.model).toBe('small');
  expect(host.opened[0]?.dispatch).toMatchObject({ receipt: 'receipt of small', timeouts: { first_byte_ms: 7 } });
});

test('a request that waits says which nodes would do, how large it is and until when; then it asks the nodes of now', async () => {
  const host = new Watched();
  host.waitMs = 60_000;
  host.turns.push({ kind: 'turn' });
  host.add(entry('a'), 'overloaded');
  host.refresh = () => {
    host.log.push('refreshed');
    host.scripts.set('a', STREAM);
  };
  const context = await contextOf(host);
  await dispatchQueued(context);
  expect(host.queued).toHaveLength(1);
  expect(host.queued[0]).toMatchObject({
    name: 'req',
    model: 'm',
    scope: queueScope(context),
    priority: 'interactive',
    begun: false,
    bytes: JSON.stringify({ model: 'm', stream: true }).length,
    until: context.admittedAt + 60_000,
  });
  expect(host.opened.map(({ plan }) => plan.number)).toEqual([1, 2]);
  expect(host.log.indexOf('waited: turn')).toBeLessThan(host.log.indexOf('refreshed'));
});

test('nothing is asked for a client that has left', async () => {
  const host = new Watched();
  host.add(entry('a'), STREAM);
  const context = await contextOf(host);
  context.request.client.leave();
  await expect(dispatchQueued(context)).rejects.toThrow(AttemptError);
  expect(host.opened).toEqual([]);
});

test('where no node is there the host says why; of a sealed request whose nodes are gone, that it has to be sealed anew', async () => {
  const host = new Watched();
  await expect(dispatchQueued(await contextOf(host))).rejects.toMatchObject({ code: 'no_capacity' });
  const route = { stale: sealStaleError };
  await expect(dispatchQueued(await contextOf(host, { route }))).rejects.toMatchObject({ code: 'seal_stale' });
});

test('what a node says of its load with its answer counts for the next choice', async () => {
  const host = new Watched();
  host.add(entry('a'), STREAM);
  const load = { at: host.clock.now(), running: 3, waiting: 2 };
  host.open = async () => {
    const head = {
      headers: [['content-type', 'text/event-stream'] as [string, string]],
      forwardMs: 0,
      engineMs: 0,
      load,
    };
    return { status: 200, head, read: async () => undefined, cancel: () => {} };
  };
  await dispatchQueued(await contextOf(host));
  expect(host.nodes.live.loadOf('a')).toMatchObject({ running: 3, waiting: 2 });
});
