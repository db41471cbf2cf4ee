/** Seals one request: its body once, and the body's key once per node. */
import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from 'hpke';
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { ChunkNonces } from '../../shared/seal/chunk-nonces.ts';
import { splitIntoChunks } from '../../shared/seal/chunk-padding.ts';
import {
  AAD_CHUNK,
  AAD_FINAL,
  AEAD_NONCE_BYTES,
  CEK_BYTES,
  LABEL_BODY_KEY,
  LABEL_BODY_NONCE,
  LABEL_RESPONSE,
  LABEL_RESUMABLE,
  MODEL_HEADER,
  NONCE_BYTES,
  RESPONSE_NONCE_BYTES,
  RESUME_HEADER,
  SEAL_HEADER,
  SEAL_TO_HEADER,
  SEALED_LIFE_MAX_S,
  SEALED_TYPE,
  STREAM_HEADER,
} from '../../shared/seal/hpke-suite.ts';
import { concatBytes } from '../../shared/seal/portable-bytes.ts';
import { type Binding, requestInfo, writeEnvelope, writeStamp } from '../../shared/seal/request-binding.ts';
import { joinChunks } from '../../shared/seal/request-framing.ts';
import { prependHead, type Headers as SealedHeaders } from '../../shared/seal/sealed-plaintext.ts';
import type { SealNode } from './pinned-candidates.ts';

const { subtle } = globalThis.crypto;
const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM);

/** The secret with which the client opens one node's response. */
export interface AnswerSecret {
  node: SealNode;
  /** Salt of the derived keys: `enc`, or the `kid` if each of the nodes may continue another node's stream. */
  salt: Uint8Array;
  secret: Uint8Array;
}

export interface SealedRequest {
  headers: Record<string, string>;
  body: Uint8Array<ArrayBuffer>;
  /** Secrets by `kid`. */
  secrets: ReadonlyMap<string, AnswerSecret>;
  /** True if another of the nodes may continue the stream. */
  resume: boolean;
}

export interface ClearRequest {
  path: string;
  model: string;
  stream: boolean;
  headers: SealedHeaders;
  body: Uint8Array;
  /** For a stream: true if another of the nodes may continue it. */
  resume?: boolean;
}

/** Seconds for which nodes accept the request. Retries on other nodes need only minutes. */
const LIFE_S = 10 * 60;
/** Seconds for which nodes accept a resumable request: their maximum, because a stream may be continued late. */
const RESUMABLE_LIFE_S = SEALED_LIFE_MAX_S;

/** @param now seconds since 1970 */
export async function seal(clear: ClearRequest, nodes: readonly SealNode[], now: number): Promise<SealedRequest> {
  const random = globalThis.crypto.getRandomValues.bind(globalThis.crypto);
  const at = Math.floor(now);
  const { path, model, stream } = clear;
  const resume = stream && clear.resume === true;
  const binding: Binding = {
    path,
    model,
    stream,
    resume,
    nonce: random(new Uint8Array(NONCE_BYTES)),
    at,
    until: at + (resume ? RESUMABLE_LIFE_S : LIFE_S),
  };
  const cek = random(new Uint8Array(CEK_BYTES));
  const body = await sealBody(cek, binding.nonce, prependHead(clear.headers, clear.body));
  const digest = new Uint8Array(await subtle.digest('SHA-256', body));
  const info = requestInfo(binding);
  const shared = resume ? await resumableSecret(cek, binding.nonce) : undefined;
  const wrapped = await Promise.all(nodes.map((node) => wrap(node, info, concatBytes(cek, digest), shared)));
  return {
    headers: {
      'content-type': SEALED_TYPE,
      [MODEL_HEADER]: model,
      ...(stream && { [STREAM_HEADER]: '1' }),
      ...(resume && { [RESUME_HEADER]: '1' }),
      [SEAL_HEADER]: writeStamp(binding),
      [SEAL_TO_HEADER]: wrapped.map(({ envelope }) => envelope).join(', '),
    },
    body,
    secrets: new Map(wrapped.map(({ secret }) => [secret.node.kid, secret])),
    resume,
  };
}

async function wrap(node: SealNode, info: Uint8Array, inside: Uint8Array, shared: Uint8Array | undefined) {
  const key = await suite.DeserializePublicKey(node.key);
  const { encapsulatedSecret: enc, ctx } = await suite.SetupSender(key, { info });
  const sealed = await ctx.Seal(inside, AAD_CHUNK);
  const kid = fromBase64url(node.kid, 8) ?? new Uint8Array(0);
  const secret: AnswerSecret =
    shared === undefined
      ? { node, salt: enc, secret: await ctx.Export(LABEL_RESPONSE, RESPONSE_NONCE_BYTES) }
      : { node, salt: kid, secret: shared };
  return { envelope: writeEnvelope({ kid, enc, sealed }), secret };
}

/** A secret that all nodes of the request can derive, so that each can read and continue what another node sealed. */
async function resumableSecret(cek: Uint8Array<ArrayBuffer>, salt: Uint8Array): Promise<Uint8Array> {
  const base = await subtle.importKey('raw', cek, 'HKDF', false, ['deriveBits']);
  const info = new Uint8Array(LABEL_RESUMABLE);
  const hkdf = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(salt), info };
  return new Uint8Array(await subtle.deriveBits(hkdf, base, RESPONSE_NONCE_BYTES * 8));
}

/** Exported for test vectors, because `cek` and `salt` are random otherwise. */
export async function sealBody(cek: Uint8Array<ArrayBuffer>, salt: Uint8Array, content: Uint8Array) {
  const base = await subtle.importKey('raw', cek, 'HKDF', false, ['deriveBits', 'deriveKey']);
  const hkdf = (info: Uint8Array<ArrayBuffer>) => ({ name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(salt), info });
  const gcm = { name: 'AES-GCM', length: 256 };
  const key = await subtle.deriveKey(hkdf(new Uint8Array(LABEL_BODY_KEY)), base, gcm, false, ['encrypt']);
  const bits = await subtle.deriveBits(hkdf(new Uint8Array(LABEL_BODY_NONCE)), base, AEAD_NONCE_BYTES * 8);
  const nonces = new ChunkNonces(new Uint8Array(bits));
  const chunks = splitIntoChunks(content);
  const sealed: Uint8Array[] = [];
  for (const [at, chunk] of chunks.entries()) {
    const additionalData = new Uint8Array(at === chunks.length - 1 ? AAD_FINAL : AAD_CHUNK);
    const algorithm = { name: 'AES-GCM', iv: nonces.next(), additionalData };
    sealed.push(new Uint8Array(await subtle.encrypt(algorithm, key, chunk)));
  }
  return joinChunks(sealed);
}
