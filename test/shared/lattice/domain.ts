/**
 * A tiny world for property tests: four sessions of two keys, two payloads, three floors. It is small on purpose, so
 * that everything that may collide does. Signatures are hashes, so that thousands of runs are cheap.
 */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import type { Crypto, Signer } from '../../../shared/lattice/crypto-interface.ts';
import { signRevocation } from '../../../shared/lattice/gateway-key-statements.ts';
import { SESSION_STATES, type SessionState } from '../../../shared/lattice/node-record.ts';
import type { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import type { EntryUpdate, Update } from '../../../shared/lattice/registry-update.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { type Gateway, institution, node } from './house.ts';

/** The subject of the suite: the real lattice or a mutant of it. */
export interface Lattice {
  RegistryReplica: typeof RegistryReplica;
}

const sha256 = (...parts: Uint8Array[]) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return new Uint8Array(hash.digest());
};

const signed = (key: Uint8Array, message: Uint8Array) => {
  const half = sha256(key, message);
  return new Uint8Array([...half, ...sha256(half)]);
};

export const crypto: Crypto = {
  sha256: (bytes) => sha256(bytes),
  verify: (key, message, signature) => Buffer.compare(signed(key, message), signature) === 0,
};

function signer(name: string): Signer {
  const publicKey = sha256(Buffer.from(name));
  return { publicKey, sign: (message) => signed(publicKey, message) };
}

const WINDOW = { notBefore: 0, notAfter: 1000 };
export const lab = institution(signer('root'), crypto);
const keys = ['a', 'b'].map((name) => lab.gateway(WINDOW, signer(`gateway ${name}`)));
const stranger = institution(signer('stranger'), crypto);
const nobody = stranger.gateway(WINDOW, signer('gateway x'));

const sessions = keys.flatMap((key, k) =>
  [100, 300].map((birth) => ({
    gateway: key,
    ...node(key, { birth, expires: birth + 100 }, signer(`session ${k} ${birth}`), crypto),
  })),
);

const payloads = ['one', 'two'].map((id) => new TextEncoder().encode(JSON.stringify({ models: [{ id }] })));

function record(session: number, state: SessionState, version: number, payload: number): EntryUpdate {
  const one = sessions[session % sessions.length];
  const bytes = payloads[payload % payloads.length];
  if (one === undefined || bytes === undefined) throw new Error('no such session');
  const said = signRecord({ session: one.session, state, version, payload: bytes }, one.signer, crypto);
  return { kind: 'entry', ticket: one.ticket.bytes, record: said, ...(state === 'LEFT' ? {} : { payload: bytes }) };
}

const sessionOf = fc.nat({ max: sessions.length - 1 });

const aRecord: fc.Arbitrary<EntryUpdate> = fc
  .tuple(sessionOf, fc.constantFrom(...SESSION_STATES), fc.nat({ max: 1 }), fc.nat({ max: 1 }))
  .map(([session, state, version, payload]) => record(session, state, version, payload));

const anEviction: fc.Arbitrary<EntryUpdate> = fc
  .tuple(sessionOf, fc.constantFrom('silent', 'operator'))
  .map(([session, reason]) => {
    const one = sessions[session];
    if (one === undefined) throw new Error('no such session');
    return { ...one.gateway.evict(one.session, reason), ticket: one.ticket.bytes };
  });

const together: fc.Arbitrary<EntryUpdate> = fc
  .tuple(aRecord, anEviction)
  .map(([said, evicted]) =>
    Buffer.compare(said.ticket ?? said.record ?? Buffer.of(), evicted.ticket ?? Buffer.of()) === 0
      ? { ...said, ...evicted }
      : said,
  );

const aFloor: fc.Arbitrary<Update> = fc
  .tuple(fc.constantFrom(...keys), fc.constantFrom(150, 200, 201, 401))
  .map(([key, at]) => key.floor(at));

const aRevocation: fc.Arbitrary<Update> = fc
  .constantFrom(
    ...keys.map((key) => key.signer.publicKey),
    ...keys.map((key) => key.signer.publicKey),
    lab.root.publicKey,
  )
  .map((key) => lab.revoke(key));

