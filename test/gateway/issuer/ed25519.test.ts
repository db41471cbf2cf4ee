import { expect, test } from 'vitest';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { hex } from '../../../shared/lattice/byte-codec.ts';

test('A seed always makes the same key, and what it signs is verified by that key alone', () => {
  const seed = new Uint8Array(32).fill(7);
  const signer = workerdSigner(seed);
  expect(hex(signer.publicKey)).toBe('ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c');
  const message = new TextEncoder().encode('text');
  const signature = signer.sign(message);
  expect(workerdCrypto.verify(signer.publicKey, message, signature)).toBe(true);
  expect(workerdCrypto.verify(workerdSigner().publicKey, message, signature)).toBe(false);
  expect(workerdCrypto.verify(signer.publicKey, message.slice(1), signature)).toBe(false);
});

test('Keys and signatures that are none verify nothing and throw nothing', () => {
  expect(workerdCrypto.verify(new Uint8Array(32).fill(255), new Uint8Array(1), new Uint8Array(64))).toBe(false);
  expect(workerdCrypto.verify(new Uint8Array(3), new Uint8Array(1), new Uint8Array(64))).toBe(false);
  expect(hex(workerdCrypto.sha256(new Uint8Array()))).toMatch(/^e3b0c44298fc1c14/);
});
