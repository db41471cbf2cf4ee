import { expect, test } from 'vitest';
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { decodeUpdate, encodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { decodeDigest, encodeDigest } from '../../../shared/lattice/replica-digest.ts';
import { DAY_S, institution, NOW_S, node, PAYLOAD } from './house.ts';

const lab = institution();
const gateway = lab.gateway();
const replica = (...issuers: string[]) =>
  new RegistryReplica({ crypto: nodeCrypto, accepts: (issuer) => issuers.length === 0 || issuers.includes(issuer) });

test("A node's first word brings its ticket and payload, and is readable at once", () => {
  const a = replica();
  const one = node(gateway);
  expect(a.merge(encodeUpdate(one.says('SERVING')))).toMatchObject({ outcome: 'merged', sessions: [one.session] });
  expect(a.get(one.session)).toMatchObject({ state: 'SERVING', version: 1, issuer: lab.issuer, payload: PAYLOAD });
  expect([...a.entries()].map((entry) => entry.session)).toEqual([one.session]);
});

test('A state never goes back', () => {
  const a = replica();
  const one = node(gateway);
  a.merge(one.says('DOWN', 1));
  expect(a.merge(one.says('SERVING', 9)).outcome).toBe('older');
  expect(a.merge(one.says('DOWN', 1)).outcome).toBe('known');
  expect(a.merge(one.says('LEFT', 0)).outcome).toBe('merged');
  expect(a.get(one.session)).toMatchObject({ state: 'LEFT', payload: undefined });
});

test('What lacks a ticket or a payload is deferred, not refused', () => {
  const a = replica();
  const one = node(gateway);
  const full = one.says('SERVING', 1);
  const thin = { kind: 'entry' as const, record: full.record ?? new Uint8Array() };
  expect(a.merge(thin)).toMatchObject({ outcome: 'deferred', lacks: 'ticket' });
  expect(a.merge({ ...thin, ticket: one.ticket.bytes })).toMatchObject({ outcome: 'deferred', lacks: 'payload' });
  expect(a.size).toBe(0);
  expect(a.merge(full).outcome).toBe('merged');
  const { record } = one.says('SERVING', 2);
  expect(a.merge({ kind: 'entry', ...(record && { record }) }).outcome).toBe('merged');
});

test('Only the key that admitted a session evicts it; no other key of any issuer does', () => {
  const a = replica();
  const one = node(gateway);
  a.merge(one.says('SERVING'));
  for (const other of [institution().gateway(), lab.gateway()])
    expect(a.merge(other.evict(one.session))).toMatchObject({ outcome: 'rejected', code: 'bad_signature' });
  expect(a.merge(gateway.evict(one.session)).outcome).toBe('merged');
  expect(a.get(one.session)).toMatchObject({ state: 'LEFT', payload: undefined, eviction: { reason: 'silent' } });
  expect(a.merge(one.says('SERVING', 5)).outcome).toBe('merged');
  expect(a.get(one.session)).toMatchObject({ state: 'LEFT', version: 5, payload: undefined });
});

test('A watermark collects sessions that ended before it, and no update brings them back', () => {
  const a = replica();
  const old = node(gateway, { birth: NOW_S - 20 * DAY_S });
  const young = node(gateway);
  a.merge(old.says('SERVING'));
  a.merge(young.says('SERVING'));
  expect(a.merge(gateway.floor(NOW_S))).toMatchObject({ outcome: 'merged', sessions: [old.session] });
  expect(a.merge(old.says('SERVING', 7)).outcome).toBe('collected');
  expect(a.ticketState(old.ticket)).toBe('collected');
  expect(a.ticketState(young.ticket)).toBe('good');
  expect(a.merge(gateway.floor(NOW_S - 1)).outcome).toBe('older');
});

test('A revoked key takes its sessions along, backdated ones too, and no others', () => {
  const a = replica();
  const thief = lab.gateway();
  const [one, two] = [node(thief, { birth: NOW_S - 80 * DAY_S, expires: NOW_S - 79 * DAY_S }), node(gateway)];
  for (const each of [one, two]) a.merge(each.says('SERVING'));
  expect(a.merge(lab.revoke(thief.signer.publicKey))).toMatchObject({ outcome: 'merged', sessions: [one.session] });
  expect(a.get(two.session)?.state).toBe('SERVING');
  expect(a.merge(one.says('SERVING', 2)).outcome).toBe('collected');
  expect(a.ticketState(one.ticket)).toBe('revoked');
});

test('A root that takes itself back takes every session of its issuer along', () => {
  const a = replica();
  const [one, two] = [node(gateway), node(institution().gateway())];
  for (const each of [one, two]) a.merge(each.says('SERVING'));
  a.merge(lab.revoke(lab.root.publicKey));
  expect([...a.entries()].map((entry) => entry.session)).toEqual([two.session]);
});

test('Two replicas are equal after a digest and a delta each way', () => {
  const [a, b] = [replica(), replica()];
  const nodes = Array.from({ length: 8 }, () => node(gateway));
  nodes.forEach((each, i) => {
    a.merge(each.says(i % 2 === 0 ? 'SERVING' : 'DOWN', 1));
    if (i < 6) b.merge(each.says('SERVING', i));
  });
  b.merge(gateway.evict(nodes[0]?.session ?? ''));
  b.merge(gateway.floor(NOW_S - DAY_S));
  expect(a.fingerprint(lab.issuer).live).not.toBe(b.fingerprint(lab.issuer).live);
  for (const [from, to] of [
    [a, b],
    [b, a],
  ] as const) {
    const digest = decodeDigest(encodeDigest(to.digest({ issuer: lab.issuer })));
    for (const update of from.delta(digest).updates)
      expect(to.merge(decodeUpdate(encodeUpdate(update))).outcome).toBe('merged');
  }
  expect(a.fingerprint(lab.issuer)).toEqual(b.fingerprint(lab.issuer));
  expect(a.wants(b.digest({ issuer: lab.issuer }))).toEqual([]);
  const c = replica();
  for (const update of a.updates(lab.issuer)) c.load(update);
  expect(c.fingerprint(lab.issuer)).toEqual(a.fingerprint(lab.issuer));
});

test('An issuer that is removed from the list goes with its nodes, and with no others', () => {
  const eth = institution();
  const a = replica(lab.issuer, eth.issuer);
  const [one, two] = [node(gateway), node(eth.gateway())];
  for (const each of [one, two]) expect(a.merge(each.says('SERVING')).outcome).toBe('merged');
  expect(a.setIssuers((issuer) => issuer === lab.issuer)).toEqual([two.session]);
  expect([...a.entries()].map((entry) => entry.session)).toEqual([one.session]);
  expect(a.merge(two.says('SERVING', 2))).toMatchObject({ outcome: 'rejected', code: 'unknown_issuer' });
});
