/** RFC 4648 §5 without padding, for keys, certificates and tickets in headers, JSON and environments. */
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const VALUES = new Map([...ALPHABET].map((char, value) => [char, value]));

export function toBase64url(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; i += 3) {
    const left = bytes.length - i;
    const group = ((bytes[i] ?? 0) << 16) | ((bytes[i + 1] ?? 0) << 8) | (bytes[i + 2] ?? 0);
    for (let char = 0; char <= Math.min(left, 3); char++) text += ALPHABET[(group >> (18 - 6 * char)) & 63];
  }
  return text;
}

/** Decodes `text`. Undefined if it is not canonical base64url, or encodes more than `maxBytes`. */
export function fromBase64url(text: string, maxBytes: number): Uint8Array | undefined {
  const length = Math.floor((text.length * 3) / 4);
  if (length > maxBytes || text.length % 4 === 1) return undefined;
  const bytes = new Uint8Array(length);
  let value = 0;
  let bits = 0;
  let at = 0;
  for (const char of text) {
    const digit = VALUES.get(char);
    if (digit === undefined) return undefined;
    value = ((value << 6) | digit) & 0xffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[at++] = (value >> bits) & 0xff;
  }
  // If bits after the last byte were set, the same bytes would have a second encoding.
  return (value & ((1 << bits) - 1)) === 0 ? bytes : undefined;
}
