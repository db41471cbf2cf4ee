/**
 * The part of node:crypto that the Worker uses. @types/node cannot be loaded beside workers-types: their globals clash.
 * WebCrypto would do, but it hashes asynchronously, and the warm path must answer without a promise.
 */
declare module 'node:crypto' {
  export function createHash(algorithm: 'sha256'): { update(text: string): { digest(encoding: 'hex'): string } };
  export function randomBytes(size: number): { toString(encoding: 'base64url' | 'hex'): string };
  export function timingSafeEqual(a: Uint8Array, b: Uint8Array): boolean;
}
