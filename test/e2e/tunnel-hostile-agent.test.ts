/** A node is another party's machine: its frames affect at most its own requests. */
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Frame } from '../../shared/wire/frames.ts';
import { NO_USAGE } from '../../shared/wire/reported-usage.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';
import { HandAgent, messageOf } from '../support/tunnel/hand-agent.ts';
import { wordsOf } from '../support/tunnel/identities.ts';
import { Neighbour } from '../support/tunnel/neighbour.ts';
import { nodeRecord, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

const totalsSchema = z.object({
  data: z.array(z.object({ requests: z.number(), completion_tokens: z.number() })),
});

let shop: TunnelBench;
let neighbour: Neighbour;
beforeAll(async () => {
  shop = await openTunnelBench();
  neighbour = await Neighbour.open(shop);
});
afterAll(endAll);

let model: string;
let count = 0;
beforeEach(() => {
  model = `hostile/${++count}`;
});

const chat = (more: object = {}) => shop.ask('/v1/chat/completions', chatBody({}, { model, ...more }));
const bytes = (length: number) => new Uint8Array(length);
const JSON_HEAD = {
  type: 'head',
  status: 200,
  engineTenths: 1,
  headers: [['content-type', 'application/json']],
} as const;

describe('an agent that breaks the protocol', () => {
  const wrongs: Record<string, (stream: number) => Uint8Array | string> = {
    text: () => '{"type":"accept"}',
    'an unknown frame': () => Uint8Array.of(0x60),
    'a frame that ends too early': (stream) => messageOf({ ...JSON_HEAD, stream }).subarray(0, 4),
    'a length that points past the message': (stream) =>
      messageOf({ type: 'data', stream, offset: 0, bytes: bytes(300) }).subarray(0, 200),
    'data before a head': (stream) => messageOf({ type: 'data', stream, offset: 0, bytes: bytes(5) }),
    'an end before a head': (stream) => messageOf({ type: 'end', stream, offset: 0 }),
    'data beyond a gap': (stream) =>
      messageOf({ ...JSON_HEAD, stream }, { type: 'data', stream, offset: 10, bytes: bytes(5) }),
    'data above the stream’s credit': (stream) =>
      messageOf(
        { ...JSON_HEAD, stream },
        ...Array.from(
          { length: 5 },
          (_, n): Frame => ({ type: 'data', stream, offset: n * 65_536, bytes: bytes(65_536) }),
        ),
      ),
    'an end at the wrong length': (stream) => messageOf({ ...JSON_HEAD, stream }, { type: 'end', stream, offset: 5 }),
    'data after the end': (stream) =>
      messageOf(
        { ...JSON_HEAD, stream },
        { type: 'data', stream, offset: 0, bytes: bytes(2) },
        { type: 'end', stream, offset: 2 },
        { type: 'data', stream, offset: 0, bytes: bytes(5) },
      ),
    'a message of more than a mebibyte': () => bytes(1024 * 1024 + 1),
    'a status above 599': (stream) => messageOf({ ...JSON_HEAD, stream, status: 600 }),
    'a record that is no update': () => messageOf({ type: 'record', sequence: 9, update: bytes(50) }),
    'an empty record': () => messageOf({ type: 'record', sequence: 9, update: bytes(0) }),
    'a record that is too large': () => messageOf({ type: 'record', sequence: 9, update: bytes(20_000) }),
    "another session's record": () => {
      const other = shop.issuer.identity();
      return messageOf({ type: 'record', sequence: 9, update: wordsOf(other, nodeRecord([model])) });
    },
    'a record with a forged signature': () => {
      const update = wordsOf(shop.issuer.identity(), nodeRecord([model]));
      update[update.length - 1] = (update[update.length - 1] ?? 0) ^ 1;
      return messageOf({ type: 'record', sequence: 9, update });
    },
    'credit for bytes never sent': () => messageOf({ type: 'credit', stream: 0, consumed: 9_999_999, window: 1 }),
    'a number above 2^53': () => Uint8Array.of(4, 255, 255, 255, 255, 255, 255, 255, 255, 127),
  };

  /** All cases run concurrently, because each client waits until the node may no longer return. */
  it('is cut off with 4002, its client gets an error, and others are served meanwhile', async () => {
    const told = await Promise.all(
      Object.entries(wrongs).map(async ([what, wrong], n) => {
        const name = `${model}/${n}`;
        const agent = await new HandAgent(shop).join([name]);
        const asked = chat({ model: name });
        const { stream } = await agent.opening();
        agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
        agent.sendRaw(wrong(stream));
        const { code, reason } = await agent.closed;
        await neighbour.serves();
        const response = await asked;
        const error = response.status === 200 ? '' : (await envelopeOf(response)).code;
        return { what, code, says: reason !== '', status: response.status, error };
      }),
    );
    const expected = Object.keys(wrongs).map((what) => {
      // This client already has its response.
      const answered = what === 'data after the end';
      return { what, code: 4002, says: true, status: answered ? 200 : 502, error: answered ? '' : 'upstream_error' };
    });
    expect(told).toEqual(expected);
  });

  it('in the message that ends a late answer: its client has that answer', async () => {
    const agent = await new HandAgent(shop).join([model]);
    const asked = chat();
    const { stream } = await agent.opening();
    agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    // Waits longer than the gateway does before it asks for the response as a stream.
    await delay(1_000);
    agent.sendRaw(wrongs['data after the end']?.(stream) ?? '');
    expect((await agent.closed).code).toBe(4002);
    expect((await asked).status).toBe(200);
  });
});

describe('an agent that is merely odd', () => {
  it('sends two heads: the first counts', async () => {
    const agent = await new HandAgent(shop).join([model]);
    const asked = chat();
    const { stream } = await agent.opening();
    agent.send({ ...JSON_HEAD, stream, status: 201 }, { ...JSON_HEAD, stream, status: 202 });
    agent.answer(stream);
    expect((await asked).status).toBe(201);
  });

  it('names foreign and unknown streams, settled ones, and reports for nobody', async () => {
    const agent = await new HandAgent(shop).join([model]);
    const odd: Frame[] = [];
    for (let stream = 100; stream < 400; stream++) {
      odd.push(
        { type: 'accept', stream, bodyOffset: 0, bodyDone: true },
        { type: 'data', stream, offset: 0, bytes: bytes(1000) },
        { type: 'end', stream, offset: 7 },
        { type: 'credit', stream, consumed: 77, window: 5 },
        {
          type: 'report',
          stream,
          usage: {
            prompt: 1,
            completion: 1,
            cached: 0,
            reasoning: 0,
            estimated: false,
            complete: true,
            aborted: false,
          },
        },
      );
    }
    agent.send(...odd);
    agent.send({ type: 'settled', streams: Array.from({ length: 60_000 }, (_, n) => n) });
    const asked = chat();
    agent.answer((await agent.opening()).stream);
    expect((await asked).status).toBe(200);
    expect(agent.closeCode).toBeUndefined();
  });

  it('reports requests that were never made, with the receipt of one that was: nobody is charged', async () => {
    const agent = await new HandAgent(shop).join([model]);
    const asked = chat();
    const { stream, receipt } = await agent.opening();
    agent.answer(stream);
    expect((await asked).status).toBe(200);
    const tokens = Number.MAX_SAFE_INTEGER;
    const usage = { ...NO_USAGE, prompt: tokens, completion: tokens, complete: true };
    const invented = Array.from({ length: 200 }, (_, n) => ({ requestId: `invented-${n}`, attempt: 1, receipt }));
    agent.send(...invented.map((name, n): Frame => ({ type: 'report', stream: 1_000_000 + n, usage, name })));
    const settled = () => agent.all('settled').flatMap(({ streams }) => streams).length;
    await eventually('all to be settled', 5_000, () => (settled() === 201 ? true : undefined));
    const [row, ...more] = await eventually('the totals', 15_000, async () => {
      const { data } = totalsSchema.parse(await shop.admin('GET', `usage?group_by=model&model=${model}`));
      return data.length > 0 ? data : undefined;
    });
    expect([row, more]).toEqual([{ requests: 1, completion_tokens: 2 }, []]);
    await eventually('the operator to be told', 5_000, async () =>
      (await shop.metric('otela_usage_anomalies_total{provider="lab",reason="unproven"}')) === 200 ? true : undefined,
    );
    expect(shop.logs().join('\n')).toMatch(/were corrected: \d+ unproven/);
  });

  const headers: Record<string, [string, string][]> = {
    'line ends': [['content-type', 'text/plain\r\nset-cookie: a=b']],
    'letters that a header cannot carry': [
      ['content-type', 'text/plain; charset="€"'],
      ['retry-after', '\u0000'],
    ],
    'names that are none': [
      ['con tent', 'x'],
      ['', ''],
      ['content-type', 'application/json'],
    ],
    'thirty-two of them, long': Array.from({ length: 32 }, (_, n): [string, string] => [`x-${n}`, 'v'.repeat(3_000)]),
  };
  it.each(Object.entries(headers))(
    'sends headers with %s: the client gets the answer without them',
    async (_what, list) => {
      const agent = await new HandAgent(shop).join([model]);
      const asked = chat();
      agent.answer((await agent.opening()).stream, '{}', list);
      const response = await asked;
      expect(response.status).toBe(200);
      expect(response.headers.get('set-cookie')).toBeNull();
      expect(await response.text()).toBe('{}');
      await neighbour.serves();
    },
  );

  it('answers 204, 205 and 304 with and without an end in the same message, and nothing stays open', async () => {
    const agent = await new HandAgent(shop).join([model]);
    let n = 0;
    for (const status of [204, 205, 304]) {
      for (const late of [false, true]) {
        const asked = chat();
        const { stream } = await agent.opening(++n);
        agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true }, { ...JSON_HEAD, stream, status });
        if (late) expect((await asked).status).toBe(status);
        agent.send(
          { type: 'end', stream, offset: 0 },
          {
            type: 'report',
            stream,
            usage: {
              prompt: 1,
              completion: 0,
              cached: 0,
              reasoning: 0,
              estimated: false,
              complete: true,
              aborted: false,
            },
          },
        );
        expect((await asked).status).toBe(status);
      }
    }
    await shop.restOf(agent.identity.session);
  });

  it('takes an opening and says nothing more: the client is told, a little after the engine’s time is up', async () => {
    await shop.admin('PUT', `models/${model}`, { first_byte_ms: 200, stall_ms: 200 });
    await shop.refreshed();
    const agent = await new HandAgent(shop).join([model]);
    const asked = [chat(), chat({ stream: true })];
    const first = await agent.opening(1);
    const second = await agent.opening(2);
    for (const { stream } of [first, second]) agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    const late = first.streaming ? first : second;
    const data = new TextEncoder().encode('data: {}\n\n');
    agent.send(
      { ...JSON_HEAD, stream: late.stream, headers: [['content-type', 'text/event-stream']] },
      { type: 'data', stream: late.stream, offset: 0, bytes: data },
    );
    const [unary, stream] = await Promise.all(
      asked.map((response) => response.then(async (r) => [r.status, await r.text()] as const)),
    );
    expect(unary).toEqual([504, expect.stringContaining('upstream_timeout')]);
    expect(stream).toEqual([200, expect.stringMatching(/^data: \{\}\n\ndata: \{"error".*upstream_timeout/)]);
    expect(agent.all('reset').map(({ code }) => code)).toEqual(['cancelled', 'cancelled']);
  });

  it('breaks every socket with the same answer: after some times it is not asked again', async () => {
    const identity = shop.issuer.identity();
    const asked: Promise<Response>[] = [];
    let opened = 0;
    for (let generation = 1; generation < 12; generation++) {
      const agent = new HandAgent(shop, identity);
      await agent.join([model], generation).catch(() => undefined);
      if (generation === 1) asked.push(chat());
      const open = await Promise.race([agent.when('open').catch(() => undefined), asked[0]]);
      if (open === undefined || !('stream' in open)) break;
      const { stream } = open;
      opened++;
      agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
      agent.send({ ...JSON_HEAD, stream }, { type: 'end', stream, offset: 77 });
      expect((await agent.closed).code).toBe(4002);
    }
    expect((await asked[0])?.status).toBe(502);
    expect(opened).toBeLessThan(8);
  });

  it('takes an opening and leaves: the client is told within the time that a return may take', async () => {
    const agent = await new HandAgent(shop).join([model]);
    const asked = chat();
    const { stream } = await agent.opening();
    agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    agent.socket.terminate();
    const response = await asked;
    expect(response.status).toBe(502);
  });

  it('floods the gateway with frames of streams that nobody opened, and reads nothing: it is cut off', async () => {
    const agent = await new HandAgent(shop).join([model]);
    agent.socket.pause();
    for (let message = 0; message < 200 && agent.socket.readyState === agent.socket.OPEN; message++) {
      const frames = Array.from({ length: 1_000 }, (_, n): Frame => {
        return { type: 'end', stream: 1_000_000 + message * 1_000 + n, offset: 0 };
      });
      agent.send(...frames);
    }
    await neighbour.serves();
    agent.socket.resume();
    expect(await agent.closed).toMatchObject({ code: 4002, reason: expect.stringContaining('unknown streams') });
    expect(agent.all('reset').length).toBeLessThanOrEqual(50_000);
  });

  it('floods the gateway with records: the last one counts', async () => {
    const agent = await new HandAgent(shop).join([model]);
    const flood: Frame[] = [];
    for (let version = 2; version < 2_002; version++) {
      flood.push({ type: 'record', sequence: version, update: agent.words([model], { version }) });
    }
    for (let at = 0; at < flood.length; at += 500) agent.send(...flood.slice(at, at + 500));
    await eventually('the last is stored', 10_000, () =>
      agent.all('recorded').some(({ sequence }) => sequence >= 2_001) ? true : undefined,
    );
    expect(agent.all('recorded').length).toBeLessThan(500); // most were not worth a write
    await neighbour.serves();
  });
});

it('none of it was an error inside the gateway', () => {
  // The log mentions only the invented reports.
  expect(shop.logs()).toEqual([expect.stringContaining('were corrected: 200 unproven')]);
});
