/** False messages of a member: invalid, forged, or a lie. */
import { describe, expect, it } from 'vitest';
import { concat } from '../../shared/collections/concat.ts';
import { encodeMessagePart, GOSSIP_MESSAGE_MAX_BYTES, suspicionMessage } from '../../shared/gossip/gossip-messages.ts';
import { ByteWriter } from '../../shared/lattice/byte-codec.ts';
import { encodeUpdate } from '../../shared/lattice/registry-update.ts';
import { Membership } from './issuer.ts';
import { everywhere, evicted, notices, peersOf, said, session } from './observe.ts';
import { seeded } from './random.ts';
import { flip, hungUp, siege } from './siege.ts';

describe('bytes that are no message', () => {
  const rng = seeded(5);
  const random = (length: number) => new Uint8Array(length).map(() => Math.floor(rng() * 256));
  const huge = new ByteWriter().byte(4).varint(40_000_000).bytes(random(100)).done();
  const manyItems = new ByteWriter().text('a'.repeat(26)).byte(16).varint(1_000_000).done();
  const cases: [string, Uint8Array][] = [
    ['random bytes', new Uint8Array([200, ...random(500)])],
    [
      'a part that ends early',
      encodeMessagePart({ type: 'ping', seq: 1, root: new Uint8Array(8), livenessHash: 0 }).subarray(0, 6),
    ],
    ['a length far beyond the message', huge],
    ['a digest of a million items', new ByteWriter().byte(9).blob(manyItems).done()],
    ['a number in its longer form', new Uint8Array([2, 0x80, 0x00])],
    ['more than one message may hold', new Uint8Array(GOSSIP_MESSAGE_MAX_BYTES + 1)],
    ['ten thousand parts', new Uint8Array(20_000).fill(12).map((_value, i) => (i % 2 === 0 ? 12 : 0))],
    [
      'a payload of 4097 bytes',
      concat([
        encodeMessagePart({ type: 'news', update: { kind: 'entry', record: random(99), payload: random(4097) } }),
      ]),
    ],
  ];

  it.each(cases)('%s: the channel is closed, nothing changes, no exception', (_, bytes) => {
    const { world, villain, target, send, roots } = siege();
    const before = roots();
    send(bytes);
    world.run(50);
    expect(hungUp(world, target, villain)[0]).toBe('broken');
    expect(roots()).toBe(before);
    // Only this member is kept away; and its own core dials at growing intervals.
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
          bytes: encodeMessagePart({
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
    // The gateway probes each of them and gets an answer: none is unrouted even for a moment.
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

describe('updates', () => {
  it('read back as they were written', () => {
    const { world } = siege();
    for (const { membership } of world.agents) expect(encodeUpdate(membership.full()).length).toBeLessThan(900);
  });
});
