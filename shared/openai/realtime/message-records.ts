/**
 * WebSocket messages as a byte stream. A realtime session is one attempt at a node: the client's messages are the
 * request's body, and the engine's messages are the response's body. Each message is one record: its kind (1 byte), its
 * length (4 bytes, big-endian), its bytes.
 */
import { concat } from '../../collections/concat.ts';
import { decodeUtf8 } from '../byte-search.ts';

/** Content type of a response that consists of message records. */
export const MESSAGE_RECORDS_TYPE = 'application/x-otela-messages';

/** Maximum bytes of one message in either direction: 16 s of 24 kHz audio as base64. */
export const REALTIME_MESSAGE_MAX_BYTES = 1024 * 1024;

/** Maximum bytes of a close reason (RFC 6455 §5.5: 125 bytes with the code). */
const REASON_MAX_BYTES = 123;

const HEAD_BYTES = 5;
/** Kinds by their number in a record. `opened`: the engine accepted the session; its record has no bytes. */
const KINDS = ['opened', 'text', 'binary', 'close'] as const;
type MessageKind = (typeof KINDS)[number];

export interface MessageRecord {
  readonly kind: MessageKind;
  readonly bytes: Uint8Array;
}

export function encodeRecord(kind: MessageKind, bytes: Uint8Array = new Uint8Array()): Uint8Array {
  const record = new Uint8Array(HEAD_BYTES + bytes.length);
  record[0] = KINDS.indexOf(kind);
  new DataView(record.buffer).setUint32(1, bytes.length);
  record.set(bytes, HEAD_BYTES);
  return record;
}

export function encodeClose(code: number, reason = ''): Uint8Array {
  return encodeRecord('close', closeRecord(code, reason).bytes);
}

/** A code without meaning for the other end, such as 1006, becomes 1000. */
export function closeRecord(code: number, reason = ''): MessageRecord {
  const text = new TextEncoder().encode(reason).subarray(0, REASON_MAX_BYTES);
  const bytes = new Uint8Array(2 + text.length);
  new DataView(bytes.buffer).setUint16(0, maySendClose(code) ? code : 1000);
  bytes.set(text, 2);
  return { kind: 'close', bytes };
}

export function decodeClose({ bytes }: MessageRecord): { code: number; reason: string } {
  if (bytes.length < 2) return { code: 1000, reason: '' };
  const code = new DataView(bytes.buffer, bytes.byteOffset).getUint16(0);
  // A reason that was cut inside a character ends with U+FFFD, which may be longer than the bytes that it replaces.
  const reason = decodeUtf8(bytes.subarray(2, 2 + REASON_MAX_BYTES)).replace(/\ufffd+$/, '');
  return { code: maySendClose(code) ? code : 1000, reason };
}

/** Codes that an endpoint may send (RFC 6455 §7.4). */
function maySendClose(code: number): boolean {
  return (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999);
}

/** Splits a byte stream into records. Holds at most one record, so at most REALTIME_MESSAGE_MAX_BYTES. */
export class RecordReader {
  #held: Uint8Array[] = [];
  #heldBytes = 0;

  /** Returns the records that are complete now. @throws RangeError if the bytes are not valid records */
  push(chunk: Uint8Array): MessageRecord[] {
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    const records: MessageRecord[] = [];
    for (let needed = this.#needed(); needed !== undefined && this.#heldBytes >= needed; needed = this.#needed()) {
      const all = this.#joined();
      records.push({ kind: KINDS[all[0] ?? 0] ?? 'opened', bytes: all.slice(HEAD_BYTES, needed) });
      this.#held = [all.subarray(needed)];
      this.#heldBytes -= needed;
    }
    return records;
  }

  /** True inside a record: the stream must not end here. */
  get isPartial(): boolean {
    return this.#heldBytes > 0;
  }

  /** Bytes of the next record; undefined if its head has not arrived. */
  #needed(): number | undefined {
    if (this.#heldBytes < HEAD_BYTES) return undefined;
    if ((this.#held[0]?.length ?? 0) < HEAD_BYTES) this.#held = [this.#joined()];
    const [first = new Uint8Array()] = this.#held;
    const length = new DataView(first.buffer, first.byteOffset).getUint32(1);
    if ((first[0] ?? 0) >= KINDS.length || length > REALTIME_MESSAGE_MAX_BYTES)
      throw new RangeError('the bytes are not a record of a message');
    return HEAD_BYTES + length;
  }

  #joined(): Uint8Array {
    return this.#held.length === 1 ? (this.#held[0] ?? new Uint8Array()) : concat(this.#held);
  }
}
