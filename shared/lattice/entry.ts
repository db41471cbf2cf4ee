import { hex, latin1 } from './bytes.ts';
import type { Crypto } from './crypto.ts';
import { type DigestItem, ITEM_ID_BYTES } from './digest.ts';
import { decodeEviction, type Eviction } from './eviction.ts';
import { type Lifecycle, lifecycleRank } from './node.ts';
import { decodePayload, type NodePayload } from './payload.ts';
import { decodeRecord, type OwnerRecord } from './record.ts';
import { packSession } from './session.ts';
import { decodeTicket, type Ticket } from './ticket.ts';
import { decodeUpdate, type EntryUpdate, encodeUpdate } from './update.ts';

export interface EntryParts {
  ticket: Ticket;
  /** Or an eviction, or both. */
  record?: OwnerRecord | undefined;
  /** None with LEFT: no reader needs it any more. */
  payload?: Uint8Array | undefined;
  eviction?: Eviction | undefined;
}

type Hash = Pick<Crypto, 'sha256'>;

/** What a replica holds of one session. Never changes: a merge puts a new one in its place, so identity tells whether it did. */
export class Entry {
  readonly session: string;
  readonly issuer: string;
  /** Whose key admitted it, and when its ticket ends (seconds): all that floors and revocations ask for. */
  readonly keyName: string;
  readonly expires: number;
  /** Of the two words, the owner's and the issuer's, the later one. */
  readonly state: Lifecycle;
  /** The owner's; 0 where only the issuer has spoken. */
  readonly version: number;
  /** What digests say of it. */
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

  get record(): OwnerRecord | undefined {
    if (typeof this.#parts !== 'string') return this.#parts.record;
    const { record } = this.#unpacked();
    return record === undefined ? undefined : decodeRecord(record, this.#crypto);
  }

  get eviction(): Eviction | undefined {
    if (typeof this.#parts !== 'string') return this.#parts.eviction;
    const { eviction } = this.#unpacked();
    return eviction === undefined ? undefined : decodeEviction(eviction, this.#crypto);
  }

  /** Of the record; none with LEFT. */
  get payloadBytes(): Uint8Array | undefined {
    return typeof this.#parts === 'string' ? undefined : this.#parts.payload;
  }

  /** Read when first asked for. Undefined when LEFT, or where this replica cannot read it: then it is no node to route to. */
  get payload(): NodePayload | undefined {
    if (this.#payload === null)
      this.#payload = this.payloadBytes === undefined ? undefined : decodePayload(this.payloadBytes);
    return this.#payload;
  }

  /** Without `full` for a receiver that has the ticket. */
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

/** How digests name a session: hex of the first 128 of its 130 bits. */
export function sessionItemId(session: string): string {
  return hex(packSession(session).subarray(0, ITEM_ID_BYTES));
}

function itemOf({ ticket, record, eviction }: EntryParts): DigestItem {
  return {
    id: sessionItemId(ticket.session),
    state: record === undefined ? 0 : lifecycleRank(record.state) + 1,
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
 * Tombstones are the many and hardly ever looked at: as one string of bytes each they take a third of the memory that their parts
 * would, for every array of bytes costs some 300 B beside its content.
 */
function packed(parts: EntryParts): string {
  return latin1(encodeUpdate(plain(parts, true)));
}
