/** Byte helpers that use no runtime-specific API, so that browsers, workerd and Node run the same code. */
import { SealError } from './seal-error.ts';

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function encodeAscii(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encoder.encode(text));
}

export function utf8Bytes(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encoder.encode(text));
}

/** @throws SealError malformed */
export function utf8Text(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    throw new SealError('malformed', 'the text is not UTF-8', { cause });
  }
}

export function concatBytes(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function u16(value: number): Uint8Array {
  return new Uint8Array([value >>> 8, value]);
}

export function u32(value: number): Uint8Array {
  return new Uint8Array([value >>> 24, value >>> 16, value >>> 8, value]);
}

export function readU32(bytes: Uint8Array, at: number): number {
  if (at + 4 > bytes.length) throw new SealError('malformed', 'the data ends inside a number');
  return new DataView(bytes.buffer, bytes.byteOffset + at, 4).getUint32(0);
}

/** The field with its length in two bytes before it, so that different lists of fields never have the same encoding. */
export function lengthPrefixed(bytes: Uint8Array): Uint8Array {
  if (bytes.length > 0xffff) throw new SealError('too_large', `a field of ${bytes.length} bytes`);
  return concatBytes(u16(bytes.length), bytes);
}
