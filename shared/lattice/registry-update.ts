/**
 * One update to merge, as it is sent. The update of an entry may omit a ticket or payload that the receiver already
 * has.
 */
import { ByteReader, ByteWriter } from './byte-codec.ts';
import { EVICTION_MAX_BYTES } from './eviction.ts';
import { GC_WATERMARK_BYTES, REVOCATION_BYTES } from './gateway-key-statements.ts';
import { LatticeError } from './lattice-error.ts';
import { PAYLOAD_MAX_BYTES } from './node-payload.ts';
import { REGISTRY_RECORD_MAX_BYTES } from './signed-record.ts';
import { TICKET_MAX_BYTES } from './ticket.ts';

/** The signed parts of an entry as bytes; `RegistryReplica.merge` decodes them. */
export interface EntryUpdate {
  kind: 'entry';
  ticket?: Uint8Array;
  record?: Uint8Array;
  payload?: Uint8Array;
  eviction?: Uint8Array;
}

/** `floor` is the name of a watermark on the wire. */
export type Update =
  | EntryUpdate
  | { kind: 'floor'; floor: Uint8Array }
  | { kind: 'revocation'; revocation: Uint8Array };

const KIND = { entry: 1, floor: 2, revocation: 3 } as const;
const TICKET = 1;
const RECORD = 2;
const PAYLOAD = 4;
const EVICTION = 8;

export const UPDATE_MAX_BYTES =
  16 + TICKET_MAX_BYTES + REGISTRY_RECORD_MAX_BYTES + PAYLOAD_MAX_BYTES + EVICTION_MAX_BYTES;

export function encodeUpdate(update: Update): Uint8Array {
  const out = new ByteWriter().byte(KIND[update.kind]);
  switch (update.kind) {
    case 'floor':
      return out.bytes(update.floor).done();
    case 'revocation':
      return out.bytes(update.revocation).done();
    case 'entry': {
      const { ticket, record, payload, eviction } = update;
      const parts = [ticket, record, payload, eviction];
      out.byte(parts.reduce((flags, part, bit) => flags | (part === undefined ? 0 : 1 << bit), 0));
      for (const part of parts) if (part !== undefined) out.blob(part);
      return out.done();
    }
  }
}

/** The parts of the result are views into `bytes`. @throws LatticeError truncated, malformed, too_large */
export function decodeUpdate(bytes: Uint8Array): Update {
  if (bytes.length > UPDATE_MAX_BYTES) throw new LatticeError('too_large', `update of ${bytes.length} bytes`);
  const input = new ByteReader(bytes);
  const kind = input.byte();
  const update = readUpdate(input, kind);
  input.end();
  return update;
}

function readUpdate(input: ByteReader, kind: number): Update {
  if (kind === KIND.floor) return { kind: 'floor', floor: input.bytes(GC_WATERMARK_BYTES) };
  if (kind === KIND.revocation) return { kind: 'revocation', revocation: input.bytes(REVOCATION_BYTES) };
  if (kind !== KIND.entry) throw new LatticeError('malformed', `unknown kind of update: ${kind}`);
  const flags = input.byte();
  if (flags > (TICKET | RECORD | PAYLOAD | EVICTION)) throw new LatticeError('malformed', 'unknown parts');
  const update: EntryUpdate = { kind: 'entry' };
  if ((flags & TICKET) !== 0) update.ticket = input.blob(TICKET_MAX_BYTES);
  if ((flags & RECORD) !== 0) update.record = input.blob(REGISTRY_RECORD_MAX_BYTES);
  if ((flags & PAYLOAD) !== 0) update.payload = input.blob(PAYLOAD_MAX_BYTES);
  if ((flags & EVICTION) !== 0) update.eviction = input.blob(EVICTION_MAX_BYTES);
  return update;
}
