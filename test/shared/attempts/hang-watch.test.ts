import { beforeEach, describe, expect, it } from 'vitest';
import { newAcceptTimeout } from '../../../shared/attempts/accept-timeout.ts';
import type { AttemptFailure, AttemptRequest } from '../../../shared/attempts/attempt-request.ts';
import { HangWatch } from '../../../shared/attempts/hang-watch.ts';
import { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import type { PeerEvidence } from '../../../shared/routing/hang/hang-detector.ts';
import type { HangSuspicion } from '../../../shared/routing/hang/hang-suspicion.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { Link } from '../../../shared/wire/link.ts';

const CHAT = 1;
const TOKENIZE = 9;
const TURN_MS = 250;
const ANSWERS: PeerEvidence = { silentMs: 0, answeredAgoMs: 100, suspected: false, times: {} };

/** One node in virtual time: its upstreams, its watch, its turns. */
class Node {
  now = 1_000_000;
  connected = true;
  peers: readonly PeerEvidence[] = [ANSWERS];
  comparisons = 0;
  readonly told: (HangSuspicion | undefined)[] = [];
  readonly pauses: number[] = [];
  readonly overs: (AttemptFailure | undefined)[] = [];
  readonly #upstreams = new Set<OutboundAttempt>();
  readonly watch: HangWatch;
  #streams = 0;

  constructor(suspicion?: HangSuspicion) {
    const host = {
      now: () => this.now,
      compare: () => {
        this.comparisons++;
        this.watch.judge(this.peers, this.#upstreams);
      },
      onSuspicion: (news: HangSuspicion | undefined) => {
        this.told.push(news);
        if (news !== undefined) this.pauses.push(news.until - this.now);
      },
    };
    this.watch = new HangWatch(host, suspicion);
  }

  /** A request that the engine has; undefined: it was refused. */
  ask(more: Partial<AttemptRequest> = {}): OutboundAttempt | undefined {
    const request = { endpoint: CHAT, movable: true, streaming: true, acceptMs: 1_000, answerOffset: 0, ...more };
    if (!this.watch.admits(request as AttemptRequest)) return undefined;
    const upstream = new OutboundAttempt(++this.#streams, { edits: [], headers: [], ...request } as never, null, {
      now: () => this.now,
      patientNow: () => this.now,
      accepts: newAcceptTimeout(),
      onFirstByte: (one) => this.watch.onFirstByte(one),
      onOver: (one, failure) => {
        this.#upstreams.delete(one);
        this.overs.push(failure);
        this.watch.onOver(one, failure);
      },
      renumber: () => ++this.#streams,
    });
    upstream.attachCaller(() => {});
    this.#upstreams.add(upstream);
    this.watch.opened(upstream);
    const port = { send: () => {}, busy: () => false, schedule: (flush: () => void) => flush(), stuck: () => {} };
    upstream.connect(new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0)));
    upstream.onFrame({ type: 'accept', stream: upstream.stream, bodyOffset: 0, bodyDone: true });
    return upstream;
  }

  data(upstream: OutboundAttempt | undefined, { offset = 0, status = 200 } = {}): void {
    if (upstream === undefined) throw new Error('it was not let in');
    const { stream } = upstream;
    upstream.onFrame({ type: 'head', stream, status, engineTenths: 1, headers: [] });
    upstream.onFrame({ type: 'data', stream, offset, bytes: new Uint8Array(10) });
  }

  pass(ms: number, each?: () => void): void {
    for (let left = ms; left > 0; left -= TURN_MS) {
      this.now += TURN_MS;
      each?.();
      this.watch.tick(this.#upstreams, this.connected);
    }
  }
}

let node: Node;
beforeEach(() => {
  node = new Node();
});

