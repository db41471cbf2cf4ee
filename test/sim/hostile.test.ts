import { describe, expect, it } from 'vitest';
import { peersOf } from '../../shared/gossip/index.ts';
import {
  decodeMessage,
  encodePart,
  MESSAGE_MAX_BYTES,
  type Part,
  suspicionMessage,
} from '../../shared/gossip/messages.ts';
import { ByteWriter } from '../../shared/lattice/bytes.ts';
import { encodeUpdate } from '../../shared/lattice/update.ts';
import { Membership } from './issuer.ts';
import { everywhere, evicted, notices, said, session } from './observe.ts';
import { seeded } from './random.ts';
import { type Agent, World } from './world.ts';

/** A cluster of honest nodes and one of them whose bytes we write. */
function siege(nodes = 12, seed = 41) {
  const world = new World({ seed, clusters: [nodes] });
  world.run(12_000);
  const villain = world.agent(0);
  const [peer] = peersOf(villain.node.state);
  const target = world.agents.find((agent) => session(agent) === peer);
  if (target === undefined) throw new Error('the villain has no neighbour');
  const send = (bytes: Uint8Array) => target.node.take({ type: 'message', peer: session(villain), bytes });
  const say = (...parts: Part[]) => send(concat(parts.map(encodePart)));
  return { world, villain, target, send, say, roots: () => world.fingerprint(target.node.replica) };
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const out = new ByteWriter();
  for (const part of parts) out.bytes(part);
  return out.done();
}

function hungUp(world: World, by: Agent, on: Agent): string[] {
  return world.told.flatMap(({ node, action }) =>
    node === session(by) && action.type === 'hangUp' && action.peer === session(on) ? [action.reason] : [],
  );
}

describe('bytes that are no message', () => {
  const rng = seeded(5);
  const random = (length: number) => new Uint8Array(length).map(() => Math.floor(rng() * 256));
  const huge = new ByteWriter().byte(4).varint(40_000_000).bytes(random(100)).done();
  const manyItems = new ByteWriter().text('a'.repeat(26)).byte(16).varint(1_000_000).done();
  const cases: [string, Uint8Array][] = [
    ['random bytes', new Uint8Array([200, ...random(500)])],
    [
      'a part that ends early',
      encodePart({ type: 'ping', seq: 1, root: new Uint8Array(8), opinion: 0 }).subarray(0, 6),
    ],
    ['a length far beyond the message', huge],
    ['a digest of a million items', new ByteWriter().byte(9).blob(manyItems).done()],
    ['a number in its longer form', new Uint8Array([2, 0x80, 0x00])],
    ['more than one message may hold', new Uint8Array(MESSAGE_MAX_BYTES + 1)],
    ['ten thousand parts', new Uint8Array(20_000).fill(12).map((_value, i) => (i % 2 === 0 ? 12 : 0))],
    [
      'a payload of 4097 bytes',
      concat([encodePart({ type: 'news', update: { kind: 'entry', record: random(99), payload: random(4097) } })]),
    ],
  ];

  it.each(cases)('%s: the channel is closed, nothing changes, no exception', (_, bytes) => {
    const { world, villain, target, send, roots } = siege();
    const before = roots();
    send(bytes);
    world.run(50);
    expect(hungUp(world, target, villain)[0]).toBe('broken');
    expect(roots()).toBe(before);
    // It is kept away, the others are not; and its own core calls ever less often.
    world.run(5000);
    expect(hungUp(world, target, villain).length).toBeLessThan(8);
    expect(peersOf(target.node.state)).not.toContain(session(villain));
    expect(peersOf(target.node.state)).toHaveLength(10);
    expect(said(world, 'suspected')).toEqual([]);
  });

  it('are read to their end without an exception, whatever they are', () => {
    const { target, villain, world } = siege();
    for (let i = 0; i < 3000; i++) {
      const bytes = random(1 + Math.floor(rng() * 200));
      bytes[0] = Math.floor(rng() * 14);
      target.node.take({ type: 'opened', peer: session(villain), inbound: true });
      target.node.take({ type: 'message', peer: session(villain), bytes });
    }
    world.run(2000);
    expect(target.node.queued).toBe(0);
  });
});

