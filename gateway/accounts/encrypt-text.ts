/**
 * Encrypts texts that the gateway gives to clients and agents and receives back later (AES-256-GCM). Only this
 * installation can read or create them.
 */
import { sha256Hex } from './secrets.ts';

/** Purpose of an encrypted text. A text can be decrypted only for the purpose for which it was encrypted. */
type Purpose =
  | 'secret'
  | 'receipt'
  | 'login'
  | 'login below a path'
  | 'login without TLS'
  | 'attestation'
  | 'key'
  | 'key without TLS'
  | 'device'
  | 'refresh token';

const NONCE_BYTES = 12;
const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

/** Returns the nonce and the encrypted text, both in base64, separated by a dot. */
export async function encryptText(secret: string, purpose: Purpose, text: string): Promise<string> {
  const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
  const sealed = await crypto.subtle.encrypt(
    { name: 'AES-GCM', iv },
    await keyOf(secret, purpose),
    encoder.encode(text),
  );
  return `${base64(iv)}.${base64(new Uint8Array(sealed))}`;
}

/** Returns the text; undefined if this installation did not encrypt it for this purpose. */
export async function decryptText(secret: string, purpose: Purpose, sealed: string): Promise<string | undefined> {
  const [nonce, text] = sealed.split('.');
  if (nonce === undefined || text === undefined) return undefined;
  try {
    const iv = bytes(nonce);
    return decoder.decode(
      await crypto.subtle.decrypt({ name: 'AES-GCM', iv }, await keyOf(secret, purpose), bytes(text)),
    );
  } catch {
    return undefined;
  }
}

type SealKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

const keys = new Map<string, Promise<SealKey>>();
/** Maximum cached keys: one installation has one secret and ten purposes. */
const KEYS_MAX = 10;

function keyOf(secret: string, purpose: Purpose): Promise<SealKey> {
  const name = sha256Hex(`otela-${purpose}-1\n${secret}`);
  let key = keys.get(name);
  if (key === undefined) {
    if (keys.size >= KEYS_MAX) keys.clear();
    key = crypto.subtle.importKey('raw', hexBytes(name), 'AES-GCM', false, ['encrypt', 'decrypt']);
    keys.set(name, key);
  }
  return key;
}

function hexBytes(hex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array((hex.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16)));
}

function base64(data: Uint8Array): string {
  return btoa(String.fromCharCode(...data));
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
