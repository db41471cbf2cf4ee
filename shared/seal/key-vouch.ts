/**
 * A provider's signature for a node's encryption key. The provider's root key stays offline and signs delegate keys. A
 * delegate key is stored where the provider's agents run, and signs encryption keys. No gateway has a root key or a
 * delegate key, so no gateway can replace a node's encryption key by its own.
 */
import { fromBase64url, toBase64url } from '../lattice/base64url.ts';
import { LABEL_DELEGATE, LABEL_VOUCH, SEAL_KEY_BYTES } from './hpke-suite.ts';
import { concatBytes, lengthPrefixed, readU32, u32, utf8Bytes } from './portable-bytes.ts';
import { SealError } from './seal-error.ts';

/** Length of an Ed25519 signature in bytes. */
const SIGNATURE_BYTES = 64;
/** Longest validity of a delegate key, which limits how long a stolen one can be used. */
export const DELEGATE_LIFE_MAX_S = 90 * 86_400;

export interface Delegation {
  root: Uint8Array;
  delegate: Uint8Array;
  /** Seconds since 1970, from which on the delegate key is not valid. */
  notAfter: number;
  signature: Uint8Array;
}

export interface Vouch extends Delegation {
  /** End of the encryption key's validity, in seconds since 1970. */
  until: number;
  keySignature: Uint8Array;
}

interface Vouched {
  /** The provider's own name, without `@peer`, such as `eth`. */
  provider: string;
  session: string;
  encryptionKey: Uint8Array;
  until: number;
}

/** The message that the root key signs. */
export function delegationMessage(provider: string, { delegate, notAfter }: Pick<Delegation, 'delegate' | 'notAfter'>) {
  return concatBytes(LABEL_DELEGATE, new Uint8Array([0]), lengthPrefixed(utf8Bytes(provider)), delegate, u32(notAfter));
}

/** The message that the delegate key signs. */
export function vouchMessage({ provider, session, encryptionKey, until }: Vouched): Uint8Array<ArrayBuffer> {
  const names = [provider, session].map((name) => lengthPrefixed(utf8Bytes(name)));
  return concatBytes(LABEL_VOUCH, new Uint8Array([0]), ...names, encryptionKey, u32(until));
}

const VOUCH_BYTES = 2 * SEAL_KEY_BYTES + 4 + SIGNATURE_BYTES + 4 + SIGNATURE_BYTES;

export function writeVouch({ root, delegate, notAfter, signature, until, keySignature }: Vouch): string {
  return toBase64url(concatBytes(root, delegate, u32(notAfter), signature, u32(until), keySignature));
}

/** Parses without verifying signatures. @throws SealError malformed */
export function readVouch(text: string): Vouch {
  const bytes = fromBase64url(text, VOUCH_BYTES);
  if (bytes?.length !== VOUCH_BYTES)
    throw new SealError('malformed', `a vouch must have ${VOUCH_BYTES} bytes in base64url`);
  let at = 0;
  const take = (length: number) => {
    at += length;
    return bytes.subarray(at - length, at);
  };
  const [root, delegate] = [take(SEAL_KEY_BYTES), take(SEAL_KEY_BYTES)];
  const notAfter = readU32(take(4), 0);
  const signature = take(SIGNATURE_BYTES);
  const until = readU32(take(4), 0);
  return { root, delegate, notAfter, signature, until, keySignature: take(SIGNATURE_BYTES) };
}

/** A provider's id without the `@peer` suffix that other institutions add: `eth` for `eth@peer`. */
export function localProviderName(provider: string): string {
  return provider.split('@', 1)[0] ?? provider;
}