describe('words with a wrong signature', () => {
  it('of another session, of nobody, and with a flipped bit are refused before they are merged', () => {
    for (const forge of [
      (_: Membership, other: Membership) => {
        // Another session's record, signed by the villain.
        const fake = new Membership(siege().world.crypto, other.signer, other.ticket, 'x');
        return fake.say('LEFT');
      },
      (own: Membership) => flip(own.full().record),
    ]) {
      const { world, villain, target, say, roots } = siege();
      const victim = world.agent(5);
      const impostor = new Membership(world.crypto, villain.membership.signer, victim.membership.ticket, 'x');
      const before = roots();
      const update = forge(villain.membership, impostor);
      say({ type: 'news', update: update instanceof Uint8Array ? { kind: 'entry', record: update } : update });
      world.run(200);
      expect(roots()).toBe(before);
      expect(hungUp(world, target, villain)[0]).toBe('broken');
      expect(notices(world)).toContain('rejected');
    }
  });

  it('an eviction by somebody who is no issuer moves nobody', () => {
    const { world, villain, target, say } = siege();
    const victim = world.agent(5);
    const eviction = world.issuer.evict(session(victim));
    if (eviction.kind !== 'entry' || eviction.eviction === undefined) throw new Error('no eviction');
    say({ type: 'news', update: { kind: 'entry', eviction: flip(eviction.eviction) } });
    world.run(2000);
    expect(everywhere(world, victim, 'SERVING')).toBe(true);
    expect(hungUp(world, target, villain)[0]).toBe('broken');
  });

  it('a suspicion that its observer did not sign, and one that raises the incarnation of another, convince nobody', () => {
    const { world, villain, target, say } = siege();
    const victim = session(world.agent(5));
    const observer = session(world.agent(6));
    const { signer } = villain.membership;
    const signature = signer.sign(suspicionMessage(victim, 0, observer));
    say({ type: 'suspicion', suspicion: { target: victim, incarnation: 0, observer, signature, proof: undefined } });
    world.run(1000);
    expect(hungUp(world, target, villain)[0]).toBe('broken');

    const other = siege();
    const me = session(other.villain);
    const raised = other.villain.membership.signer.sign(suspicionMessage(victim, 4_000_000_000, me));
    const proof = new Uint8Array(64).fill(7);
    other.say({
      type: 'suspicion',
      suspicion: { target: victim, incarnation: 4_000_000_000, observer: me, signature: raised, proof },
    });
    other.world.run(1000);
    expect(hungUp(other.world, other.target, other.villain)[0]).toBe('broken');
    expect(said(other.world, 'suspected')).toEqual([]);
  });
});

describe('a member that lies', () => {
  it('and suspects everybody again and again costs the others a refutation now and then, and nobody his place', () => {
    const { world, villain, target } = siege(16);
    const me = session(villain);
    let refutations = 0;
    const from = world.clock.now;
    world.listener = (_, action) => {
      if (action.type === 'liveness' && action.liveness === 'suspected') refutations++;
    };
    const accuse = () => {
      for (const agent of world.agents.slice(1)) {
        const incarnation = 0;
        const signature = villain.membership.signer.sign(suspicionMessage(session(agent), incarnation, me));
        target.node.take({
          type: 'message',
          peer: me,
          bytes: encodePart({
            type: 'suspicion',
            suspicion: { target: session(agent), incarnation, observer: me, signature, proof: undefined },
          }),
        });
      }
      if (world.clock.now - from < 30_000) world.clock.after(100, accuse);
    };
    accuse();
    const routable = () =>
      world.agents.slice(1).filter((agent) => world.routable(world.gateway, session(agent))).length;
    let least = 15;
    for (let i = 0; i < 300; i++) {
      world.run(100);
      least = Math.min(least, routable());
    }
    // The gateway asks each of them and hears it answer: nobody is unrouted for a moment.
    expect(least).toBe(15);
    expect(evicted(world)).toEqual([]);
    // Each of 15 was doubted once by each of the others.
    expect(refutations).toBeLessThanOrEqual(15 * 16);
  });

  it('cannot be cleared by a refutation that it did not sign', () => {
    const { world, villain, say } = siege();
    const { signer } = villain.membership;
    const me = session(villain);
    villain.node.hang();
    world.run(5000);
    expect(said(world, 'suspected').length).toBeGreaterThan(0);
    const signature = signer.sign(new Uint8Array(3));
    say({ type: 'refutation', refutation: { session: me, incarnation: 4_294_967_295, signature } });
    world.run(90_000);
    expect(everywhere(world, villain, 'LEFT')).toBe(true);
    expect(evicted(world)).toEqual([me]);
  });
});

