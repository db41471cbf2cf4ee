import { expect, test } from 'vitest';
import { nodeCrypto, nodeSigner } from '../../../agent/host/node-crypto.ts';
import type { Crypto } from '../../../shared/lattice/crypto-interface.ts';
import { PAYLOAD_MAX_BYTES } from '../../../shared/lattice/node-payload.ts';
import { RegistryReplica, type ReplicaLimits } from '../../../shared/lattice/registry-replica.ts';
import { type EntryUpdate, encodeUpdate, UPDATE_MAX_BYTES } from '../../../shared/lattice/registry-update.ts';
import { decodeDigest, decodeIds, encodeDigest } from '../../../shared/lattice/replica-digest.ts';
import { decodeRecord, signRecord, verifyRecord } from '../../../shared/lattice/signed-record.ts';
import { openTicket, signTicket, TICKET_MAX_BYTES } from '../../../shared/lattice/ticket.ts';
import { DAY_S, institution, NOW_S, node, PAYLOAD, type TestNode } from './house.ts';

const lab = institution();
const gateway = lab.gateway();

function counted(limits: ReplicaLimits = {}) {
  let verified = 0;
  const crypto: Crypto = {
    ...nodeCrypto,
    verify: (...given) => {
      verified++;
      return nodeCrypto.verify(...given);
    },
  };
  const replica = new RegistryReplica({ crypto, accepts: () => true, limits });
  return { replica, verified: () => verified };
}

/** A record with a payload of any bytes, signed by its owner. */
function says(who: TestNode, payload: Uint8Array): EntryUpdate {
  const record = signRecord({ session: who.session, state: 'SERVING', version: 5, payload }, who.signer, nodeCrypto);
  return { kind: 'entry', ticket: who.ticket.bytes, record, payload };
}

test('A payload above 4 KiB is refused, and its owner can still say something shorter', () => {
  const { replica } = counted();
  const one = node(gateway);
  expect(replica.merge(says(one, new Uint8Array(PAYLOAD_MAX_BYTES + 1)))).toMatchObject({ code: 'too_large' });
  expect(replica.merge(new Uint8Array(UPDATE_MAX_BYTES + 1))).toMatchObject({ code: 'too_large' });
  expect(replica.merge(one.says('SERVING')).outcome).toBe('merged');
});

test('An unreadable payload is held and passed on, and its node gets no requests', () => {
  const { replica } = counted();
  for (const text of [
    '['.repeat(PAYLOAD_MAX_BYTES),
    '{"a":'.repeat(800),
    '{"__proto__":{"tier":"stable"}}',
    '\u{1F4A9}',
  ]) {
    const one = node(gateway);
    expect(replica.merge(encodeUpdate(says(one, new TextEncoder().encode(text)))).outcome).toBe('merged');
    expect(replica.get(one.session)).toMatchObject({ state: 'SERVING', payload: undefined });
  }
});

test('A digest of a million items is refused at its count, in no memory', () => {
  const head = encodeDigest({ issuer: lab.issuer, items: [] }).subarray(0, -1);
  const message = new Uint8Array([...head, 0xc0, 0x84, 0x3d, ...new Uint8Array(18_000)]);
  const before = process.memoryUsage().arrayBuffers;
  expect(() => decodeDigest(message)).toThrow(/1000000 items/);
  expect(() => decodeIds(Uint8Array.of(0xc0, 0x84, 0x3d))).toThrow(/1000000 ids/);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1 << 20);
  const truncated = new Uint8Array([...head, ...[0x80, 0x20], ...new Uint8Array(30)]);
  expect(() => decodeDigest(truncated)).toThrow(/ends|past the end/);
});

