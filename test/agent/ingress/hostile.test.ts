/** A peer with a valid ticket and hostile behavior: it costs only its own channel, and affects no other peer. */
import { afterEach, expect, it } from 'vitest';
import { type MemoryChannel, memoryChannel } from '../../../agent/mesh/requests/memory-channel.ts';
import type { RequestChannel, StreamFrame } from '../../../agent/mesh/requests/request-channel.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { Frame, OpenFrame } from '../../../shared/wire/frames.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';
import { entryOf, Village, type Villager } from './village.ts';

afterEach(endAll);

const SESSION = 'y'.repeat(26);

/** The other end of a channel, controlled by the test. */
class Peer {
  readonly frames: StreamFrame[] = [];
  closed = false;
  readonly channel: RequestChannel;
  readonly pair: MemoryChannel;

  constructor(victim: Villager, options: { victimDialled: boolean; session?: string; provider?: string }) {
    const { victimDialled, session = SESSION, provider = 'lab' } = options;
    const own = {
      session,
      provider,
      events: {
        onFrame: (channel: RequestChannel, frame: StreamFrame) => {
          if (frame.type === 'data') channel.link.consumed(frame.bytes.length);
          this.frames.push(frame);
        },
        onMessageEnd: () => {},
        onChannelClosed: () => {
          this.closed = true;
        },
      },
    };
    const theirs = { session: victim.session, provider: victim.provider, events: victim.requests };
    this.pair = victimDialled ? memoryChannel(theirs, own) : memoryChannel(own, theirs);
    this.channel = victimDialled ? this.pair.far : this.pair.near;
    victim.requests.onChannel(victimDialled ? this.pair.near : this.pair.far);
  }

  put(...frames: Frame[]): void {
    for (const frame of frames) this.channel.link.put(frame);
  }

  /** A complete small request. */
  ask(stream: number, name: string, body: object = chatBody(), more: Partial<OpenFrame> = {}): void {
    const bytes = Buffer.from(JSON.stringify(body));
    this.put(
      opening(stream, name, { bodyLength: bytes.length, ...more }),
      { type: 'data', stream, offset: 0, bytes },
      { type: 'end', stream, offset: bytes.length },
    );
  }

  got<T extends StreamFrame['type']>(type: T): Promise<Extract<StreamFrame, { type: T }>> {
    return eventually(`a frame ${type}`, 5_000, () =>
      this.frames.find((frame): frame is Extract<StreamFrame, { type: T }> => frame.type === type),
    );
  }

  async isClosed(): Promise<void> {
    await eventually('the channel to be closed', 5_000, () => (this.closed ? true : undefined));
  }
}

function opening(stream: number, requestId: string, more: Partial<OpenFrame> = {}): OpenFrame {
  return {
    type: 'open',
    stream,
    resume: false,
    requestId,
    attempt: 1,
    answerOffset: 0,
    endpoint: 1,
    headers: [['content-type', 'application/json']],
    edits: [],
    streaming: false,
    dropUsage: false,
    firstByteMs: 0,
    stallMs: 0,
    receipt: '',
    bodyLength: 0,
    ...more,
  };
}

async function victim(): Promise<{ village: Village; here: Villager }> {
  const village = new Village();
  return { village, here: await village.add() };
}

/** It answers as usual. */
async function isWell(here: Villager): Promise<void> {
  const response = await here.ask('/chat/completions', chatBody({ tokens: 3 }));
  expect(response.status).toBe(200);
  expect(response.headers.get('x-otela-node')).toBe(here.session);
}

it.each([true, false])(
  'a stream under a number that is ours to give closes the channel (we dialled: %s)',
  async (we) => {
    const { here } = await victim();
    const peer = new Peer(here, { victimDialled: we });
    peer.ask(we ? 1 : 2, 'r');
    await peer.isClosed();
    expect(here.engine?.requests.length).toBe(0);
    await isWell(here);
  },
);

it('an honest one is served; one whose name is another peer’s gets nothing of its answer', async () => {
  const { here } = await victim();
  const honest = new Peer(here, { victimDialled: true });
  honest.ask(2, 'guessed', chatBody({ tokens: 100, tokensPerSecond: 50 }, { stream: true }), { streaming: true });
  await honest.got('data');
  const thief = new Peer(here, { victimDialled: true, session: 'x'.repeat(26) });
  thief.put(opening(2, 'guessed', { resume: true }));
  expect((await thief.got('reset')).code).toBe('unknown');
  expect(honest.frames.some(({ type }) => type === 'reset')).toBe(false);
});

it('a provider that is not served is refused before the engine sees anything', async () => {
  const { here } = await victim();
  const peer = new Peer(here, { victimDialled: true, provider: 'other' });
  peer.ask(2, 'r');
  expect(await peer.got('reset')).toMatchObject({ code: 'refused', message: expect.stringContaining('--serve-to') });
  peer.put(opening(4, 's', { resume: true }));
  expect(here.engine?.requests.length).toBe(0);
  expect(peer.closed).toBe(false);
});