describe('a flood', () => {
  it('of news that nobody asked for ends with its channel; others are served meanwhile', () => {
    const { world, villain, target } = siege();
    const other = world.agents.find((agent) => agent !== villain && agent !== target);
    if (other === undefined) throw new Error('too few');
    let sent = 0;
    const flood = () => {
      for (let i = 0; i < 20; i++, sent++) {
        const bytes = encodePart({ type: 'news', update: villain.membership.say('SERVING', true) });
        target.node.take({ type: 'message', peer: session(villain), bytes });
      }
      if (sent < 6000) world.clock.after(2, flood);
    };
    flood();
    const checked = world.crypto.count.verified;
    const before = other.node.received.messages;
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    // A burst of 4,000 signatures, charged twice per word, and 200/s more; the others hear of some twenty words.
    expect(world.crypto.count.verified - checked).toBeLessThan(4000);
    expect(other.node.received.messages - before).toBeLessThan(400);
    // Nobody is banned for having passed it on.
    for (const agent of world.agents.slice(1)) expect(peersOf(agent.node.state).length).toBeGreaterThanOrEqual(10);
    expect(world.until(() => world.agree(), 20_000)).toBeDefined();
    const speaker = world.agent(7);
    world.say(speaker, 'SERVING', true);
    expect(world.until(() => target.node.replica.get(session(speaker))?.version === 2, 2000)).toBeDefined();
  });

  it('of pings, digests and pulls holds no memory: the target keeps answering others', () => {
    const { world, villain, target } = siege();
    const { id } = world.issuer;
    const items = Array.from({ length: 1000 }, (_, i) => ({
      id: i.toString(16).padStart(32, '0'),
      state: 2,
      version: 1,
      tie: 'ab'.repeat(8),
      mark: '',
    }));
    const digest = encodePart({ type: 'digest', digest: { issuer: id, items } });
    const before = process.memoryUsage().heapUsed;
    const from = target.node.sent.bytes;
    for (let i = 0; i < 400; i++) target.node.take({ type: 'message', peer: session(villain), bytes: digest });
    for (let i = 0; i < 2000; i++) {
      const ping = { type: 'ping', seq: i, root: new Uint8Array(8), opinion: i } as const;
      target.node.take({ type: 'message', peer: session(villain), bytes: encodePart(ping) });
    }
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    expect(target.node.queued).toBe(0);
    // 4 MiB of digests were read before that; each was answered with what it asked for and no more.
    expect(target.node.sent.bytes - from).toBeLessThan(8 * 1024 * 1024);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024);
  });

  it('of probes on behalf of others is bounded', () => {
    const { world, villain, target } = siege();
    const victim = session(world.agent(5));
    const before = target.node.sent.messages;
    for (let i = 0; i < 20_000; i++) {
      target.node.take({
        type: 'message',
        peer: session(villain),
        bytes: encodePart({ type: 'probe', seq: i, target: victim }),
      });
    }
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    expect(target.node.sent.messages - before).toBeLessThan(10_000);
    expect(said(world, 'suspected')).toEqual([]);
  });
});

describe('a peer that answers a pull without end', () => {
  it('is left as soon as a round brings nothing', () => {
    const { world, villain, target } = siege();
    const me = session(villain);
    const sums = { issuer: world.issuer.id, sums: new Uint8Array(128).fill(9) };
    let asked = 0;
    world.listener = (peer, action) => {
      if (peer !== session(target) || action.type !== 'send' || action.peer !== me) return;
      if (decodeMessage(action.bytes)[0]?.type !== 'digest') return;
      asked++;
      world.clock.after(1, () =>
        target.node.take({ type: 'message', peer: me, bytes: encodePart({ type: 'done', more: true }) }),
      );
    };
    villain.node.hang();
    target.node.take({
      type: 'message',
      peer: me,
      bytes: concat([
        encodePart({ type: 'ack', seq: 0, root: new Uint8Array(8).fill(3), opinion: 0, paceMs: 0 }),
        encodePart({ type: 'sums', issuers: [sums] }),
      ]),
    });
    world.run(3000);
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThan(100);
  });
});

function flip(bytes: Uint8Array | undefined): Uint8Array {
  const copy = (bytes ?? new Uint8Array(1)).slice();
  copy[copy.length - 70] = (copy[copy.length - 70] ?? 0) ^ 1;
  copy[copy.length - 3] = (copy[copy.length - 3] ?? 0) ^ 1;
  return copy;
}

describe('updates', () => {
  it('read back as they were written', () => {
    const { world } = siege();
    for (const { membership } of world.agents) expect(encodeUpdate(membership.full()).length).toBeLessThan(900);
  });
});

describe('a peer that makes itself be asked', () => {
  it('by digests of entries that nobody has cannot pour in what it likes', () => {
    const { world, villain, target } = siege();
    const me = session(villain);
    const { id } = world.issuer;
    const send = (part: Part) => target.node.take({ type: 'message', peer: me, bytes: encodePart(part) });
    for (let round = 0; round < 100; round++) {
      const items = Array.from({ length: 200 }, (_, i) => ({
        id: (round * 1000 + i).toString(16).padStart(32, '0'),
        state: 2,
        version: 1,
        tie: 'ab'.repeat(8),
        mark: '',
      }));
      send({ type: 'digest', digest: { issuer: id, items } });
    }
    const before = world.crypto.count.verified;
    // 8,192 entries were asked for at most; the own session's words come as their answer, each a signature to check.
    for (let i = 0; i < 14_000; i++) send({ type: 'repair', update: villain.membership.say('SERVING') });
    world.run(4000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    expect(world.crypto.count.verified - before).toBeLessThan(8192 + 2000 + 800 + 500);
  });

  it('by a part that looks like an answer is charged like any other', () => {
    const { world, villain, target } = siege();
    const bytes = concat([
      encodePart({ type: 'done', more: false }),
      new Uint8Array(encodePart({ type: 'sums', issuers: [] })),
    ]);
    const filler = Array.from({ length: 1500 }, () => bytes);
    for (let i = 0; i < 1200; i++) {
      target.node.take({ type: 'message', peer: session(villain), bytes: concat(filler) });
    }
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
  });
});
