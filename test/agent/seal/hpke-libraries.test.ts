/**
 * The library `hpke`, with which clients seal, held to RFC 9180's vectors and to another implementation, `@hpke/core`.
 * The agent's own receiver opens what both send.
 */
import { createSecretKey } from 'node:crypto';
import * as core from '@hpke/core';
import * as hpke from 'hpke';
import { describe, expect, it } from 'vitest';
import { openChunk, setUpReceiver } from '../../../agent/seal/hpke.ts';
import { KeyRing } from '../../../agent/seal/seal-key-ring.ts';

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'));
const hex = (data: ArrayBuffer | Uint8Array) => Buffer.from(data as Uint8Array).toString('hex');
const text = (value: string) => new TextEncoder().encode(value);

/** https://www.rfc-editor.org/rfc/rfc9180#appendix-A.1.1 */
const A1 = {
  info: '4f6465206f6e2061204772656369616e2055726e',
  ikmR: '6db9df30aa07dd42ee5e8181afdb977e538f5e1fec8a06223f33f7013e525037',
  skRm: '4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8',
  pkRm: '3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d',
  enc: '37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431',
  plaintext: '4265617574792069732074727574682c20747275746820626561757479',
  ciphertexts: [
    'f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a',
    'af2d7e9ac9ae7e270f46ba1f975be53c09f8d875bdc8535458c2494e8a6eab251c03d0c22a56b8ca42c2063b84',
  ],
  exports: {
    '': '3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee',
    '00': '2e8f0b54673c7029649d4eb9d5e33bf1872cf76d623ff164ac185da9e88c21a5',
    '54657374436f6e74657874': 'e9e43065102c3836401bed8c3c3c75ae46be1639869391d62c61f1ec7af54931',
  },
};

const ofLibrary = (aead: typeof hpke.AEAD_AES_256_GCM) =>
  new hpke.CipherSuite(hpke.KEM_DHKEM_X25519_HKDF_SHA256, hpke.KDF_HKDF_SHA256, aead);
const library = ofLibrary(hpke.AEAD_AES_256_GCM);
const other = new core.CipherSuite({
  kem: new core.DhkemX25519HkdfSha256(),
  kdf: new core.HkdfSha256(),
  aead: new core.Aes256Gcm(),
});

describe('the clients’ library', () => {
  it('opens and exports what RFC 9180 says in appendix A.1.1, and derives its key', async () => {
    const suite = ofLibrary(hpke.AEAD_AES_128_GCM);
    const pair = await suite.DeriveKeyPair(bytes(A1.ikmR), true);
    expect(hex(await suite.SerializePublicKey(pair.publicKey))).toBe(A1.pkRm);
    expect(hex(await suite.SerializePrivateKey(pair.privateKey))).toBe(A1.skRm);
    const context = await suite.SetupRecipient(pair, bytes(A1.enc), { info: bytes(A1.info) });
    for (const [n, ciphertext] of A1.ciphertexts.entries())
      expect(hex(await context.Open(bytes(ciphertext), text(`Count-${n}`)))).toBe(A1.plaintext);
    for (const [label, secret] of Object.entries(A1.exports))
      expect(hex(await context.Export(bytes(label), 32))).toBe(secret);
  });

  it.each([0, 1, 13, 65_536])('is opened by @hpke/core and by the agent, a message of %i bytes', async (size) => {
    const [message, info, aad] = [new Uint8Array(size).fill(7), text('info'), text('aad')];
    const { current } = new KeyRing(() => 0);
    const publicKey = await library.DeserializePublicKey(current.publicKey);
    const { encapsulatedSecret: enc, ctx } = await library.SetupSender(publicKey, { info });
    const sealed = [await ctx.Seal(message, aad), await ctx.Seal(message, aad)];
    const exported = hex(await ctx.Export(text('label'), 32));

    const agent = setUpReceiver(current, enc, info);
    expect(hex(agent.export(text('label'), 32))).toBe(exported);
    const [first = new Uint8Array()] = sealed;
    expect(hex(openChunk(createSecretKey(agent.key), agent.baseNonce, aad, first))).toBe(hex(message));

    const raw = current.privateKey.export({ format: 'jwk' }).d ?? '';
    const recipientKey = await other.kem.importKey('raw', bytes(Buffer.from(raw, 'base64url').toString('hex')), false);
    const receiver = await other.createRecipientContext({ recipientKey, enc, info });
    for (const one of sealed) expect(hex(await receiver.open(one, aad))).toBe(hex(message));
    expect(hex(await receiver.export(text('label'), 32))).toBe(exported);
  });

  it('opens what @hpke/core sealed, and so does the agent', async () => {
    const [message, info, aad] = [text('a prompt'), text('info'), text('aad')];
    const { current } = new KeyRing(() => 0);
    const recipientPublicKey = await other.kem.deserializePublicKey(current.publicKey);
    const sender = await other.createSenderContext({ recipientPublicKey, info });
    const enc = new Uint8Array(sender.enc);
    const sealed = new Uint8Array(await sender.seal(message, aad));
    const exported = hex(await sender.export(text('label'), 32));

    const agent = setUpReceiver(current, enc, info);
    expect(hex(openChunk(createSecretKey(agent.key), agent.baseNonce, aad, sealed))).toBe(hex(message));
    expect(hex(agent.export(text('label'), 32))).toBe(exported);

    const raw = current.privateKey.export({ format: 'jwk' }).d ?? '';
    const privateKey = await library.DeserializePrivateKey(new Uint8Array(Buffer.from(raw, 'base64url')));
    const pair = { privateKey, publicKey: await library.DeserializePublicKey(current.publicKey) };
    const receiver = await library.SetupRecipient(pair, enc, { info });
    expect(hex(await receiver.Open(sealed, aad))).toBe(hex(message));
    expect(hex(await receiver.Export(text('label'), 32))).toBe(exported);
  });

  it('refuses with @hpke/core and the agent what was changed', async () => {
    const [message, info, aad] = [text('a prompt'), text('info'), text('aad')];
    const { current } = new KeyRing(() => 0);
    const publicKey = await library.DeserializePublicKey(current.publicKey);
    const { encapsulatedSecret: enc, ctx } = await library.SetupSender(publicKey, { info });
    const sealed = await ctx.Seal(message, aad);
    const changed = sealed.map((byte, at) => (at === 3 ? byte ^ 1 : byte));
    const raw = bytes(Buffer.from(current.privateKey.export({ format: 'jwk' }).d ?? '', 'base64url').toString('hex'));
    for (const [wrongInfo, wrongAad, wrongSealed] of [
      [text('other'), aad, sealed],
      [info, text('other'), sealed],
      [info, aad, changed],
    ] as const) {
      const recipientKey = await other.kem.importKey('raw', raw, false);
      const receiver = await other.createRecipientContext({ recipientKey, enc, info: wrongInfo });
      await expect(receiver.open(wrongSealed, wrongAad)).rejects.toThrow();
      const agent = setUpReceiver(current, enc, wrongInfo);
      expect(() => openChunk(createSecretKey(agent.key), agent.baseNonce, wrongAad, wrongSealed)).toThrow();
      const privateKey = await library.DeserializePrivateKey(raw);
      const opening = await library.SetupRecipient({ privateKey, publicKey }, enc, { info: wrongInfo });
      await expect(opening.Open(wrongSealed, wrongAad)).rejects.toThrow();
    }
  });
});