test('Old news and news of what was collected cost no signature, however many', () => {
  const { replica, verified } = counted();
  const [one, old] = [node(gateway), node(gateway, { birth: NOW_S - 20 * DAY_S })];
  replica.merge(one.says('DOWN', 9));
  replica.merge(gateway.floor(NOW_S));
  const before = verified();
  const forged = one.says('SERVING', 3);
  forged.record?.fill(1, -64);
  for (let i = 0; i < 1000; i++) {
    expect(replica.merge(forged).outcome).toBe('older');
    expect(replica.merge(old.says('SERVING', i % 3)).outcome).toBe('collected');
  }
  expect(verified()).toBe(before);
});

test('A thousand tickets of one gateway cost one look at its certificate, loaded ones nothing else', () => {
  const { replica, verified } = counted();
  const nodes = Array.from({ length: 20 }, () => node(gateway));
  for (const each of nodes) replica.merge(each.says('SERVING'));
  expect(verified()).toBe(2 * nodes.length + 1);
  const copy = counted();
  for (const update of replica.updates(lab.issuer)) copy.replica.load(update);
  expect(copy.verified()).toBe(1);
});

test('A forgery of the certificate, the ticket, the record or the floor costs at most three signatures and is refused', () => {
  const { replica, verified } = counted();
  const one = node(gateway);
  const at = { certificate: 100, ticket: one.ticket.bytes.length - 1 };
  for (const where of Object.values(at)) {
    const before = verified();
    const ticket = one.ticket.bytes.slice();
    ticket[where] = (ticket[where] ?? 0) ^ 1;
    expect(replica.merge({ ...one.says('SERVING'), ticket })).toMatchObject({
      outcome: 'rejected',
      code: 'bad_signature',
    });
    expect(verified() - before).toBeLessThanOrEqual(3);
  }
  expect(replica.size).toBe(0);
});

test('An owner that signs two payloads under one version: all replicas choose the same, and hold the proof', () => {
  const one = node(gateway);
  const [x, y] = [one.says('SERVING', 1, { tier: 'stable' }), one.says('SERVING', 1, { tier: 'volatile' })];
  const [a, b] = [counted().replica, counted().replica];
  const results = [a.merge(x), a.merge(y), b.merge(y), b.merge(x)];
  expect(a.get(one.session)?.record?.hash).toBe(b.get(one.session)?.record?.hash);
  expect(a.get(one.session)?.payload).toEqual(b.get(one.session)?.payload);
  for (const result of [results[1], results[3]]) {
    const conflict = result && 'conflict' in result ? result.conflict : undefined;
    expect(conflict?.session).toBe(one.session);
    const [first, second] = (conflict?.records ?? []).map((bytes) =>
      verifyRecord(decodeRecord(bytes, nodeCrypto), one.ticket.sessionKey, nodeCrypto),
    );
    expect([first?.state, first?.version]).toEqual([second?.state, second?.version]);
    expect(first?.payloadHash).not.toBe(second?.payloadHash);
  }
  const forged = one.says('SERVING', 1, { tier: 'stable', host: 'elsewhere' });
  forged.record?.fill(7, -64);
  expect(a.merge(forged)).toMatchObject({ outcome: 'rejected', code: 'bad_signature' });
});

test('A full replica refuses newcomers of that issuer alone, hears those it knows, and a root that takes itself back', () => {
  const eth = institution();
  const { replica } = counted({ entriesPerIssuer: 2, livePerIssuer: 2, keysPerIssuer: 1 });
  const [one, two, three, other] = [node(gateway), node(gateway), node(gateway), node(eth.gateway())];
  for (const each of [one, two]) expect(replica.merge(each.says('SERVING')).outcome).toBe('merged');
  expect(replica.merge(three.says('SERVING'))).toMatchObject({ outcome: 'rejected', code: 'full' });
  expect(replica.merge(one.says('LEFT', 2)).outcome).toBe('merged');
  expect(replica.merge(other.says('SERVING')).outcome).toBe('merged');
  expect(replica.merge(gateway.floor(NOW_S)).outcome).toBe('merged');
  expect(replica.merge(gateway.floor(NOW_S + 1)).outcome).toBe('merged');
  expect(replica.merge(lab.gateway().floor(NOW_S))).toMatchObject({ code: 'full' });
  expect(replica.merge(lab.revoke(nodeSigner().publicKey)).outcome).toBe('merged');
  expect(replica.merge(lab.revoke(gateway.signer.publicKey))).toMatchObject({ code: 'full' });
  expect(replica.merge(lab.revoke(lab.root.publicKey)).outcome).toBe('merged');
  expect([...replica.entries()].map((entry) => entry.issuer)).toEqual([eth.issuer]);
});

