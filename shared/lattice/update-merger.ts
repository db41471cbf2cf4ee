/**
 * Merges updates into a replica. An update is parsed, compared with the known state, and only then verified, so that an
 * old update costs no cryptography. If the update is better than the known state, it is stored for its issuer.
 */

import { copyBytes } from './byte-codec.ts';
import type { Crypto } from './crypto-interface.ts';
import { decodeEviction, type Eviction, verifyEviction } from './eviction.ts';
import { type CertificateCache, openCertificate } from './gateway-certificate.ts';
import {
  decodeGcWatermark,
  decodeRevocation,
  type GcWatermark,
  openGcWatermark,
  openRevocation,
  type Revocation,
} from './gateway-key-statements.ts';
import type { IssuerStore } from './issuer-store.ts';
import type { IssuerStores } from './issuer-stores.ts';
import { LatticeError, type LatticeErrorCode } from './lattice-error.ts';
import { compareEvictions, compareRecords } from './merge-rules.ts';
import { PAYLOAD_MAX_BYTES } from './node-payload.ts';
import { decodeUpdate, type EntryUpdate, type Update } from './registry-update.ts';
import type { Entry } from './replica-entry.ts';
import { decodeRecord, payloadHash, type SignedRecord, verifyRecord } from './signed-record.ts';
import { decodeTicket, type Ticket, verifyTicket } from './ticket.ts';

/**
 * Two signed records of one session with the same state and version, but with different payloads. They prove that its
 * owner lies.
 */
interface Conflict {
  session: string;
  records: [Uint8Array, Uint8Array];
}

export type MergeResult =
  /** `sessions`: the sessions with an entry that changed or was removed. */
  | { outcome: 'merged'; issuer: string; sessions: string[]; conflict?: Conflict }
  /** This replica already has exactly this state. */
  | { outcome: 'known'; issuer: string; sessions: string[] }
  /** This replica has a newer state. */
  | { outcome: 'older'; issuer: string; sessions: string[]; conflict?: Conflict }
  /**
   * The session is dropped permanently, because a watermark of its key has passed it, or its key is revoked. The owner
   * needs a new session, and the sender of the update lacks this replica's watermark or revocation.
   */
  | { outcome: 'collected'; issuer: string; session: string }
  /** The update can be merged only with the missing part, so the receiver must request that part. */
  | { outcome: 'deferred'; session: string; lacks: 'ticket' | 'payload' }
  | { outcome: 'rejected'; code: LatticeErrorCode; message: string };

interface MergerOptions {
  crypto: Crypto;
  shelves: IssuerStores;
  /** Maximum number of sessions per issuer, including those that have left. */
  entriesPerIssuer: number;
  /** Maximum number of sessions per issuer that have not left. */
  livePerIssuer: number;
  /** Maximum number of gateway keys per issuer with a watermark, and of revoked keys. */
  keysPerIssuer: number;
}

interface ReadEntry {
  session: string;
  record: SignedRecord | undefined;
  eviction: Eviction | undefined;
  /** The unverified ticket of a session that is not known yet. */
  ticket?: Ticket;
  known: Entry | undefined;
  store: IssuerStore;
}

export class Merger {
  readonly #crypto: Crypto;
  readonly #stores: IssuerStores;
  readonly #entriesMax: number;
  readonly #liveMax: number;
  readonly #keysMax: number;
  readonly #certificates: CertificateCache = new Map();

  constructor(options: MergerOptions) {
    this.#crypto = options.crypto;
    this.#stores = options.shelves;
    this.#entriesMax = options.entriesPerIssuer;
    this.#liveMax = options.livePerIssuer;
    this.#keysMax = options.keysPerIssuer;
  }

