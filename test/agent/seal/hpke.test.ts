import crypto, { createPrivateKey, createSecretKey } from 'node:crypto';
import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from 'hpke';
import { describe, expect, it } from 'vitest';
import {
  chooseDecapsulate,
  decapsulate,
  decapsulateBySteps,
  expand,
  extract,
  openChunk,
  setUpReceiver,
} from '../../../agent/seal/hpke.ts';
import { KeyRing } from '../../../agent/seal/seal-key-ring.ts';
import { ChunkNonces } from '../../../shared/seal/chunk-nonces.ts';
import { AAD_CHUNK, AAD_FINAL, LABEL_KEY, LABEL_NONCE } from '../../../shared/seal/hpke-suite.ts';
import { splitChunks } from '../../../shared/seal/request-framing.ts';

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'));
const hex = (data: Uint8Array) => Buffer.from(data).toString('hex');

/** https://www.rfc-editor.org/rfc/rfc9180#appendix-A.1.1: with AES-128-GCM, which differs in a number and a length. */
const A1 = {
  suite: '002000010001',
  info: '4f6465206f6e2061204772656369616e2055726e',
  skRm: '4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8',
  pkRm: '3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d',
  enc: '37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431',
  key: '4531685d41d65f03dc48f6b8302c05b0',
  baseNonce: '56d890e5accaaf011cff4b7d',
  exports: {
    '': '3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee',
    '00': '2e8f0b54673c7029649d4eb9d5e33bf1872cf76d623ff164ac185da9e88c21a5',
    '54657374436f6e74657874': 'e9e43065102c3836401bed8c3c3c75ae46be1639869391d62c61f1ec7af54931',
  },
};

/** https://datatracker.ietf.org/doc/draft-ietf-ohai-chunked-ohttp/, appendix A. */
const CHUNKED = {
  secretKey: '1c190d72acdbe4dbc69e680503bb781a932c70a12c8f3754434c67d8640d8698',
  publicKey: '668eb21aace159803974a4c67f08b4152d29bed10735fd08f98ccdd6fe095708',
  info: '6d6573736167652f6268747470206368756e6b656420726571756573740001002000010001',
  enc: '8811eb457e100811c40a0aa71340a1b81d804bb986f736f2f566a7199761a032',
  chunks:
    '1c2ad24942d4d692563012f2980c8fef437a336b9b2fc938ef77a5834f1d2e33d8fd25577afe31bd1c79d094f76b6250ae6549b473ecd950501311001c6c1395d0ef7c1022297966307b8a7f',
  request: '00034745540568747470730b6578616d706c652e636f6d012f',
  secret: '1d4484834ae36102a6ac42a5523454d9',
  responseNonce: 'bcce7f4cb921309ba5d62edf1769ef09',
  answer:
    '1179bf1cc87fa0e2c02de4546945aa3d1e4812b348b5bd4c594c16b6170b07b475845d1f3200ed9d8a796617a5b27265f4d73247f639',
};

describe('the receiver of HPKE', () => {
  it.each([
    ['in one call', decapsulate],
    ['in steps', decapsulateBySteps],
  ])('makes the keys of RFC 9180, appendix A.1.1, %s', (_, shared) => {
    const der = Buffer.concat([bytes('302e020100300506032b656e04220420'), bytes(A1.skRm)]);
    const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
    const key = { privateKey, publicKey: bytes(A1.pkRm) };
    const context = setUpReceiver(key, bytes(A1.enc), bytes(A1.info), { suite: bytes(A1.suite), keyBytes: 16, shared });
    expect(hex(context.key)).toBe(A1.key);
    expect(hex(context.baseNonce)).toBe(A1.baseNonce);
    for (const [label, secret] of Object.entries(A1.exports))
      expect(hex(context.export(bytes(label), 32))).toBe(secret);
  });

  it('opens the example of chunked OHTTP (draft-ietf-ohai-chunked-ohttp, appendix A), and makes the keys of its answer', () => {
    const der = Buffer.concat([bytes('302e020100300506032b656e04220420'), bytes(CHUNKED.secretKey)]);
    const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
    const key = { privateKey, publicKey: bytes(CHUNKED.publicKey) };
    const context = setUpReceiver(key, bytes(CHUNKED.enc), bytes(CHUNKED.info), {
      suite: bytes(A1.suite),
      keyBytes: 16,
    });
    const nonces = new ChunkNonces(context.baseNonce);
    const chunks = splitChunks(bytes(CHUNKED.chunks));
    const opened = chunks.map((chunk, at) =>
      openChunk(createSecretKey(context.key), nonces.next(), at === chunks.length - 1 ? AAD_FINAL : AAD_CHUNK, chunk),
    );
    expect(hex(Buffer.concat(opened))).toBe(CHUNKED.request);
    const secret = context.export(Buffer.from('message/bhttp chunked response'), 16);
    expect(hex(secret)).toBe(CHUNKED.secret);
    const prk = extract(bytes(CHUNKED.enc + CHUNKED.responseNonce), secret);
    const answerKey = createSecretKey(expand(prk, LABEL_KEY, 16));
    const answerNonces = new ChunkNonces(expand(prk, LABEL_NONCE, 12));
    const answer = splitChunks(bytes(CHUNKED.answer));
    const plain = answer.map((chunk, at) =>
      openChunk(answerKey, answerNonces.next(), at === answer.length - 1 ? AAD_FINAL : AAD_CHUNK, chunk),
    );
    expect(hex(Buffer.concat(plain))).toBe('0140c8');
  });

  it('makes what the clients’ library exports, and something else for another info', async () => {
    const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM);
    const { current } = new KeyRing(() => 0);
    const info = bytes('0102');
    const { encapsulatedSecret, ctx } = await suite.SetupSender(await suite.DeserializePublicKey(current.publicKey), {
      info,
    });
    const wanted = hex(await ctx.Export(bytes('aa'), 32));
    expect(hex(setUpReceiver(current, encapsulatedSecret, info).export(bytes('aa'), 32))).toBe(wanted);
    expect(hex(setUpReceiver(current, encapsulatedSecret, bytes('0103')).export(bytes('aa'), 32))).not.toBe(wanted);
  });

  it('makes them in one call, where Node can', () => {
    expect(decapsulate === decapsulateBySteps).toBe(!('decapsulate' in crypto));
  });

  it('makes them in steps where the call is absent, fails as with OpenSSL 3.0, or gives something else', () => {
    const fails = () => {
      throw new Error('error:03000096:digital envelope routines::operation not supported for this keytype');
    };
    for (const native of [undefined, fails, () => Buffer.alloc(32)])
      expect(chooseDecapsulate(native)).toBe(decapsulateBySteps);
  });

  it('takes no key of small order, whose secret the whole world knows', () => {
    const { current } = new KeyRing(() => 0);
    for (const shared of [decapsulate, decapsulateBySteps])
      expect(() => setUpReceiver(current, new Uint8Array(32), new Uint8Array(0), { shared })).toThrow();
  });
});
