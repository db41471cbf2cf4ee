/**
 * The laws of a registry replica, as properties that any implementation can be checked against. Each mutant must break
 * at least one.
 */
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { sessionStateRank } from '../../../shared/lattice/node-record.ts';
import type { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { decodeUpdate, encodeUpdate, type Update } from '../../../shared/lattice/registry-update.ts';
import { type Digest, decodeDigest, encodeDigest } from '../../../shared/lattice/replica-digest.ts';
import { aCopiedTicket, aForgery, anUpdate, aSwappedPayload, crypto, type Lattice, lab, updates } from './domain.ts';
import { expected } from './oracle.ts';

interface Law {
  says: string;
  /** @throws Error if the law does not hold */
  check(lattice: Lattice, runs: number, seed?: number): void;
}

const { issuer } = lab;

function replicaOf(lattice: Lattice, ...lists: readonly (readonly Update[])[]): RegistryReplica {
  const replica = new lattice.RegistryReplica({ crypto, accepts: (id) => id === issuer });
  for (const update of lists.flat()) replica.merge(update);
  return replica;
}

/** Everything that is visible from outside, payloads included. */
export function holdings(replica: RegistryReplica): string[] {
  const entries = [...replica.entries()].map((entry) => {
    const { session, state, record, eviction, payloadBytes } = entry;
    const payload = payloadBytes === undefined ? '-' : Buffer.from(payloadBytes).toString();
    return `${session} ${state} ${record?.hash ?? '-'} ${eviction?.hash ?? '-'} ${payload}`;
  });
  const floors = replica.watermarks(issuer).map(({ certificate, at }) => `floor ${certificate.keyName} ${at}`);
  const revoked = replica.revocations(issuer).map(({ keyName }) => `revoked ${keyName}`);
  return [...entries, ...floors, ...revoked].sort();
}

function same(a: RegistryReplica, b: RegistryReplica): void {
  const [x, y] = [holdings(a), holdings(b)];
  if (!isDeepStrictEqual(x, y)) throw new Error(`not the same:\n${x.join('\n')}\n--\n${y.join('\n')}`);
}

function that(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

function join(lattice: Lattice, ...replicas: RegistryReplica[]): RegistryReplica {
  return replicaOf(lattice, ...replicas.map((replica) => replica.updates(issuer)));
}

/** Encodes and decodes, as on the wire. */
const posted = (update: Update) => decodeUpdate(encodeUpdate(update));
const asked = (digest: Digest) => decodeDigest(encodeDigest(digest));

function law<T>(says: string, given: fc.Arbitrary<T>, holds: (lattice: Lattice, value: T) => void): Law {
  return {
    says,
    check(lattice, runs, chosen) {
      const property = fc.property(given, (value) => holds(lattice, value));
      const { failed, errorInstance, seed, counterexamplePath } = fc.check(property, {
        numRuns: runs,
        ...(chosen === undefined ? {} : { seed: chosen }),
      });
      if (failed) throw new Error(`${says}: ${errorInstance} (seed ${seed}, path ${counterexamplePath})`);
    },
  };
}

const two = fc.tuple(updates, updates);
/** Replicas that differ in little or nothing. */
const near = fc.tuple(updates, anUpdate).map(([list, last]): [Update[], Update[]] => [list, [...list, last]]);
const shuffled = updates.chain((list) =>
  fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length, maxLength: list.length })),
);