it('headers that an ingress would not pass on do not reach the engine from a peer either', async () => {
  const village = new Village();
  const here = await village.add({ engine: { apiKey: 'engine-secret' } });
  const peer = new Peer(here, { victimDialled: true });
  peer.ask(2, 'r', chatBody(), {
    headers: [
      ['content-type', 'application/json'],
      ['authorization', 'Bearer mine'],
      ['transfer-encoding', 'chunked'],
      ['host', 'elsewhere'],
      ['x-forwarded-for', '10.1.2.3'],
      ['traceparent', 'a\r\nb: c'],
    ],
  });
  const head = await peer.got('head');
  expect(head.status).toBe(200);
  const { headers } = here.engine?.requests[0] ?? {};
  expect(headers?.authorization).toBe('Bearer engine-secret');
  expect(JSON.stringify(headers)).not.toMatch(/mine|chunked|elsewhere|10\.1\.2\.3|b: c/);
});

it('more bytes than were granted close the channel', async () => {
  const { here } = await victim();
  const peer = new Peer(here, { victimDialled: true });
  peer.put(opening(2, 'r', { bodyLength: undefined, endpoint: 1 }));
  here.engine?.control({ readBody: false }, 1);
  for (let offset = 0; offset < 8 * 1024 * 1024; offset += 65_536)
    peer.put({ type: 'data', stream: 2, offset, bytes: new Uint8Array(65_536) });
  await peer.isClosed();
  await isWell(here);
});

it('answers without a question are ignored, and a flood of them ends the channel', async () => {
  const { here } = await victim();
  const peer = new Peer(here, { victimDialled: true });
  peer.put({ type: 'head', stream: 3, status: 200, engineTenths: 0, headers: [] });
  expect((await peer.got('reset')).code).toBe('unknown');
  for (let n = 0; n < 20_000; n++) peer.put({ type: 'accept', stream: 2 * n + 5, bodyOffset: 0, bodyDone: true });
  await peer.isClosed();
  await isWell(here);
});

it('usage that was never asked for is not counted, and its sender may forget it', async () => {
  const { here } = await victim();
  const peer = new Peer(here, { victimDialled: true });
  const usage = { ...NO_USAGE, completion: 1_000_000, complete: true };
  peer.put({ type: 'report', stream: 7, usage, name: { requestId: 'made-up', attempt: 1, receipt: MODEL } });
  expect((await peer.got('settled')).streams).toEqual([7]);
  peer.put({ type: 'report', stream: 9, usage });
  await isWell(here);
  expect((await here.accounted(1)).map(({ completion }) => completion)).toEqual([3]);
});

it('a node that answers out of order costs its asker one attempt, not the ingress', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  village.publish(entryOf(SESSION, 'lab', 'local', [MODEL]));
  let asked = 0;
  village.answerFor(SESSION, () => {
    const peer = new Peer(here, { victimDialled: true });
    neverRejects(
      peer.got('open').then(({ stream }) => {
        asked++;
        peer.put({ type: 'accept', stream, bodyOffset: 0, bodyDone: true }, { type: 'end', stream, offset: 5 });
      }),
    );
    return peer.pair.near;
  });
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.status).toBe(502);
  expect(asked).toBeGreaterThan(1);
  expect(asked).toBeLessThan(20);
});

it('an answer whose headers are made to split ours is passed on without them', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  village.publish(entryOf(SESSION, 'lab', 'local', [MODEL]));
  village.answerFor(SESSION, () => {
    const peer = new Peer(here, { victimDialled: true });
    neverRejects(
      peer.got('open').then(({ stream }) => {
        const headers: [string, string][] = [
          ['content-type', 'application/json\r\nset-cookie: a=b'],
          ['set-cookie', 'c=d'],
          ['x-otela-node', 'liar'],
        ];
        peer.put(
          { type: 'accept', stream, bodyOffset: 0, bodyDone: true },
          { type: 'head', stream, status: 200, engineTenths: 0, headers },
          { type: 'data', stream, offset: 0, bytes: Buffer.from('{}') },
          { type: 'end', stream, offset: 2 },
        );
      }),
    );
    return peer.pair.near;
  });
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.status).toBe(200);
  expect(await response.text()).toBe('{}');
  expect(response.headers.get('set-cookie')).toBeNull();
  expect(response.headers.get('x-otela-node')).toBe(SESSION);
});

it('a channel that ends as soon as it stands is no channel, and the next request gets another', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  village.publish(entryOf(SESSION, 'lab', 'local', [MODEL]));
  village.answerFor(SESSION, () => {
    const peer = new Peer(here, { victimDialled: true });
    peer.pair.close();
    return peer.pair.near;
  });
  expect((await here.ask('/chat/completions', chatBody())).status).toBe(503);
  const there = await village.add();
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.headers.get('x-otela-node')).toBe(there.session);
});
