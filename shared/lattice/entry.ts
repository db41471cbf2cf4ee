import { hex } from './bytes.ts';
import type { Crypto } from './crypto.ts';
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
  record?: OwnerRecord | undefined;
  payload?: Uint8Array | undefined;
  evictions: readonly Eviction[];
}

/** What a replica holds of one session. Never changes: a merge puts a new one in its place, so identity tells whether it did. */
export class Entry {
  readonly session: string;
  readonly issuer: string;
  readonly ticket: Ticket;
  readonly record: OwnerRecord | undefined;
  /** Of the record; gone with LEFT. */
  readonly payloadBytes: Uint8Array | undefined;
  /** At most one by each of the issuer's keys, in the order of their names. */
  readonly evictions: readonly Eviction[];
  /** Of the two words, the owner's and the issuer's, the later one. */
  readonly state: Lifecycle;
  /** The owner's; 0 where only the issuer has spoken. */
  readonly version: number;
  #payload: NodePayload | undefined | null = null;
  #item: DigestItem | undefined;

  constructor(parts: EntryParts) {
    this.ticket = parts.ticket;
    this.session = parts.ticket.session;
    this.issuer = parts.ticket.issuer;
    this.record = parts.record;
    this.evictions = parts.evictions;
    this.state = parts.evictions.length > 0 ? 'LEFT' : (parts.record?.state ?? 'LEFT');
    this.version = parts.record?.version ?? 0;
    this.payloadBytes = this.state === 'LEFT' ? undefined : parts.payload;
  }

  /** Read when first asked for. Undefined when LEFT, or where this replica cannot read it: then it is no node to route to. */
  get payload(): NodePayload | undefined {
    if (this.#payload === null)
      this.#payload = this.payloadBytes === undefined ? undefined : decodePayload(this.payloadBytes);
    return this.#payload;
  }

  /** An eviction that was taken back leaves a record whose payload is gone: it is asked for again as if it were unknown. */
  get complete(): boolean {
    return this.record !== undefined && (this.state === 'LEFT' || this.payloadBytes !== undefined);
  }

  /** Without `full` for a receiver that has the ticket. */
  update(full: boolean): EntryUpdate {
    const update: EntryUpdate = { kind: 'entry' };
    if (full) update.ticket = this.ticket.bytes;
    if (this.complete && this.record !== undefined) update.record = this.record.bytes;
    if (this.complete && this.payloadBytes !== undefined) update.payload = this.payloadBytes;
    if (this.evictions.length > 0) update.evictions = this.evictions.map((eviction) => eviction.bytes);
    return update;
  }

  item(crypto: Pick<Crypto, 'sha256'>): DigestItem {
    this.#item ??= {
      id: sessionItemId(this.session),
      state: this.complete && this.record !== undefined ? lifecycleRank(this.record.state) + 1 : 0,
      version: this.complete ? this.version : 0,
      tie: this.complete && this.record !== undefined ? this.record.hash.slice(0, 16) : '',
      mark: mark(this.evictions, crypto),
    };
    return this.#item;
  }
}

/** How digests name a session: hex of the first 64 of its 130 bits. */
export function sessionItemId(session: string): string {
  return hex(packSession(session).subarray(0, 8));
}

const encoder = new TextEncoder();

function mark(evictions: readonly Eviction[], crypto: Pick<Crypto, 'sha256'>): string {
  if (evictions.length === 0) return '';
  return hex(crypto.sha256(encoder.encode(evictions.map((eviction) => eviction.hash).join('\n')))).slice(0, 16);
}
