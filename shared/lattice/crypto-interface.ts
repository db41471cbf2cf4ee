/**
 * The cryptography that the registry needs. Node and workerd both have these functions in synchronous form. Keys are
 * raw Ed25519, 32 bytes; signatures have 64 bytes (RFC 8032).
 */
export interface Crypto {
  /** SHA-256; the result has 32 bytes. */
  sha256(bytes: Uint8Array): Uint8Array;
  /** Never throws: returns false if the key is not a point of the curve. */
  verify(publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean;
}

export interface Signer {
  readonly publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

export const KEY_BYTES = 32;
export const SIGNATURE_BYTES = 64;
