/** The key that signs releases: an Ed25519 key in a PEM file that only its owner can read. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import * as z from 'zod';

const RAW_KEY_BYTES = 32;

export interface ReleaseKey {
  /** The public key in base64url, as in RELEASE_KEYS of a gateway. */
  name: string;
  /** The public key in PEM, for openssl. */
  publicPem: string;
  /** Returns a signature of 64 bytes (RFC 8032). */
  sign(message: Uint8Array): Buffer;
}

export async function readKey(file: string): Promise<ReleaseKey> {
  const pem = await readFile(file);
  try {
    return releaseKey(createPrivateKey(pem));
  } catch (cause) {
    throw new Error(`${file} does not contain an Ed25519 key for releases; --new-key FILE makes one`, { cause });
  }
}

/** Writes a new key that only its owner can read. @throws Error if the file exists */
export async function newKey(file: string): Promise<ReleaseKey> {
  const { privateKey } = generateKeyPairSync('ed25519');
  await writeFile(file, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600, flag: 'wx' });
  return releaseKey(privateKey);
}

function releaseKey(key: KeyObject): ReleaseKey {
  const { x } = z.object({ x: z.string() }).parse(key.export({ format: 'jwk' }));
  if (Buffer.from(x, 'base64url').length !== RAW_KEY_BYTES) throw new Error('the release key is not an Ed25519 key');
  const publicPem = createPublicKey(key).export({ format: 'pem', type: 'spki' });
  return { name: x, publicPem: publicPem.toString(), sign: (message) => sign(null, message, key) };
}
