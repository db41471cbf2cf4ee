/**
 * Variable-length integers as in QUIC (RFC 9000 §16): one, two, four or eight bytes, indicated by the first two bits.
 */
import { SealError } from './seal-error.ts';

export const VARINT_MAX_BYTES = 8;

/** Length of the shortest encoding of `value`, in bytes. */
export function varintBytes(value: number): number {
  if (value < 0x40) return 1;
  if (value < 0x4000) return 2;
  return value < 0x4000_0000 ? 4 : VARINT_MAX_BYTES;
}

export function varint(value: number): Uint8Array {
  if (!Number.isSafeInteger(value) || value < 0) throw new SealError('malformed', `${value} is not a length`);
  const bytes = new Uint8Array(varintBytes(value));
  writeVarint(bytes, 0, value);
  return bytes;
}

/** @param value a safe integer, at least 0. @returns the number of bytes written */
export function writeVarint(into: Uint8Array, at: number, value: number): number {
  const bytes = varintBytes(value);
  let rest = value;
  for (let pos = at + bytes - 1; pos >= at; pos--) {
    into[pos] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  into[at] = (into[at] ?? 0) | (Math.log2(bytes) << 6);
  return bytes;
}

/**
 * Reads the number at `at`, and where its encoding ends; undefined if bytes are missing.
 * @throws SealError above 2^53
 */
export function readVarint(bytes: Uint8Array, at: number): { value: number; end: number } | undefined {
  const first = bytes[at];
  if (first === undefined) return undefined;
  const end = at + 2 ** (first >>> 6);
  if (end > bytes.length) return undefined;
  let value = first & 0x3f;
  for (let pos = at + 1; pos < end; pos++) value = value * 256 + (bytes[pos] ?? 0);
  if (!Number.isSafeInteger(value)) throw new SealError('malformed', 'a length above 2^53');
  return { value, end };
}
