/** More messages than a member may send: each flood only ends the flooder's own channel. */
import { describe, expect, it } from 'vitest';
import { concat } from '../../shared/collections/concat.ts';
import { decodeMessage, encodeMessagePart, type MessagePart } from '../../shared/gossip/gossip-messages.ts';
import type { EntryUpdate } from '../../shared/lattice/registry-update.ts';
import { decodeRecord } from '../../shared/lattice/signed-record.ts';
import { Membership } from './issuer.ts';
import { peersOf, said, session } from './observe.ts';
import { hungUp, siege } from './siege.ts';

describe('a flood', () => {
  it('of news that nobody asked for ends with its channel; others are served meanwhile', () => {
    const { world, villain, target } = siege();
    const other = world.agents.find((agent) => agent !== villain && agent !== target);
    if (other === undefined) throw new Error('too few');
    let sent = 0;
    const flood = () => {
      for (let i = 0; i < 20; i++, sent++) {
        const bytes = encodeMessagePart({ type: 'news', update: villain.membership.say('SERVING', true) });
        target.node.take({ type: 'message', peer: session(villain), bytes });
      }
      if (sent < 6000) world.clock.after(2, flood);
    };
    flood();
    const checked = world.crypto.count.verified;
    const before = other.node.received.messages;
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    // A burst of 4,000 signatures, charged twice per update, plus 200 per second; the others receive about twenty
    // updates.
    expect(world.crypto.count.verified - checked).toBeLessThan(4000);
    expect(other.node.received.messages - before).toBeLessThan(400);
    // No member is banned for having passed it on.
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
    const digest = encodeMessagePart({ type: 'digest', digest: { issuer: id, items } });
    const before = process.memoryUsage().heapUsed;
    const from = target.node.sent.bytes;
    for (let i = 0; i < 400; i++) target.node.take({ type: 'message', peer: session(villain), bytes: digest });
    for (let i = 0; i < 2000; i++) {
      const ping = { type: 'ping', seq: i, root: new Uint8Array(8), livenessHash: i } as const;
      target.node.take({ type: 'message', peer: session(villain), bytes: encodeMessagePart(ping) });
    }
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    expect(target.node.queued).toBe(0);
    // 4 MiB of digests were read before that; each was answered only with what it asked for.
    expect(target.node.sent.bytes - from).toBeLessThan(8 * 1024 * 1024);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024);
  });

  it('of two words of one version, which are worth a signature each time, ends with its channel', () => {
    const { world, villain, target } = siege();
    const { membership } = villain;
    const other = new Membership(world.crypto, membership.signer, membership.ticket, 'another-host');
    other.say('SERVING');
    other.version = membership.version;
    const words = [membership, other].map((one) => one.say('SERVING', true));
    // First the one of the two that all agree on, then the other one.
    const send = (update: EntryUpdate | undefined) => {
      if (update === undefined) throw new Error('no word');
      const bytes = encodeMessagePart({ type: 'news', update });
      target.node.take({ type: 'message', peer: session(villain), bytes });
    };
    for (const word of words) send(word);
    const kept = target.node.replica.get(session(villain))?.record?.hash;
    const refused = words.find(({ record }) => record && decodeRecord(record, world.crypto).hash !== kept);
    const before = world.crypto.count.verified;
    for (let n = 0; n < 10_000; n++) send(refused);
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    expect(world.crypto.count.verified - before).toBeLessThan(4_500);
  });

  it('of probes on behalf of others is bounded', () => {
    const { world, villain, target } = siege();
    const victim = session(world.agent(5));
    const before = target.node.sent.messages;
    for (let i = 0; i < 20_000; i++) {
      target.node.take({
        type: 'message',
        peer: session(villain),
        bytes: encodeMessagePart({ type: 'probe', seq: i, target: victim }),
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
        target.node.take({ type: 'message', peer: me, bytes: encodeMessagePart({ type: 'done', more: true }) }),
      );
    };
    villain.node.hang();
    target.node.take({
      type: 'message',
      peer: me,
      bytes: concat([
        encodeMessagePart({ type: 'ack', seq: 0, root: new Uint8Array(8).fill(3), livenessHash: 0, paceMs: 0 }),
        encodeMessagePart({ type: 'sums', issuers: [sums] }),
      ]),
    });
    world.run(3000);
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThan(100);
  });
});

describe('a peer that makes itself be asked', () => {
  it('by digests of entries that nobody has cannot pour in what it likes', () => {
    const { world, villain, target } = siege();
    const me = session(villain);
    const { id } = world.issuer;
    const send = (part: MessagePart) => target.node.take({ type: 'message', peer: me, bytes: encodeMessagePart(part) });
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
    // At most 8,192 entries were requested; the session's own updates arrive as the response, and each has a signature
    // to check.
    for (let i = 0; i < 14_000; i++) send({ type: 'repair', update: villain.membership.say('SERVING') });
    world.run(4000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
    expect(world.crypto.count.verified - before).toBeLessThan(8192 + 2000 + 800 + 500);
  });

  it('by a part that looks like an answer is charged like any other', () => {
    const { world, villain, target } = siege();
    const bytes = concat([
      encodeMessagePart({ type: 'done', more: false }),
      new Uint8Array(encodeMessagePart({ type: 'sums', issuers: [] })),
    ]);
    const filler = Array.from({ length: 1500 }, () => bytes);
    for (let i = 0; i < 1200; i++) {
      target.node.take({ type: 'message', peer: session(villain), bytes: concat(filler) });
    }
    world.run(3000);
    expect(hungUp(world, target, villain)[0]).toBe('flood');
  });
});