/** Any update that an honest replica may receive, complete. */
export const anUpdate: fc.Arbitrary<Update> = fc.oneof(
  { weight: 12, arbitrary: aRecord },
  { weight: 4, arbitrary: anEviction },
  { weight: 2, arbitrary: together },
  { weight: 3, arbitrary: aFloor },
  { weight: 1, arbitrary: aRevocation },
);

export const updates = fc.array(anUpdate, { maxLength: 14 });

const first = keys[0] ?? nobody;
/** Its certificate names the root, which never signed it. */
const uncertified = institution({ ...signer('thief'), publicKey: lab.root.publicKey }, crypto).gateway(
  WINDOW,
  signer('gateway y'),
);

/** Updates that neither the session's owner nor a valid key signed: with one bit flipped, or signed by another key. */
export const aForgery: fc.Arbitrary<Update> = fc.oneof(
  fc.tuple(fc.oneof(anUpdate, aFloor, aRevocation), fc.nat(), fc.nat({ max: 7 })).map(spoil),
  fc.constantFrom(...sessions).chain((victim) =>
    fc.constantFrom<Update>(
      { ...nobody.evict(victim.session), ticket: victim.ticket.bytes },
      // By another gateway of the same issuer.
      { ...(keys.find((key) => key !== victim.gateway) ?? nobody).evict(victim.session), ticket: victim.ticket.bytes },
      signedBy(signer('intruder'), victim),
    ),
  ),
  fc.constantFrom<Update>(
    nobody.floor(401),
    uncertified.floor(401),
    stranger.revoke(first.signer.publicKey),
    {
      kind: 'revocation',
      revocation: signRevocation(first.signer.publicKey, { ...signer('thief'), publicKey: lab.root.publicKey }),
    },
    admittedBy({ ...first, signer: signer('not the gateway') }),
    admittedBy(uncertified),
    admittedBy(nobody),
  ),
);

function signedBy(owner: Signer, victim: (typeof sessions)[number]): Update {
  const payload = payloads[0] ?? Buffer.of();
  const said = signRecord({ session: victim.session, state: 'LEFT', version: 7, payload }, owner, crypto);
  return { kind: 'entry', ticket: victim.ticket.bytes, record: said };
}

/** A node with a ticket that was signed by a key that is not a gateway, or not one of this issuer. */
function admittedBy(gateway: Gateway): Update {
  const believer = { ...crypto, verify: () => true };
  return node(gateway, { birth: 300, expires: 400 }, signer('intruder'), believer).says('SERVING');
}

/** A record of one session with the ticket of another; both are valid. */
export const aCopiedTicket: fc.Arbitrary<EntryUpdate> = fc
  .tuple(fc.oneof(aRecord, anEviction), fc.constantFrom(...sessions))
  .filter(([said, other]) => said.ticket !== other.ticket.bytes)
  .map(([said, other]) => ({ ...said, ticket: other.ticket.bytes }));

/** A valid record with a payload that was not signed with it. */
export const aSwappedPayload: fc.Arbitrary<EntryUpdate> = aRecord
  .filter(({ payload }) => payload !== undefined)
  .map((said) => ({ ...said, payload: payloads.find((other) => other !== said.payload) ?? Buffer.of() }));

function spoil([update, at, bit]: [Update, number, number]): Update {
  const flip = (bytes: Uint8Array) => bytes.map((byte, i) => (i === at % bytes.length ? byte ^ (1 << bit) : byte));
  if (update.kind === 'floor') return { kind: 'floor', floor: flip(update.floor) };
  if (update.kind === 'revocation') return { kind: 'revocation', revocation: flip(update.revocation) };
  const { record: said, eviction, ...rest } = update;
  // Only one part, because the other is valid and may be merged.
  if (said !== undefined && (eviction === undefined || at % 2 === 0)) return { ...rest, record: flip(said) };
  return { ...rest, ...(eviction && { eviction: flip(eviction) }) };
}
