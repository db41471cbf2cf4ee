/**
 * The receiver of HPKE's base mode (RFC 9180) with DHKEM(X25519), HKDF-SHA256 and AES-256-GCM, by node:crypto and at once. The library of the
 * clients goes through WebCrypto's promises: 1.2 ms for what takes 0.2 ms here, before each answer.
 */
import { createDecipheriv, createHmac, createPublicKey, diffieHellman, type KeyObject } from 'node:crypto';
import { AEAD_KEY_BYTES, AEAD_NONCE_BYTES, KEY_BYTES, SUITE, TAG_BYTES } from '../../shared/seal/suite.ts';

const NOTHING = Buffer.alloc(0);
const VERSION = Buffer.from('HPKE-v1');
const KEM_ID = Buffer.concat([Buffer.from('KEM'), SUITE.subarray(0, 2)]);
const SUITE_ID = Buffer.concat([Buffer.from('HPKE'), SUITE]);
/** What stands before a raw X25519 key in its DER form (RFC 8410 §4). */
const PUBLIC_DER = Buffer.from('302a300506032b656e032100', 'hex');
const MODE_BASE = Buffer.from([0]);
const NSECRET_BYTES = 32;

export interface ReceiverKey {
  privateKey: KeyObject;
  /** Raw. */
  publicKey: Uint8Array;
}

export interface ReceiverContext {
  key: Uint8Array;
  baseNonce: Uint8Array;
  export(label: Uint8Array, length: number): Buffer;
}

/** RFC 5869. */
export function extract(salt: Uint8Array, secret: Uint8Array): Buffer {
  return createHmac('sha256', salt).update(secret).digest();
}

/** RFC 5869, of one block: at most 32 bytes. */
export function expand(prk: Uint8Array, info: Uint8Array, length: number): Buffer {
  return createHmac('sha256', prk)
    .update(info)
    .update(Buffer.from([1]))
    .digest()
    .subarray(0, length);
}

function labeledExtract(suite: Uint8Array, salt: Uint8Array, label: string, secret: Uint8Array): Buffer {
  return extract(salt, Buffer.concat([VERSION, suite, Buffer.from(label), secret]));
}

function labeledExpand(suite: Uint8Array, prk: Uint8Array, label: string, info: Uint8Array, length: number): Buffer {
  const size = Buffer.from([length >> 8, length & 0xff]);
  return expand(prk, Buffer.concat([size, VERSION, suite, Buffer.from(label), info]), length);
}

/** @throws where `enc` is no key that X25519 takes */
export function setUpReceiver(key: ReceiverKey, enc: Uint8Array, info: Uint8Array): ReceiverContext {
  const ephemeral = createPublicKey({ key: Buffer.concat([PUBLIC_DER, enc]), format: 'der', type: 'spki' });
  const dh = diffieHellman({ privateKey: key.privateKey, publicKey: ephemeral });
  const eaePrk = labeledExtract(KEM_ID, NOTHING, 'eae_prk', dh);
  const kemContext = Buffer.concat([enc, key.publicKey]);
  const shared = labeledExpand(KEM_ID, eaePrk, 'shared_secret', kemContext, NSECRET_BYTES);
  const context = Buffer.concat([
    MODE_BASE,
    labeledExtract(SUITE_ID, NOTHING, 'psk_id_hash', NOTHING),
    labeledExtract(SUITE_ID, NOTHING, 'info_hash', info),
  ]);
  const secret = labeledExtract(SUITE_ID, shared, 'secret', NOTHING);
  const exporter = labeledExpand(SUITE_ID, secret, 'exp', context, KEY_BYTES);
  return {
    key: labeledExpand(SUITE_ID, secret, 'key', context, AEAD_KEY_BYTES),
    baseNonce: labeledExpand(SUITE_ID, secret, 'base_nonce', context, AEAD_NONCE_BYTES),
    export: (label, length) => labeledExpand(SUITE_ID, exporter, 'sec', label, length),
  };
}

/** AES-256-GCM. @throws where the tag does not fit */
export function openChunk(key: Uint8Array, nonce: Uint8Array, aad: Uint8Array, sealed: Uint8Array): Buffer {
  const end = sealed.length - TAG_BYTES;
  const cipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(aad).setAuthTag(sealed.subarray(end));
  return Buffer.concat([cipher.update(sealed.subarray(0, end)), cipher.final()]);
}
