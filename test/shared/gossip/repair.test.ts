import { describe, expect, it } from 'vitest';
import { encodeMessagePart } from '../../../shared/gossip/gossip-messages.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { standInSigner } from '../../sim/crypto.ts';
import { One, ofType, partsTo } from './one.ts';

/** A core, and an empty replica of the same world. */
function pair(size: number) {
  const a = new One('agent', [size]);
  const empty = new RegistryReplica({ crypto: a.crypto, accepts: () => true });
  return { a, empty };
}

describe('repair', () => {
  it('answers a ping from an equal replica in 15 bytes and from another with its sums', () => {
    const { a } = pair(6);
    a.open(1);
    const probe = a.say(1, { type: 'ping', seq: 1, root: new Uint8Array(8), livenessHash: 0 });
    const root = ofType(partsTo(probe), 'ack')[0]?.root;
    if (root === undefined) throw new Error('no answer');
    expect(ofType(partsTo(probe), 'sums')).toHaveLength(1);
    const equal = partsTo(a.say(1, { type: 'ping', seq: 2, root, livenessHash: 0 }));
    expect(equal.map(({ type }) => type)).toEqual(['ack']);
    expect(equal.map(encodeMessagePart)[0]?.length).toBeLessThanOrEqual(15);
  });

  it('gives what a digest lacks, asks for what it has more, and ends with done', () => {
    const { a } = pair(6);
    a.open(1);
    const later = a.member(2).say('SERVING', true);
    const other = a.replica.fork();
    other.merge(later);
    const whole = other.digest({ issuer: a.issuer.id });
    const known = { ...whole, items: whole.items.filter((_, i) => i > 0) };
    const parts = partsTo(a.say(1, { type: 'digest', digest: known }));
    expect(ofType(parts, 'repair')).toHaveLength(1);
    expect(ofType(parts, 'done')).toEqual([{ type: 'done', more: false }]);
    expect(ofType(parts, 'wants').flatMap(({ ids }) => ids).length).toBeLessThanOrEqual(1);
  });

  it('asks for ticket and payload where a thin word names a session that it does not know, then passes the word on', () => {
    const { a } = pair(12);
    a.open(1, 2, 3, 4);
    const member = a.issuer.admit(
      { provider: 'lab', cluster: 'c0', birth: 1_800_000_000 },
      standInSigner(a.rng),
      'new-host',
    );
    const full = member.say('JOIN');
    const thin = member.say('SERVING');
    const asked = partsTo(a.say(1, { type: 'news', update: thin }), a.id(1));
    expect(ofType(asked, 'pull').map(({ session }) => session)).toEqual([member.session]);
    // It does not ask the next member that says the same.
    expect(partsTo(a.say(2, { type: 'news', update: thin }))).toEqual([]);
    const { ticket, payload } = full;
    if (ticket === undefined || payload === undefined) throw new Error('the first word is whole');
    const passed = a.say(1, { type: 'news', update: { ...thin, ticket, payload } });
    expect(ofType(partsTo(passed), 'news').length).toBeGreaterThan(1);
  });

  it('compares with a first peer that it knows nothing of', () => {
    const { a } = pair(3);
    const lonely = new One('agent', [1]);
    lonely.give({ type: 'opened', peer: a.id(1), inbound: false });
    const pings = ofType(partsTo(lonely.pass(5000), a.id(1)), 'ping');
    expect(pings.length).toBeGreaterThanOrEqual(3);
  });

  it('does not compare a bucket that a push has just touched: what differs there is on its way', () => {
    const { a } = pair(6);
    a.open(1, 2);
    a.pass(1000);
    a.say(2, { type: 'news', update: a.member(3).say('SERVING', true) });
    const before = a.replica.fork();
    const ack = { type: 'ack', seq: 0, root: new Uint8Array(8), livenessHash: 0, paceMs: 0 } as const;
    const { buckets } = before.fingerprint(a.issuer.id);
    const sums = new Uint8Array(128);
    const view = new DataView(sums.buffer);
    buckets.forEach(({ live, left }, i) => {
      view.setUint32(8 * i, Number(BigInt.asUintN(32, live)));
      view.setUint32(8 * i + 4, Number(BigInt.asUintN(32, left)));
    });
    const touched = before.digest({ issuer: a.issuer.id, part: 'live' }).items.find(({ version }) => version === 2);
    const bucket = Number.parseInt(touched?.id[0] ?? 'x', 16);
    view.setUint32(8 * bucket, 12_345);
    const message = new Uint8Array([
      ...encodeMessagePart(ack),
      ...encodeMessagePart({ type: 'sums', issuers: [{ issuer: a.issuer.id, sums }] }),
    ]);
    const give = () => partsTo(a.give({ type: 'message', peer: a.id(1), bytes: message }), a.id(1));
    expect(ofType(give(), 'digest')).toEqual([]);
    a.now += 150;
    expect(ofType(give(), 'digest').map(({ digest }) => digest.bucket)).toEqual([bucket]);
  });

  it('that brought something makes neighbours compare at once, not at their turn', () => {
    const { a } = pair(20);
    a.open(1, 2, 3, 4, 5, 6);
    const sums = new Uint8Array(128).fill(7);
    const ack = encodeMessagePart({ type: 'ack', seq: 0, root: new Uint8Array(8), livenessHash: 0, paceMs: 0 });
    const asked = a.give({
      type: 'message',
      peer: a.id(1),
      bytes: new Uint8Array([...ack, ...encodeMessagePart({ type: 'sums', issuers: [{ issuer: a.issuer.id, sums }] })]),
    });
    expect(ofType(partsTo(asked, a.id(1)), 'digest').length).toBeGreaterThan(0);
    a.say(1, { type: 'repair', update: a.member(9).say('SERVING', true) }, { type: 'done', more: false });
    const pinged = new Set(
      a
        .pass(300)
        .flatMap((action) =>
          action.type === 'send' && partsTo([action]).some(({ type }) => type === 'ping') ? [action.peer] : [],
        ),
    );
    expect(pinged.size).toBeGreaterThanOrEqual(4);
  });
});