  /**
   * Never throws: errors are in the result.
   * @param trusted true if this replica verified and stored the update before, so that its signatures need not be
   * checked again
   */
  merge(given: Update | Uint8Array, trusted: boolean): MergeResult {
    try {
      const update = given instanceof Uint8Array ? decodeUpdate(given) : given;
      switch (update.kind) {
        case 'entry':
          return this.#mergeEntry(update, trusted);
        case 'floor':
          return this.#mergeGcWatermark(decodeGcWatermark(copyBytes(update.floor)), trusted);
        case 'revocation':
          return this.#mergeRevocation(decodeRevocation(copyBytes(update.revocation)), trusted);
      }
    } catch (error) {
      if (error instanceof LatticeError) return { outcome: 'rejected', code: error.code, message: error.message };
      throw error;
    }
  }

  #mergeEntry(update: EntryUpdate, trusted: boolean): MergeResult {
    const read = this.#read(update);
    if ('outcome' in read) return read;
    const { session, known, store } = read;
    const { issuer } = store;
    const order = read.record === undefined ? 0 : compareRecords(read.record, known?.record);
    const evicts = read.eviction === undefined ? 0 : compareEvictions(read.eviction, known?.eviction);
    // A record with the same state and version but another payload proves that its owner lies, so its signature is
    // checked even if it is not better.
    const conflict = contradiction(read.record, known?.record);
    if (order <= 0 && evicts <= 0 && conflict === undefined)
      return { outcome: order < 0 || evicts < 0 ? 'older' : 'known', issuer, sessions: [session] };
    const record = order > 0 ? read.record : known?.record;
    const eviction = evicts > 0 ? read.eviction : known?.eviction;
    const payload = this.#payloadFor(record, eviction !== undefined, update.payload, known);
    if (payload === 'lacking') return { outcome: 'deferred', session, lacks: 'payload' };
    if (known === undefined) this.#requireRoom(store, eviction === undefined && record?.state !== 'LEFT');
    const ticket = this.#opened(read, trusted);
    if (!trusted) this.#verify(read, ticket, order > 0 || conflict !== undefined, evicts > 0);
    if (order <= 0 && evicts <= 0) return { outcome: 'older', issuer, sessions: [session], ...conflict };
    store.put({ ticket, record: copied(record, known?.record), payload: payload && copyBytes(payload), eviction });
    return { outcome: 'merged', issuer, sessions: [session], ...conflict };
  }

  /** @throws LatticeError `full` */
  #requireRoom(store: IssuerStore, live: boolean): void {
    if (store.entries.size >= this.#entriesMax)
      throw new LatticeError('full', `there are already ${this.#entriesMax} sessions of this issuer`);
    if (live && store.live >= this.#liveMax)
      throw new LatticeError('full', `there are already ${this.#liveMax} sessions of this issuer that have not left`);
  }

  /** Decodes an update and finds its store and known entry. Checks no signature. */
  #read(update: EntryUpdate): ReadEntry | MergeResult {
    const record = update.record === undefined ? undefined : decodeRecord(update.record, this.#crypto);
    const eviction =
      update.eviction === undefined ? undefined : decodeEviction(copyBytes(update.eviction), this.#crypto);
    const session = record?.session ?? eviction?.session;
    if (session === undefined) throw new LatticeError('incomplete', 'the update has neither a record nor an eviction');
    if (eviction !== undefined && eviction.session !== session)
      throw new LatticeError('mismatch', 'the parts belong to different sessions');
    const known = this.#stores.entry(session);
    const store = known === undefined ? undefined : this.#stores.get(known.issuer);
    if (known !== undefined && store !== undefined) return { session, record, eviction, known, store };
    return this.#readNew(session, update.ticket, { record, eviction });
  }

  /** Reads an update of a session that is not known yet. It must bring the session's ticket. */
  #readNew(session: string, bytes: Uint8Array | undefined, signed: Pick<ReadEntry, 'record' | 'eviction'>) {
    if (bytes === undefined) return { outcome: 'deferred', session, lacks: 'ticket' } as const;
    const ticket = decodeTicket(copyBytes(bytes), this.#crypto);
    if (ticket.session !== session) throw new LatticeError('mismatch', 'the ticket belongs to another session');
    const store = this.#stores.of(ticket.issuer, ticket.certificate.root);
    if (store.excludes(ticket)) return { outcome: 'collected', issuer: store.issuer, session } as const;
    return { session, ...signed, ticket, known: undefined, store };
  }

  /** The payload bytes that belong to `record`; undefined if they are no longer needed. */
  #payloadFor(
    record: SignedRecord | undefined,
    evicted: boolean,
    given: Uint8Array | undefined,
    known: Entry | undefined,
  ): Uint8Array | undefined | 'lacking' {
    if (given !== undefined && given.length > PAYLOAD_MAX_BYTES)
      throw new LatticeError('too_large', `payload of ${given.length} bytes`);
    if (record === undefined || evicted || record.state === 'LEFT') return undefined;
    if (known?.payloadBytes !== undefined && known.record?.payloadHash === record.payloadHash)
      return known.payloadBytes;
    if (given === undefined) return 'lacking';
    if (payloadHash(given, this.#crypto) !== record.payloadHash)
      throw new LatticeError('mismatch', 'the payload differs from the signed one');
    return given;
  }

  /**
   * Verifies the ticket unless it is trusted. Many tickets share one certificate, so the cache verifies and stores the
   * certificate only once.
   */
  #opened({ ticket, known }: ReadEntry, trusted: boolean): Ticket {
    if (ticket === undefined) {
      if (known === undefined) throw new LatticeError('incomplete', 'the ticket is missing');
      return known.ticket;
    }
    if (!trusted) return verifyTicket(ticket, this.#crypto, this.#certificates);
    return { ...ticket, certificate: openCertificate(ticket.certificate.bytes, this.#crypto, this.#certificates) };
  }

  #verify({ record, eviction }: ReadEntry, ticket: Ticket, says: boolean, evicts: boolean): void {
    if (says && record !== undefined) verifyRecord(record, ticket.sessionKey, this.#crypto);
    if (evicts && eviction !== undefined) verifyEviction(eviction, ticket.certificate.key, this.#crypto);
  }

  #mergeGcWatermark(watermark: GcWatermark, trusted: boolean): MergeResult {
    const store = this.#stores.ofRoot(watermark.certificate.root);
    const { issuer, watermarks } = store;
    const known = watermarks.get(watermark.certificate.keyName);
    if (known !== undefined && known.at >= watermark.at)
      return { outcome: known.at === watermark.at ? 'known' : 'older', issuer, sessions: [] };
    if (known === undefined && watermarks.size >= this.#keysMax) throw new LatticeError('full', 'too many watermarks');
    const opened = trusted ? watermark : openGcWatermark(watermark.bytes, this.#crypto, this.#certificates);
    return { outcome: 'merged', issuer, sessions: store.raiseGcWatermark(opened) };
  }

  #mergeRevocation(revocation: Revocation, trusted: boolean): MergeResult {
    const store = this.#stores.ofRoot(revocation.root);
    const { issuer, revocations } = store;
    if (revocations.has(revocation.keyName)) return { outcome: 'known', issuer, sessions: [] };
    // If the root revokes its own key, the revocation is accepted even at the maximum.
    if (revocations.size >= this.#keysMax && revocation.keyName !== store.rootName)
      throw new LatticeError('full', 'too many revocations');
    const opened = trusted ? revocation : openRevocation(revocation.bytes, this.#crypto);
    return { outcome: 'merged', issuer, sessions: store.revoke(opened) };
  }
}

function contradiction(
  record: SignedRecord | undefined,
  known: SignedRecord | undefined,
): { conflict: Conflict } | undefined {
  if (record === undefined || known === undefined || record.payloadHash === known.payloadHash) return undefined;
  if (record.state !== known.state || record.version !== known.version) return undefined;
  return { conflict: { session: record.session, records: [known.bytes, copyBytes(record.bytes)] } };
}

/** Bytes of a message are copied before they are stored. A view would keep the whole message in memory. */
function copied(record: SignedRecord | undefined, known: SignedRecord | undefined): SignedRecord | undefined {
  return record === undefined || record === known ? record : { ...record, bytes: copyBytes(record.bytes) };
}
