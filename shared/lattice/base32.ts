import { latin1 } from './byte-codec.ts';

/** RFC 4648 §6 in lower case without padding, which is valid in host names, URLs and file names. */
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';

/** Encodes the first `chars` × 5 bits of `bytes`. If `bytes` has fewer bits, the missing ones are zero. */
export function base32(bytes: Uint8Array, chars: number = Math.ceil((bytes.length * 8) / 5)): string {
  const codes = new Uint8Array(chars);
  let value = 0;
  let bits = 0;
  let at = 0;
  for (let char = 0; char < chars; char++) {
    if (bits < 5) {
      value = ((value << 8) | (bytes[at++] ?? 0)) & 0xffff;
      bits += 8;
    }
    bits -= 5;
    codes[char] = ALPHABET.charCodeAt((value >> bits) & 31);
  }
  return latin1(codes);
}

/** Decodes into ⌈chars × 5 / 8⌉ bytes; unused bits are zero. Undefined if a character is not in the alphabet. */
export function fromBase32(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(Math.ceil((text.length * 5) / 8));
  let value = 0;
  let bits = 0;
  let at = 0;
  for (const char of text) {
    const digit = ALPHABET.indexOf(char);
    if (digit < 0) return undefined;
    value = ((value << 5) | digit) & 0xffff;
    bits += 5;
    if (bits >= 8) {
      bytes[at++] = (value >> (bits - 8)) & 0xff;
      bits -= 8;
    }
  }
  if (bits > 0) bytes[at] = (value << (8 - bits)) & 0xff;
  return bytes;
}
