/** Plausible mistakes in the lattice, each as one replacement in its source, under the law that must catch it. */
import type { LawName } from './laws.ts';

export interface Mutant {
  /** Path in shared/lattice. */
  file: string;
  mistake: string;
  /** Occurs exactly once. */
  find: string;
  replace: string;
}

const of =
  (file: string) =>
  (mistake: string, find: string, replace: string): Mutant => ({ file, mistake, find, replace });

const algebra = of('merge-rules.ts');
const certificate = of('gateway-certificate.ts');
const control = of('gateway-key-statements.ts');
const digest = of('replica-digest.ts');
const entry = of('replica-entry.ts');
const fingerprint = of('fingerprint.ts');
const merger = of('update-merger.ts');
const replica = of('registry-replica.ts');
const store = of('issuer-store.ts');
const stores = of('issuer-stores.ts');
const ticket = of('ticket.ts');

const STATE_FIRST = 'if (a.state !== b.state) return sessionStateRank(a.state) - sessionStateRank(b.state);';
const TIE = 'return compareText(a.hash, b.hash);';
const EVICTION = 'const eviction = evicts > 0 ? read.eviction : known?.eviction;';
const FLOOR_RANK = 'if (known !== undefined && known.at >= watermark.at)';
const FLOOR_OF = 'const watermark = control.watermarks.get(session.keyName);';
const REVOKED = 'return control.revocations.has(keyName) || control.revocations.has(rootName);';
const ARRIVAL = "if (store.excludes(ticket)) return { outcome: 'collected'";
const SKIP = 'if (isUpToDate(other, held.item)) continue;';
const PUT = 'store.put({ ticket,';

