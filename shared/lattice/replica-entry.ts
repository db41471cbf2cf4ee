import { hex, latin1 } from './byte-codec.ts';
import type { Crypto } from './crypto-interface.ts';
import { decodeEviction, type Eviction } from './eviction.ts';
import { decodePayload, type NodePayload } from './node-payload.ts';
import { type SessionState, sessionStateRank } from './node-record.ts';
import { decodeUpdate, type EntryUpdate, encodeUpdate } from './registry-update.ts';
import { type DigestItem, ITEM_ID_BYTES } from './replica-digest.ts';
import { packSession } from './session-id.ts';
import { decodeRecord, type SignedRecord } from './signed-record.ts';
import { decodeTicket, type Ticket } from './ticket.ts';

export interface EntryParts {
  ticket: Ticket;
  /** The owner's record. An entry has a record, an eviction, or both. */
  record?: SignedRecord | undefined;
  /** Absent if the state is LEFT, because no reader needs it any more. */
  payload?: Uint8Array | undefined;
  eviction?: Eviction | undefined;
}

type Hash = Pick<Crypto, 'sha256'>;

/** The state of one session in a replica. Immutable: a merge replaces it, so a different object means a change. */
export class Entry {
  readonly session: string;
  readonly issuer: string;
  /**
   * Name of the key that admitted the session, and the end of its ticket in seconds since 1970. Watermarks and
   * revocations need only these two.
   */
  readonly keyName: string;
  readonly expires: number;
  /** The owner's state, or LEFT if the issuer evicted the session. */
  readonly state: SessionState;
  /** The version of the owner's record; 0 if there is none and the session was evicted. */
  readonly version: number;
  /** The item for this session in digests. */
  readonly item: DigestItem;
  readonly #parts: EntryParts | string;
  readonly #crypto: Hash;
  #payload: NodePayload | undefined | null = null;

  constructor(parts: EntryParts, crypto: Hash) {
    const { ticket, record, eviction } = parts;
    this.session = ticket.session;
    this.issuer = ticket.issuer;
    this.keyName = ticket.certificate.keyName;
    this.expires = ticket.expires;
    this.state = record === undefined || eviction !== undefined ? 'LEFT' : record.state;
    this.version = record?.version ?? 0;
    this.item = itemOf(parts);
    this.#crypto = crypto;
    this.#parts = this.state === 'LEFT' ? packed(parts) : parts;
  }

  get kind(): 'live' | 'left' {
    return this.state === 'LEFT' ? 'left' : 'live';
  }

  get ticket(): Ticket {
    if (typeof this.#parts !== 'string') return this.#parts.ticket;
    return decodeTicket(this.#unpacked().ticket ?? new Uint8Array(), this.#crypto);
  }

  get record(): SignedRecord | undefined {
    if (typeof this.#parts !== 'string') return this.#parts.record;
    const { record } = this.#unpacked();
    return record === undefined ? undefined : decodeRecord(record, this.#crypto);
  }

  get eviction(): Eviction | undefined {
    if (typeof this.#parts !== 'string') return this.#parts.eviction;
    const { eviction } = this.#unpacked();
    return eviction === undefined ? undefined : decodeEviction(eviction, this.#crypto);
  }

  /** The bytes of the record's payload; undefined if the state is LEFT. */
  get payloadBytes(): Uint8Array | undefined {
    return typeof this.#parts === 'string' ? undefined : this.#parts.payload;
  }

  /**
   * The payload, decoded on first use. Undefined if the state is LEFT, or if this replica cannot decode it; then the
   * node gets no requests.
   */
  get payload(): NodePayload | undefined {
    if (this.#payload === null)
      this.#payload = this.payloadBytes === undefined ? undefined : decodePayload(this.payloadBytes);
    return this.#payload;
  }

  /** @param full false for a receiver that has the ticket */
  update(full: boolean): EntryUpdate {
    if (typeof this.#parts === 'string') {
      const { ticket, ...rest } = this.#unpacked();
      return full && ticket !== undefined ? { ...rest, ticket } : rest;
    }
    return plain(this.#parts, full);
  }

  #unpacked(): EntryUpdate {
    if (typeof this.#parts !== 'string') return plain(this.#parts, true);
    const bytes = Uint8Array.from(this.#parts, (char) => char.charCodeAt(0));
    const update = decodeUpdate(bytes);
    return update.kind === 'entry' ? update : { kind: 'entry' };
  }
}

/** The id of a session in digests: the first 128 of its 130 bits in hex. */
export function sessionItemId(session: string): string {
  return hex(packSession(session).subarray(0, ITEM_ID_BYTES));
}

function itemOf({ ticket, record, eviction }: EntryParts): DigestItem {
  return {
    id: sessionItemId(ticket.session),
    state: record === undefined ? 0 : sessionStateRank(record.state) + 1,
    version: record?.version ?? 0,
    tie: record?.hash.slice(0, 16) ?? '',
    mark: eviction?.hash.slice(0, 16) ?? '',
  };
}

function plain({ ticket, record, payload, eviction }: EntryParts, full: boolean): EntryUpdate {
  const update: EntryUpdate = { kind: 'entry' };
  if (full) update.ticket = ticket.bytes;
  if (record !== undefined) update.record = record.bytes;
  if (payload !== undefined) update.payload = payload;
  if (eviction !== undefined) update.eviction = eviction.bytes;
  return update;
}

/**
 * Packs an entry into one string. Sessions that have left are many, and their entries are hardly ever read. A string
 * takes a third of the memory, because every byte array costs about 300 B in addition to its content.
 */
function packed(parts: EntryParts): string {
  return latin1(encodeUpdate(plain(parts, true)));
}
