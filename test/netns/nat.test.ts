/** Agents behind a real NAT that accepts no incoming connection: served, cut, forgotten, delayed. */

import { spawnSync } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { text } from '../support/engine/words.ts';
import { load, stream } from '../support/load.ts';
import { promise } from '../support/patience.ts';
import { commandOf, descendants } from '../support/process-table.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { on, openWide, settle, type Wide } from './network.ts';

afterEach(endAll);

/** Starts a stream and waits until it flows; `result` is the complete stream. */
async function flowing(wide: Wide, tokens: number, perSecond: number) {
  let seen = 0;
  const result = stream(wide, { tokens, tokensPerSecond: perSecond }, {}, (n) => {
    seen = n;
  });
  await eventually('the stream flows', 10_000, () => (seen >= 5 ? true : undefined));
  return { result, seen: () => seen };
}

it('serves from behind NAT, where nothing can be reached from outside', async () => {
  const wide = await openWide();
  const agent = await settle(wide, 'c1h1');
  await wide.gateway.serving(1);
  expect(await stream(wide, { tokens: 20 })).toMatchObject({ done: true, words: text(20) });
  // Its tunnel, its wait for batches, and the registry’s socket, because it is its cluster's only delegate.
  await eventually('three connections', 30_000, () =>
    wide.network.connections(1, wide.gateway.port).length === 3 ? true : undefined,
  );
  const engine = descendants(agent.pid)
    .map(commandOf)
    .find((command) => command.includes('engine.ts'));
  const port = /--port (\d+)/.exec(engine ?? '')?.[1] ?? '';
  const inwards = spawnSync('ip', [
    ...on('gateway').slice(1),
    'timeout',
    '2',
    'bash',
    '-c',
    `</dev/tcp/10.1.0.11/${port}`,
  ]);
  expect(inwards.status, 'no way in').not.toBe(0);
});

it('serves from two clusters that use the same private addresses', async () => {
  const wide = await openWide({ sameAddresses: true });
  await settle(wide, 'c1h1', ['only/one']);
  await settle(wide, 'c2h1', ['only/two']);
  await wide.gateway.serving(2);
  for (const model of ['only/one', 'only/two'])
    expect(await stream(wide, { tokens: 3 }, { model })).toMatchObject({ done: true });
});

describe('the line is cut', () => {
  it.each([
    ['both ways', ['cut', 'c1nat']],
    ['outwards only', ['cut', 'c1nat', 'out']],
    ['inwards only', ['cut', 'c1nat', 'in']],
  ])('for 4 s, %s, in mid-stream: the stream goes on where it was and nobody sees an error', async (_, how) => {
    const wide = await openWide();
    await settle(wide, 'c1h1');
    await wide.gateway.serving(1);
    const { result } = await flowing(wide, 400, 40);
    wide.network.link(...how);
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    wide.network.link('heal', 'c1nat');
    const whole = await result;
    expect(whole).toMatchObject({ status: 200, done: true, error: undefined });
    expect(whole.words).toBe(text(400));
    expect(whole.silenceMs, 'the cut was one').toBeGreaterThan(2_000);
  });

  it('for good: a stream says that it broke, new requests get an answer in time, and after healing it serves again', async () => {
    const wide = await openWide();
    // Otherwise a request that finds no node waits a minute for one.
    await wide.gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0, stream_ms: 0 } });
    await settle(wide, 'c1h1');
    await wide.gateway.serving(1);
    const { result } = await flowing(wide, 4_000, 40);
    wide.network.link('cut', 'c1nat');
    const broken = await result;
    expect(broken.done).toBe(false);
    expect(broken.error).toBeDefined();
    const startedAt = Date.now();
    const refused = await wide.ask('/v1/chat/completions', chatBody({ tokens: 1 }), {
      signal: AbortSignal.timeout(30_000),
    });
    await refused.text();
    expect([502, 503, 504]).toContain(refused.status);
    expect(Date.now() - startedAt).toBeLessThan(promise(20_000));
    wide.network.link('heal', 'c1nat');
    await eventually('serves again', 30_000, async () => {
      const answer = await wide.ask('/v1/chat/completions', chatBody({ tokens: 1 }), {
        signal: AbortSignal.timeout(5_000),
      });
      await answer.text();
      return answer.status === 200 ? true : undefined;
    });
  });

  it('to one cluster of two: clients of unary requests notice nothing', async () => {
    const wide = await openWide();
    await settle(wide, 'c1h1');
    await settle(wide, 'c2h1');
    await wide.gateway.serving(2);
    const traffic = load(wide, 4, { tokens: 5 });
    await eventually('traffic flows', 10_000, () => (traffic.served > 50 ? true : undefined));
    wide.network.link('cut', 'c1nat');
    const before = traffic.served;
    await eventually('the other cluster serves on', 60_000, () => (traffic.served > before + 200 ? true : undefined));
    wide.network.link('heal', 'c1nat');
    await wide.gateway.serving(2, 60_000);
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
  });

  it('by a lost carrier for 3 s: nobody sees an error', async () => {
    const wide = await openWide();
    await settle(wide, 'c1h1');
    await wide.gateway.serving(1);
    const { result } = await flowing(wide, 300, 40);
    wide.network.link('down', 'c1h1');
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    wide.network.link('heal', 'c1h1');
    // The route disappeared with the link: real hosts restore it with their network scripts.
    spawnSync('ip', ['-n', 'c1h1', 'route', 'replace', 'default', 'via', '10.1.0.1']);
    expect(await result).toMatchObject({ done: true, error: undefined, words: text(300) });
  });
});

it('a NAT that forgets idle connections is noticed within 45 s, and the agent serves again', async () => {
  const wide = await openWide({ natIdleSeconds: 5 });
  const agent = await settle(wide, 'c1h1');
  await wide.gateway.serving(1);
  expect(await stream(wide, { tokens: 3 })).toMatchObject({ done: true });
  // A paused agent sends nothing, and the NAT forgets its connections, like during a quiet night.
  agent.signal('SIGSTOP');
  await new Promise((resolve) => setTimeout(resolve, 8_000));
  agent.signal('SIGCONT');
  const thawedAt = Date.now();
  await eventually('serves again', 45_000, async () => {
    const answer = await wide.ask('/v1/chat/completions', chatBody({ tokens: 1 }), {
      signal: AbortSignal.timeout(5_000),
    });
    await answer.text();
    return answer.status === 200 ? true : undefined;
  });
  expect(Date.now() - thawedAt).toBeLessThan(promise(45_000));
});

it('through a delay of 100 ± 5 ms each way the first token needs one round trip, not two', async () => {
  const wide = await openWide({ delayMs: 100, jitterMs: 5 });
  await settle(wide, 'c1h1');
  await wide.gateway.serving(1);
  const times: number[] = [];
  for (let n = 0; n < 9; n++) {
    const startedAt = performance.now();
    let first = 0;
    await stream(wide, { tokens: 3 }, {}, (seen) => {
      if (seen === 1) first = performance.now() - startedAt;
    });
    times.push(first);
  }
  const least = Math.min(...times); // other work on the machine only makes some slower
  expect(least).toBeGreaterThan(180);
  // A second round trip would add at least 190 ms.
  expect(least).toBeLessThan(200 + promise(150));
});

it('through 5 % of lost packets a stream is whole', async () => {
  const wide = await openWide();
  await settle(wide, 'c1h1');
  await wide.gateway.serving(1);
  wide.network.link('loss', 'c1nat', '5');
  expect(await stream(wide, { tokens: 300, tokensPerSecond: 60 })).toMatchObject({
    done: true,
    error: undefined,
    words: text(300),
  });
});