export const LAWS = {
  told: law('holds exactly what it was told, less what is excluded', updates, (lattice, list) => {
    const replica = replicaOf(lattice, list);
    const [held, wanted] = [holdings(replica), expected(list)];
    if (!isDeepStrictEqual(held, wanted)) throw new Error(`held\n${held.join('\n')}\nbut told\n${wanted.join('\n')}`);
  }),
  order: law('does not care in which order it is told', shuffled, (lattice, [list, other]) =>
    same(replicaOf(lattice, list), replicaOf(lattice, other)),
  ),
  commutative: law('merging is commutative', two, (lattice, [x, y]) => {
    const [a, b] = [replicaOf(lattice, x), replicaOf(lattice, y)];
    same(join(lattice, a, b), join(lattice, b, a));
  }),
  associative: law('merging is associative', fc.tuple(updates, updates, updates), (lattice, [x, y, z]) => {
    const [a, b, c] = [replicaOf(lattice, x), replicaOf(lattice, y), replicaOf(lattice, z)];
    same(join(lattice, join(lattice, a, b), c), join(lattice, a, join(lattice, b, c)));
  }),
  idempotent: law('merging is idempotent', updates, (lattice, list) => {
    const a = replicaOf(lattice, list);
    const before = holdings(a);
    for (const update of [...a.updates(issuer), ...list]) {
      const { outcome } = a.merge(update);
      that(outcome !== 'merged' && outcome !== 'rejected' && outcome !== 'deferred', `told again: ${outcome}`);
    }
    that(isDeepStrictEqual(holdings(a), before), 'changed by what it knew');
    same(join(lattice, a), a);
  }),
  inflation: law('merging only ever adds: states, versions, floors and revocations never go back', two, inflates),
  noReturn: law('nothing that was collected or revoked comes back, whatever returns', two, (lattice, [old, news]) => {
    const away = replicaOf(lattice, old);
    const here = replicaOf(lattice, old, news);
    const known = new Set([...here.entries()].map((entry) => entry.session));
    const gone = [...away.entries()].filter((entry) => !known.has(entry.session));
    for (const update of [...away.updates(issuer), ...old]) here.merge(update);
    for (const entry of gone) {
      that(here.get(entry.session) === undefined, 'resurrected');
      that(here.merge(entry.update(true)).outcome === 'collected', 'not told that it is over');
    }
    for (const { ticket } of gone)
      that(['collected', 'revoked'].includes(here.ticketState(ticket)), 'in good standing');
  }),
  delta: law('digest and delta are a merge', two, (lattice, [x, y]) => {
    const [a, b] = [replicaOf(lattice, x), replicaOf(lattice, y)];
    const merged = join(lattice, b, a);
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      for (const update of from.delta(asked(to.digest({ issuer }))).updates) to.merge(posted(update));
      same(to, merged);
    }
    that(a.delta(b.digest({ issuer })).updates.length === 0, 'says again what was said');
  }),
  buckets: law('digests by bucket and part are a merge', two, (lattice, [x, y]) => {
    const [a, b] = [replicaOf(lattice, x), replicaOf(lattice, y)];
    const merged = join(lattice, b, a);
    for (const part of ['live', 'left'] as const) {
      for (let bucket = 0; bucket < 16; bucket++) {
        const digest = asked(b.digest({ issuer, bucket, part }));
        for (const update of a.delta(digest).updates) b.merge(posted(update));
      }
    }
    same(b, merged);
  }),
  cut: law(
    'deltas cut at any number of bytes get there',
    fc.tuple(updates, updates, fc.oneof(fc.constant(0), fc.nat({ max: 2000 }))),
    cut,
  ),
  pull: law('what it wants by a digest, pulled, is a merge too', two, (lattice, [x, y]) => {
    const [a, b] = [replicaOf(lattice, x), replicaOf(lattice, y)];
    const merged = join(lattice, b, a);
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      for (const update of from.pull(issuer, to.wants(asked(from.digest({ issuer }))))) to.merge(posted(update));
      same(to, merged);
    }
    that(b.wants(a.digest({ issuer })).length === 0, 'wants what it has');
  }),
  fingerprint: law(
    'fingerprints are equal where replicas are, and only there',
    fc.oneof(two, near),
    (lattice, [x, y]) => {
      const [a, b] = [replicaOf(lattice, x), replicaOf(lattice, y)];
      const equal = isDeepStrictEqual(a.fingerprint(issuer), b.fingerprint(issuer));
      that(
        equal === isDeepStrictEqual(holdings(a), holdings(b)),
        `fingerprints ${equal ? 'hide' : 'invent'} a difference`,
      );
      const again = join(lattice, a);
      that(
        isDeepStrictEqual(again.fingerprint(issuer), a.fingerprint(issuer)),
        'the fingerprint remembers how it came about',
      );
      const sums = a.fingerprint(issuer);
      const left = [...a.entries()].some(({ state }) => state === 'LEFT');
      that((sums.left !== 0n) === left, 'the fingerprint of those that left is of something else');
      const live = sums.buckets.reduce((sum, bucket) => sum + bucket.live, 0n);
      that((live - sums.live) % 2n ** 64n === 0n, 'the buckets do not add up');
    },
  ),
  thin: law(
    'thin updates, completed when it asks, come to the same',
    fc.tuple(updates, fc.infiniteStream(fc.boolean())),
    thin,
  ),
  forgery: law('a forgery changes nothing', fc.tuple(updates, aForgery), (lattice, [list, forgery]) => {
    const a = replicaOf(lattice, list);
    const before = holdings(a);
    const { outcome } = a.merge(forgery);
    that(outcome !== 'merged', 'a forgery was merged');
    that(isDeepStrictEqual(holdings(a), before), 'a forgery left a trace');
  }),
  together: law(
    'parts that do not belong together are refused',
    fc.oneof(aCopiedTicket, aSwappedPayload),
    (lattice, parts) => {
      const a = replicaOf(lattice);
      that(a.merge(parts).outcome === 'rejected' && a.size === 0, 'taken for one');
    },
  ),
  results: law('a result names exactly the sessions that changed', updates, (lattice, list) => {
    const a = replicaOf(lattice);
    for (const update of list) {
      const before = new Map([...a.entries()].map((entry) => [entry.session, entry]));
      const result = a.merge(update);
      const after = new Map([...a.entries()].map((entry) => [entry.session, entry]));
      const all = new Set([...before.keys(), ...after.keys()]);
      const changed = [...all].filter((session) => before.get(session) !== after.get(session)).sort();
      const named = result.outcome === 'merged' ? [...result.sessions].sort() : [];
      that(isDeepStrictEqual(changed, named), `changed ${changed} but named ${named}`);
      that(a.size === after.size, 'counts wrongly');
    }
  }),
  load: law('what it stored loads as the same', updates, (lattice, list) => {
    const a = replicaOf(lattice, list);
    const b = replicaOf(lattice);
    for (const update of a.updates(issuer)) that(b.load(encodeUpdate(update)).outcome === 'merged', 'not loaded');
    same(a, b);
    that(isDeepStrictEqual(a.fingerprint(issuer), b.fingerprint(issuer)), 'loaded with another fingerprint');
  }),
} satisfies Record<string, Law>;