describe('an engine that answers no request', () => {
  it('loses what waits there and could go elsewhere, and nothing else', () => {
    const moved = node.ask();
    const stays = node.ask({ movable: false });
    node.pass(19_000);
    expect(node.told).toEqual([]);
    node.pass(4_000);
    expect(moved?.over).toBe(true);
    expect(stays?.over).toBe(false);
    expect(node.overs).toEqual(['hung']);
    expect(node.told).toHaveLength(1);
  });

  it('loses streams that stand still and go on elsewhere; one that cannot be continued stays', () => {
    const continued = node.ask({ continues: true });
    const plain = node.ask();
    node.data(continued);
    node.data(plain);
    expect(continued?.answer.takeWhole()).toBeUndefined();
    const waits = node.ask();
    node.pass(24_000);
    expect(waits?.over).toBe(true);
    expect(plain?.over).toBe(false);
    expect(node.watch.suspicion).toBeDefined();
  });

  it('is let alone for 5 s, then tried by one request at a time, ever more seldom', () => {
    node.ask();
    node.pass(24_000);
    for (let probes = 0; probes < 5; ) {
      node.pass(TURN_MS);
      if (node.ask() === undefined) continue;
      probes++;
      expect(node.ask()).toBeUndefined();
      node.pass(3_000); // it has 2 s
    }
    expect(node.pauses).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    expect(node.overs.every((failure) => failure === 'hung')).toBe(true);
  });

  it('still receives requests that no other node can answer', () => {
    node.ask();
    node.pass(24_000);
    expect(node.ask()).toBeUndefined();
    expect(node.ask({ movable: false })).toBeDefined();
  });

  it('is trusted again after the first byte of any response, even a late one', () => {
    const stays = node.ask({ movable: false });
    node.ask();
    node.pass(24_000);
    expect(node.watch.suspicion).toBeDefined();
    node.data(stays);
    expect(node.watch.suspicion).toBeUndefined();
    expect(node.told.at(-1)).toBeUndefined();
    expect(node.ask()).toBeDefined();
    expect(node.ask()).toBeDefined();
  });

  it('is not trusted for an error or for what its tokenizer says', () => {
    node.ask();
    node.pass(24_000);
    node.data(node.ask({ movable: false }), { status: 400 });
    node.data(node.ask({ movable: false, endpoint: TOKENIZE, streaming: false }));
    node.pass(1_000);
    expect(node.watch.suspicion).toBeDefined();
  });

  it('is found out although its tokenizer answers', () => {
    node.ask();
    node.pass(24_000, () => node.data(node.ask({ endpoint: TOKENIZE, streaming: false, movable: false })));
    expect(node.watch.suspicion).toBeDefined();
    node.pass(10_000);
    expect(node.ask({ endpoint: TOKENIZE })).toBeUndefined(); // would show nothing
    expect(node.ask()).toBeDefined();
  });

  it('is remembered by the watch of the next object', () => {
    node.ask();
    node.pass(24_000);
    const next = new Node(node.watch.suspicion);
    next.now = node.now;
    expect(next.ask()).toBeUndefined();
  });

  it('is found out by clients that give up after 5 s, and by no idle time between them', () => {
    for (let round = 0; round < 4; round++) {
      const upstream = node.ask();
      node.pass(4_750);
      upstream?.cancel();
      node.pass(60_000);
    }
    expect(node.told).toEqual([]);
    node.ask();
    node.pass(4_000);
    expect(node.watch.suspicion).toBeDefined();
  });
});

describe('no silence of the engine', () => {
  it('is that of a lost socket', () => {
    node.ask();
    node.connected = false;
    node.pass(60_000);
    expect(node.comparisons).toBe(0);
  });

  it('is the time in which this process stood still', () => {
    node.ask();
    node.pass(5_000);
    node.now += 60_000;
    node.pass(5_000);
    expect(node.told).toEqual([]);
  });

  it('is what new requests wait while streams go on: its batch is full', () => {
    const running = node.ask();
    node.data(running);
    node.ask();
    let offset = 10;
    node.pass(60_000, () => {
      node.data(running, { offset });
      offset += 10;
    });
    expect(node.told).toEqual([]);
  });

  it('makes its peers be asked 2 s apart at first, and ever more seldom', () => {
    node.peers = [];
    node.ask();
    node.pass(600_000);
    expect(node.comparisons).toBeGreaterThan(10);
    expect(node.comparisons).toBeLessThan(60);
    expect(node.told).toEqual([]);
  });
});