export const MUTANTS: { [law in LawName]?: readonly Mutant[] } = {
  told: [
    merger(
      'payloads outlive their session',
      "if (record === undefined || evicted || record.state === 'LEFT') return undefined;",
      'if (record === undefined) return given;',
    ),
    merger(
      "a former version's payload stays",
      'known?.payloadBytes !== undefined && known.record?.payloadHash === record.payloadHash',
      'known?.payloadBytes !== undefined',
    ),
    merger('evictions are dropped', EVICTION, 'const eviction = known?.eviction;'),
    entry(
      'an owner may outlive its eviction',
      'record === undefined || eviction !== undefined',
      'record === undefined',
    ),

    algebra(
      "one key's watermark collects every key's sessions",
      FLOOR_OF,
      'const watermark = [...control.watermarks.values()][0];',
    ),
    algebra('watermarks ask for the birth', 'session.expires < watermark.at', 'session.expires - 100 < watermark.at'),
    algebra('watermarks are off by one', 'session.expires < watermark.at', 'session.expires <= watermark.at'),
    merger('watermarks are not merged', FLOOR_RANK, 'if (known !== undefined || true)'),
    merger('revocations are not merged', 'if (revocations.has(revocation.keyName))', 'if (revocations)'),
    algebra('a root cannot take itself back', REVOKED, 'return control.revocations.has(keyName);'),
    algebra(
      'any revocation takes back all keys',
      REVOKED,
      'return control.revocations.size > 0 && rootName !== keyName;',
    ),
    store('watermarks are obeyed and forgotten', 'this.watermarks.set(certificate.keyName, watermark);', ''),
  ],
  order: [
    algebra(
      'of two evictions the first one stays',
      "compareText(a?.hash ?? '', b?.hash ?? '')",
      'b === undefined ? 1 : 0',
    ),
    merger('a new record undoes an eviction', EVICTION, 'const eviction = evicts > 0 ? read.eviction : undefined;'),
    merger(
      'the last watermark counts, not the highest',
      FLOOR_RANK,
      'if (known?.at === watermark.at && known !== undefined)',
    ),
    store('a watermark spares what is there', 'if (!this.excludes(entry)) continue;', 'continue;'),
  ],
  commutative: [algebra('of two records of one version the first one stays', TIE, 'return 0;')],
  associative: [
    store(
      'live sessions are exempt from a watermark that comes',
      'if (!this.excludes(entry)) continue;',
      "if (!this.excludes(entry) || entry.state === 'SERVING') continue;",
    ),
    merger(
      'old sessions that are not known are refused',
      'const order =',
      "if (known === undefined && read.record?.state === 'LEFT') return { outcome: 'older', issuer, sessions: [session] };\n    const order =",
    ),
  ],
  idempotent: [algebra('of two records of one version the last one wins', TIE, 'return 1;')],
  inflation: [
    algebra('records are ordered by version alone', STATE_FIRST, ''),
    algebra('records are ordered by state alone', 'if (a.version !== b.version) return a.version - b.version;', ''),
    merger(
      'a record is taken whatever is known',
      'const record = order > 0 ? read.record',
      'const record = order !== 0 ? read.record',
    ),
    merger(
      'a full replica makes room by forgetting',
      PUT,
      `if (store.entries.size > 2) store.entries.delete([...store.entries.keys()][0] ?? '');\n    ${PUT}`,
    ),
  ],
  noReturn: [
    merger(
      'the watermark is not asked when something comes',
      ARRIVAL,
      "if (known && store.excludes(ticket)) return { outcome: 'collected'",
    ),
    merger(
      'live sessions pass the watermark when they come',
      ARRIVAL,
      "if (store.excludes(ticket) && signed.record?.state !== 'SERVING') return { outcome: 'collected'",
    ),
    entry('tombstones forget their eviction', 'if (eviction !== undefined) update.eviction = eviction.bytes;', ''),
    store(
      'tombstones are compacted without a watermark',
      'this.entries.set(entry.session, entry);',
      "if (entry.state === 'LEFT') this.#drop(entry);\n    if (entry.state === 'LEFT') return entry;\n    this.entries.set(entry.session, entry);",
    ),
  ],
  delta: [
    digest('evictions do not count in comparisons', '&& theirs.mark >= mine.mark', ''),
    digest(
      'of one version all records count as the same',
      'return a.tie < b.tie ? -1 : a.tie > b.tie ? 1 : 0;',
      'return 0;',
    ),
    digest('versions do not count in comparisons', 'if (a.version !== b.version) return a.version - b.version;', ''),
    digest('any watermark counts as the same', 'theirs.version >= mine.version', 'theirs.version >= 0'),
    replica(
      'deltas leave out those that left',
      SKIP,
      "if (isUpToDate(other, held.item) || held.kind === 'left') continue;",
    ),
    replica('deltas leave out keys', SKIP, "if (isUpToDate(other, held.item) || held.kind === 'keys') continue;"),
    replica(
      'deltas never bring a ticket',
      'held.update(other === undefined || other.state === 0)',
      'held.update(false)',
    ),
  ],
  buckets: [
    store('buckets are ignored', 'bucketOf(held.item.id) === bucket', 'bucketOf(held.item.id) === 0'),
    store(
      'keys are in no part',
      'if (part !== undefined && part !== partOf(wanted))',
      'if (part !== undefined && part !== wanted)',
    ),
  ],
  cut: [
    replica(
      'deltas stop before their first update',
      'if (bytes > maxBytes && updates.length > 0)',
      'if (bytes > maxBytes)',
    ),
    replica(
      'a delta that is cut says that it is whole',
      'return { updates, complete: false };',
      'return { updates, complete: true };',
    ),
    replica('deltas know no bound', 'if (bytes > maxBytes && updates.length > 0)', 'if (bytes < 0)'),
    store('deltas begin with sessions', "wanted of ['keys', 'live', 'left']", "wanted of ['live', 'keys', 'left']"),
  ],
  pull: [
    store('what is wanted is what both have', 'filter((item) => !isUpToDate(', 'filter((item) => isUpToDate('),
    replica(
      'pulled entries come without their ticket',
      'updates.push(held.update(true));',
      'updates.push(held.update(false));',
    ),
  ],
  fingerprint: [
    digest(
      'evictions are left out of the hash',
      'writeItem(out, item);\n  return BigInt',
      "writeItem(out, { ...item, mark: '' });\n  return BigInt",
    ),
    store('fingerprints keep what went', 'this.#sum.remove(held.item, partOf(held.kind));', ''),
    fingerprint('parts are mixed', 'bucket[part] = (bucket[part] + by)', 'bucket.live = (bucket.live + by)'),
    fingerprint('who is live does not count', 'live += bucket.live;', ''),
  ],
  thin: [
    merger(
      'a thin record drops the payload',
      "if (given === undefined) return 'lacking';",
      'if (given === undefined) return given;',
    ),
  ],
  forgery: [
    merger('records are not verified', 'verifyRecord(record, ticket.sessionKey, this.#crypto);', ';'),
    merger('evictions are not verified', 'verifyEviction(eviction, ticket.certificate.key, this.#crypto);', ';'),
    merger(
      'tickets are not verified',
      'if (!trusted) return verifyTicket(ticket, this.#crypto, this.#certificates);',
      '',
    ),
    ticket(
      "a ticket's own signature is not verified",
      'if (!crypto.verify(certificate.key,',
      'if (!crypto.sha256(certificate.key) && !crypto.verify(certificate.key,',
    ),
    certificate(
      'certificates are not verified',
      'if (!crypto.verify(certificate.root,',
      'if (!crypto.sha256(body) && !crypto.verify(certificate.root,',
    ),
    control(
      'watermarks are not verified',
      'if (!crypto.verify(certificate.key,',
      'if (!crypto.sha256(signature) && !crypto.verify(certificate.key,',
    ),
    control(
      'revocations are not verified',
      'if (!crypto.verify(revocation.root,',
      'if (at === 0 && !crypto.verify(revocation.root,',
    ),
    stores(
      'an issuer that is not listed is heard',
      'if (!this.accepts(issuer)) throw',
      'if (issuer.length === 0) throw',
    ),
  ],
  together: [
    merger("another session's ticket will do", 'if (ticket.session !== session)', 'if (ticket.session === undefined)'),
    merger(
      'a payload is taken as it comes',
      'if (payloadHash(given, this.#crypto) !== record.payloadHash)',
      'if (given.length > 5000)',
    ),
  ],
  results: [
    merger(
      'a watermark does not say whom it took',
      'sessions: store.raiseGcWatermark(opened) }',
      'sessions: store.raiseGcWatermark(opened).slice(1) }',
    ),
  ],
  load: [
    merger(
      'what is loaded is not kept',
      PUT,
      `if (trusted) return { outcome: 'known', issuer, sessions: [session] };\n    ${PUT}`,
    ),
  ],
};
