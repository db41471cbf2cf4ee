import { hex } from './bytes.ts';
import type { DigestItem } from './digest.ts';
import type { Eviction } from './eviction.ts';
import { type Lifecycle, lifecycleRank } from './node.ts';
import { decodePayload, type NodePayload } from './payload.ts';
import type { OwnerRecord } from './record.ts';
import { packSession } from './session.ts';
import type { Ticket } from './ticket.ts';
import type { EntryUpdate } from './update.ts';

export interface EntryParts {
  ticket: Ticket;
  /** Or an eviction, or both. */
  record?: OwnerRecord | undefined;
  /** None with LEFT: nobody needs it any more. */
  payload?: Uint8Array | undefined;
  eviction?: Eviction | undefined;
}

/** What a replica holds of one session. Never changes: a merge puts a new one in its place, so identity tells whether it did. */
export class Entry {
  readonly session: string;
  readonly issuer: string;
  readonly ticket: Ticket;
  readonly record: OwnerRecord | undefined;
  /** Of the record; gone with LEFT. */
  readonly payloadBytes: Uint8Array | undefined;
  readonly eviction: Eviction | undefined;
  /** Of the two words, the owner's and the issuer's, the later one. */
  readonly state: Lifecycle;
  /** The owner's; 0 where only the issuer has spoken. */
  readonly version: number;
  #payload: NodePayload | undefined | null = null;
  #item: DigestItem | undefined;

  constructor(parts: EntryParts) {
    const { ticket, record, eviction } = parts;
    this.ticket = ticket;
    this.session = ticket.session;
    this.issuer = ticket.issuer;
    this.record = record;
    this.eviction = eviction;
    this.state = record === undefined || eviction !== undefined ? 'LEFT' : record.state;
    this.version = record?.version ?? 0;
    this.payloadBytes = parts.payload;
  }

  /** The eviction, as a list. */
  get evictions(): readonly Eviction[] {
    return this.eviction === undefined ? [] : [this.eviction];
  }

  /** Read when first asked for. Undefined when LEFT, or where this replica cannot read it: then it is no node to route to. */
  get payload(): NodePayload | undefined {
    if (this.#payload === null)
      this.#payload = this.payloadBytes === undefined ? undefined : decodePayload(this.payloadBytes);
    return this.#payload;
  }

  /** Without `full` for a receiver that has the ticket. */
  update(full: boolean): EntryUpdate {
    const update: EntryUpdate = { kind: 'entry' };
    if (full) update.ticket = this.ticket.bytes;
    if (this.record !== undefined) update.record = this.record.bytes;
    if (this.payloadBytes !== undefined) update.payload = this.payloadBytes;
    if (this.eviction !== undefined) update.eviction = this.eviction.bytes;
    return update;
  }

  get item(): DigestItem {
    this.#item ??= {
      id: sessionItemId(this.session),
      state: this.record === undefined ? 0 : lifecycleRank(this.record.state) + 1,
      version: this.version,
      tie: this.record?.hash.slice(0, 16) ?? '',
      mark: this.eviction?.hash.slice(0, 16) ?? '',
    };
    return this.#item;
  }
}

/** How digests name a session: hex of the first 64 of its 130 bits. */
export function sessionItemId(session: string): string {
  return hex(packSession(session).subarray(0, 8));
}