test('Sessions that have not left take half of a replica at most; where they leave others find a place', () => {
  const { replica } = counted({ entriesPerIssuer: 4 });
  const [one, two, three, four] = [node(gateway), node(gateway), node(gateway), node(gateway)];
  for (const each of [one, two]) expect(replica.merge(each.says('SERVING')).outcome).toBe('merged');
  expect(replica.merge(three.says('SERVING'))).toMatchObject({ outcome: 'rejected', code: 'full' });
  expect(replica.merge(four.says('LEFT')).outcome).toBe('merged');
  expect(replica.merge(one.says('LEFT', 2)).outcome).toBe('merged');
  expect(replica.merge(three.says('SERVING')).outcome).toBe('merged');
});

test("Tickets outside their certificate's dates, or that live too long, are refused by their bytes alone", () => {
  const dated = (birth: number, expires: number) => () =>
    node(lab.gateway({ notAfter: NOW_S + DAY_S }), { birth, expires });
  expect(dated(NOW_S + DAY_S - 1, NOW_S + 30 * DAY_S)).not.toThrow();
  expect(dated(NOW_S + DAY_S, NOW_S + 2 * DAY_S)).toThrow(/certificate/);
  expect(dated(NOW_S - 91 * DAY_S, NOW_S)).toThrow(/certificate/);
  expect(dated(NOW_S, NOW_S)).toThrow(/30 days/);
  expect(dated(NOW_S, NOW_S + 30 * DAY_S + 1)).toThrow(/30 days/);
});

test('A watermark from a clock a year ahead is refused by its bytes; one by a revoked or lesser key affects no other issuer', () => {
  const { replica } = counted();
  const one = node(gateway);
  replica.merge(one.says('SERVING'));
  const far = lab.gateway({ notAfter: NOW_S + 400 * DAY_S });
  const year = NOW_S + 365 * DAY_S;
  expect(() => lab.gateway().floor(year)).toThrow(/outside the validity/);
  expect(replica.merge(far.floor(year)).outcome).toBe('merged');
  expect(replica.get(one.session)?.state).toBe('SERVING');
});

test('A ticket is at most as long as promised, and names are ids', () => {
  const name = 'a'.repeat(63);
  const fields = {
    certificate: gateway.certificate,
    sessionKey: nodeSigner().publicKey,
    birth: NOW_S,
    expires: NOW_S + 1,
  };
  const longest = signTicket({ ...fields, provider: name, cluster: name }, gateway.signer, nodeCrypto);
  expect(longest.length).toBe(TICKET_MAX_BYTES);
  expect(openTicket(longest, nodeCrypto)).toMatchObject({ provider: name, cluster: name });
  for (const provider of ['', `${name}a`, 'UPPER', 'a b', '../x'])
    expect(() => signTicket({ ...fields, provider, cluster: name }, gateway.signer, nodeCrypto)).toThrow();
});

test("What is kept of a message is copied from it, also where the message is Node's Buffer", () => {
  const { replica } = counted();
  const one = node(gateway);
  const messages = [one.says('SERVING'), gateway.floor(NOW_S)].map((update) => Buffer.from(encodeUpdate(update)));
  for (const message of messages) {
    replica.merge(message);
    message.fill(0);
  }
  const copy = counted().replica;
  for (const update of replica.updates(lab.issuer)) expect(copy.merge(update).outcome).toBe('merged');
  expect(copy.get(one.session)?.payload).toEqual(PAYLOAD);
});
