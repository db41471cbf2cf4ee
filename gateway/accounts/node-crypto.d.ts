/**
 * The part of node:crypto that the Worker uses. @types/node cannot be loaded together with workers-types, because their
 * globals conflict. WebCrypto is not used, because it returns promises, and authentication of a cached key and the
 * registry's merge must be synchronous.
 */
declare module 'node:crypto' {
  interface Hash {
    update(data: string | Uint8Array): Hash;
    digest(encoding: 'hex' | 'base64url'): string;
    digest(): Uint8Array;
  }
  interface RandomBytes extends Uint8Array {
    toString(encoding?: 'base64url' | 'hex'): string;
  }
  interface KeyObject {
    export(options: { format: 'der'; type: 'spki' }): Uint8Array;
  }
  interface DerKey {
    key: Uint8Array;
    format: 'der';
    type: 'spki' | 'pkcs8';
  }
  export function createHash(algorithm: 'sha256' | 'md5'): Hash;
  export function createHmac(algorithm: 'sha256', key: string): Hash;
  export function hash(algorithm: 'sha256', data: string | Uint8Array, encoding: 'binary'): string;
  export function randomBytes(size: number): RandomBytes;
  export function timingSafeEqual(a: Uint8Array, b: Uint8Array): boolean;
  export function createPrivateKey(key: DerKey): KeyObject;
  export function createPublicKey(key: DerKey | KeyObject): KeyObject;
  export function sign(algorithm: null, data: Uint8Array, key: KeyObject): Uint8Array;
  export function verify(algorithm: null, data: Uint8Array, key: KeyObject, signature: Uint8Array): boolean;
}

declare module 'node:buffer' {
  export const Buffer: { from(bytes: readonly number[]): Uint8Array };
  export function isUtf8(bytes: Uint8Array): boolean;
}
