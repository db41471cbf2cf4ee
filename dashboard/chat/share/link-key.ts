/** The key of a shared conversation. It is in the fragment of the link, which no browser sends to a server. */
import { WrongKeyError } from '../keep/box-cipher.ts';

const KEY_BYTES = 32;
const ID_BYTES = 16;

export async function newLinkKey(): Promise<{ key: CryptoKey; text: string }> {
  const raw = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return { key: await imported(raw), text: toText(raw) };
}

/** @throws WrongKeyError */
export async function linkKey(text: string): Promise<CryptoKey> {
  const raw = /^[\w-]{43}$/.test(text) ? fromText(text) : undefined;
  if (raw?.length !== KEY_BYTES) throw new WrongKeyError('the link has no key');
  return imported(raw);
}

export const newShareId = (): string => toText(crypto.getRandomValues(new Uint8Array(ID_BYTES)));

const imported = (raw: Uint8Array<ArrayBuffer>): Promise<CryptoKey> =>
  crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt', 'decrypt']);

const toText = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');

const fromText = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