export type LawName = keyof typeof LAWS;

function inflates(lattice: Lattice, [old, news]: [Update[], Update[]]): void {
  const a = replicaOf(lattice, old);
  for (const update of news) {
    const before = [...a.entries()];
    const floors = a.watermarks(issuer);
    const revoked = a.revocations(issuer).length;
    a.merge(update);
    for (const was of before) {
      const now = a.get(was.session);
      if (now === undefined) {
        that(a.ticketState(was.ticket) !== 'good', 'a session vanished that nothing excludes');
        continue;
      }
      that(sessionStateRank(now.state) >= sessionStateRank(was.state), `${was.state} became ${now.state}`);
      const advanced = now.record?.state !== was.record?.state || now.version >= was.version;
      that(advanced, 'a version went back');
      that(was.eviction === undefined || now.eviction !== undefined, 'an eviction was forgotten');
    }
    for (const floor of floors) {
      const now = a.watermarks(issuer).find((other) => other.certificate.keyName === floor.certificate.keyName);
      that((now?.at ?? 0) >= floor.at, 'a floor went back');
    }
    that(a.revocations(issuer).length >= revoked, 'a revocation was forgotten');
  }
}

/**
 * In both directions each round: otherwise a replica that lacks a floor would start with the same collected sessions
 * forever.
 */
function cut(lattice: Lattice, [x, y, max]: [Update[], Update[], number]): void {
  const [a, b] = [replicaOf(lattice, x), replicaOf(lattice, y)];
  const merged = join(lattice, b, a);
  for (let round = 0, done = false; !done; round++) {
    that(round < 20, 'does not end');
    done = true;
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      const { updates: some, complete } = from.delta(to.digest({ issuer }), max);
      that(complete || some.length > 0, 'nothing sent and yet not complete');
      that(some.length < 2 || some.reduce((sum, update) => sum + encodeUpdate(update).length, 0) <= max, 'too much');
      for (const update of some) to.merge(posted(update));
      done &&= complete;
    }
  }
  same(a, merged);
  same(b, merged);
}

/** Senders leave out the ticket or the payload at random; the receiver reports what it lacks. */
function thin(lattice: Lattice, [list, coins]: [Update[], Iterator<boolean>]): void {
  const a = replicaOf(lattice);
  const flip = () => coins.next().value === true;
  for (const whole of list) {
    if (whole.kind !== 'entry') {
      a.merge(whole);
      continue;
    }
    const { ticket, payload, ...rest } = whole;
    let said: Update = { ...rest, ...(flip() && ticket && { ticket }), ...(flip() && payload && { payload }) };
    for (let asks = 0; ; asks++) {
      that(asks <= 2, 'asks without end');
      const result = a.merge(said);
      that(result.outcome !== 'rejected', 'a thin update was refused');
      if (result.outcome !== 'deferred') break;
      if (result.lacks === 'ticket' && ticket) said = { ...said, ticket };
      if (result.lacks === 'payload' && payload) said = { ...said, payload };
    }
  }
  same(a, replicaOf(lattice, list));
}
