/**
 * AES-256-GCM with the key of one response. Uses node:crypto if there is one, because it is synchronous: WebCrypto, in
 * browsers and workerd, returns a promise for each chunk.
 */
import { TAG_BYTES } from '../../shared/seal/hpke-suite.ts';

export interface ChunkKey {
  /** Returns the plaintext. @throws if the tag does not match */
  open(nonce: Uint8Array<ArrayBuffer>, aad: Uint8Array, sealed: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/**
 * The functions of node:crypto that are used here. They are declared, because a page that seals has no types of Node.
 */
interface NodeCrypto {
  createSecretKey(raw: Uint8Array): object;
  createDecipheriv(name: 'aes-256-gcm', key: object, nonce: Uint8Array, options: { authTagLength: number }): Decipher;
}

interface Decipher {
  setAAD(aad: Uint8Array): this;
  setAuthTag(tag: Uint8Array): this;
  update(sealed: Uint8Array): Uint8Array;
  final(): Uint8Array;
}

/**
 * Returns `node:crypto`; null outside Node. The module is not imported, so that a bundle for browsers contains no
 * import of it.
 */
function nodeCrypto(): NodeCrypto | null {
  const { process } = globalThis as {
    process?: { getBuiltinModule?: (name: 'node:crypto') => NodeCrypto | undefined };
  };
  return process?.getBuiltinModule?.('node:crypto') ?? null;
}

/** @param raw the key, 32 bytes @param node null: use WebCrypto */
export async function chunkKey(raw: Uint8Array<ArrayBuffer>, node = nodeCrypto()): Promise<ChunkKey> {
  return node === null ? webKey(raw) : nodeKey(raw, node);
}

function nodeKey(raw: Uint8Array, { createDecipheriv, createSecretKey }: NodeCrypto): ChunkKey {
  const key = createSecretKey(raw);
  const open: ChunkKey['open'] = (nonce, aad, sealed) => {
    const end = sealed.length - TAG_BYTES;
    const cipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
    if (aad.length > 0) cipher.setAAD(aad);
    cipher.setAuthTag(sealed.subarray(end));
    const plain = cipher.update(sealed.subarray(0, end));
    cipher.final();
    return plain;
  };
  return { open };
}

async function webKey(raw: Uint8Array<ArrayBuffer>): Promise<ChunkKey> {
  const { subtle } = globalThis.crypto;
  const key = await subtle.importKey('raw', raw, 'AES-GCM', false, ['decrypt']);
  const open: ChunkKey['open'] = async (iv, aad, sealed) => {
    const algorithm = { name: 'AES-GCM', iv, additionalData: new Uint8Array(aad) };
    return new Uint8Array(await subtle.decrypt(algorithm, key, new Uint8Array(sealed)));
  };
  return { open };
}
