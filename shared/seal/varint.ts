/** Lengths as QUIC writes them (RFC 9000 §16): one, two, four or eight bytes, told by the first two bits. */
import { SealError } from './error.ts';

export const VARINT_MAX_BYTES = 8;

/** Of the shortest form. */
export function varintBytes(value: number): number {
  if (value < 0x40) return 1;
  if (value < 0x4000) return 2;
  return value < 0x4000_0000 ? 4 : VARINT_MAX_BYTES;
}

export function varint(value: number): Uint8Array {
  if (!Number.isSafeInteger(value) || value < 0) throw new SealError('malformed', `${value} is no length`);
  const bytes = varintBytes(value);
  if (bytes === 1) return new Uint8Array([value]);
  if (bytes === 2) return new Uint8Array([0x40 | (value >>> 8), value]);
  if (bytes === 4) return new Uint8Array([0x80 | (value >>> 24), value >>> 16, value >>> 8, value]);
  const high = Math.floor(value / 2 ** 32);
  return new Uint8Array([
    0xc0 | (high >>> 24),
    high >>> 16,
    high >>> 8,
    high,
    value >>> 24,
    value >>> 16,
    value >>> 8,
    value,
  ]);
}

/** The number at `at` and where it ends; undefined where more bytes are needed. @throws SealError above 2^53 */
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
