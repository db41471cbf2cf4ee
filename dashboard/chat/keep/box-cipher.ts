/**
 * Encrypts conversations before they leave the browser. The key comes from a passphrase (PBKDF2) and cannot be read out
 * of the browser again. The id of a conversation is authenticated with it, so that a gateway cannot exchange two.
 */

/** OWASP's number for PBKDF2 with HMAC-SHA256. */
const ITERATIONS = 600_000;
const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const VERSION = 1;
/** Maximum bytes of a conversation in clear. A larger one is not opened: it would fill the memory. */
const PLAIN_MAX_BYTES = 64 * 1024 * 1024;
/** The id of the text that only the right key opens. No conversation has it. */
const CHECK_ID = 'check';

export interface KeyCheck {
  /** Base64. */
  salt: string;
  check: string;
}

/** Thrown for a wrong passphrase, and for bytes that another key encrypted or that were changed. */
export class WrongKeyError extends Error {}

/** Derives a key with a new salt. */
export async function newKey(passphrase: string): Promise<KeyCheck & { key: CryptoKey }> {
  const salt = crypto.getRandomValues(new Uint8Array(SALT_BYTES));
  const key = await derive(passphrase, salt);
  return { key, salt: toBase64(salt), check: toBase64(await seal(key, CHECK_ID, CHECK_ID)) };
}

/** @throws WrongKeyError */
export async function openKey(passphrase: string, { salt, check }: KeyCheck): Promise<CryptoKey> {
  const key = await derive(passphrase, fromBase64(salt));
  await open(key, CHECK_ID, fromBase64(check));
  return key;
}

export async function seal(key: CryptoKey, id: string, text: string): Promise<Uint8Array<ArrayBuffer>> {
  const plain = await bytesOf(new Blob([text]).stream().pipeThrough(new CompressionStream('gzip')), PLAIN_MAX_BYTES);
  const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
  const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv, additionalData: encoded(id) }, key, plain);
  const box = new Uint8Array(1 + NONCE_BYTES + sealed.byteLength);
  box[0] = VERSION;
  box.set(iv, 1);
  box.set(new Uint8Array(sealed), 1 + NONCE_BYTES);
  return box;
}

/** @throws WrongKeyError */
export async function open(key: CryptoKey, id: string, box: Uint8Array<ArrayBuffer>): Promise<string> {
  if (box[0] !== VERSION) throw new WrongKeyError('the box has another version');
  const iv = box.slice(1, 1 + NONCE_BYTES);
  const plain = await crypto.subtle
    .decrypt({ name: 'AES-GCM', iv, additionalData: encoded(id) }, key, box.slice(1 + NONCE_BYTES))
    .catch((cause: unknown) => {
      throw new WrongKeyError('the box was sealed with another key', { cause });
    });
  const text = new Blob([plain]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new TextDecoder().decode(await bytesOf(text, PLAIN_MAX_BYTES));
}

async function derive(passphrase: string, salt: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  // The same passphrase typed on another keyboard may be composed of other characters.
  const raw = encoded(passphrase.normalize('NFKC'));
  const material = await crypto.subtle.importKey('raw', raw, 'PBKDF2', false, ['deriveKey']);
  const how = { name: 'PBKDF2', hash: 'SHA-256', salt, iterations: ITERATIONS };
  return crypto.subtle.deriveKey(how, material, { name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
}

/** @throws RangeError above `max` */
async function bytesOf(stream: ReadableStream<Uint8Array>, max: number): Promise<Uint8Array<ArrayBuffer>> {
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    length += next.value.length;
    if (length > max) {
      await reader.cancel();
      throw new RangeError(`the conversation has more than ${max} bytes`);
    }
    chunks.push(next.value);
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

const encoded = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const toBase64 = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes));
const fromBase64 = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
