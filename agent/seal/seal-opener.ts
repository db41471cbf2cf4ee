/**
 * Opens requests that clients sealed to this node. All refusals look the same, because an unauthenticated client must
 * not learn which check failed.
 */
import { createSecretKey, hash, timingSafeEqual } from 'node:crypto';
import { ReplayMemory } from '../../shared/collections/replay-memory.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ChunkNonces } from '../../shared/seal/chunk-nonces.ts';
import { removePadding } from '../../shared/seal/chunk-padding.ts';
import {
  AAD_CHUNK,
  AAD_FINAL,
  AEAD_KEY_BYTES,
  AEAD_NONCE_BYTES,
  CEK_BYTES,
  CONTINUED_MAX_BYTES,
  CONTINUES_HEADER,
  LABEL_BODY_KEY,
  LABEL_BODY_NONCE,
  LABEL_RESPONSE,
  LABEL_RESUMABLE,
  MODEL_HEADER,
  RESPONSE_NONCE_BYTES,
  RESUME_HEADER,
  SEAL_HEADER,
  SEAL_TO_HEADER,
} from '../../shared/seal/hpke-suite.ts';
import { readEnvelope, readStamp, requestInfo, timingProblem } from '../../shared/seal/request-binding.ts';
import { splitChunks } from '../../shared/seal/request-framing.ts';
import { SealError } from '../../shared/seal/seal-error.ts';
import { type Headers, readRequestContent } from '../../shared/seal/sealed-plaintext.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import { type AnswerExportSecret, AnswerSealer } from './answer-sealer.ts';
import type { EvidenceHelper } from './evidence-helper.ts';
import { expand, extract, openChunk, setUpReceiver } from './hpke.ts';
import { openReplayedStream, type ReplayedStream } from './replayed-stream.ts';
import type { KeyRing } from './seal-key-ring.ts';

/** The request as the gateway sends it. */
interface SealedOpening {
  headers: HeaderList;
  endpoint: Endpoint;
  streaming: boolean;
}

export interface OpenedRequest {
  /** The model that the client named in clear text. The seal covers it. */
  model: string;
  headers: Headers;
  body: Buffer;
  /** The raw key to which the request was sealed. */
  key: Uint8Array;
  sealer: AnswerSealer;
  /** True if another candidate may continue the response. */
  resume: boolean;
  /** The part of the response that the client already has. This node continues after it. */
  sent: ReplayedStream | undefined;
  /** Call if the request got no response, so that it may be sent again. */
  unanswered(): void;
}

/** Maximum size of all sealed bodies that an agent holds concurrently. */
const SEALED_BODIES_MAX_BYTES = 256 * 1024 * 1024;

export class SealOpener {
  readonly #ring: KeyRing;
  readonly #replay: ReplayMemory;
  readonly #now: () => number;
  #heldBytes = 0;
  /** True if a sealed request was opened here, so that the engine's output may quote it. */
  used = false;

  /** Absent if this node has no evidence about its machine. */
  readonly evidence: EvidenceHelper | undefined;

  constructor(
    ring: KeyRing,
    now: () => number,
    { replay = new ReplayMemory(now), evidence }: { replay?: ReplayMemory; evidence?: EvidenceHelper | undefined } = {},
  ) {
    this.#ring = ring;
    this.#now = now;
    this.#replay = replay;
    this.evidence = evidence;
  }

  /**
   * Reserves `bytes` of SEALED_BODIES_MAX_BYTES. Returns false if less is left. After true, the caller must call
   * `giveBack`.
   */
  hold(bytes: number): boolean {
    if (this.#heldBytes + bytes > SEALED_BODIES_MAX_BYTES) return false;
    this.#heldBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#heldBytes -= bytes;
  }

  /** @throws SealError `not_opened`, regardless of the cause */
  open(opening: SealedOpening, body: Uint8Array): OpenedRequest {
    try {
      return this.#open(opening, body);
    } catch (cause) {
      throw new SealError('not_opened', 'this node cannot decrypt it', { cause });
    }
  }

  #open({ headers, endpoint, streaming }: SealedOpening, given: Uint8Array): OpenedRequest {
    const value = (wanted: string) => headers.find(([name]) => name === wanted)?.[1] ?? '';
    const stamp = readStamp(value(SEAL_HEADER));
    const untimely = timingProblem(stamp, this.#now() / 1000);
    if (untimely !== undefined) throw new SealError('not_opened', untimely);
    const name = toBase64url(stamp.nonce);
    // Checked before any key is derived, so that a repeated request costs the node almost nothing, even if a gateway
    // sends it with a long part of its response.
    if (this.#replay.has(name)) throw new SealError('not_opened', 'it was already received');
    const { kid, enc, sealed } = readEnvelope(value(SEAL_TO_HEADER));
    const key = this.#ring.find(toBase64url(kid));
    if (key === undefined) throw new SealError('not_opened', 'unknown key');
    const model = value(MODEL_HEADER);
    const resume = value(RESUME_HEADER) === '1';
    const { body, frames } = splitGiven(given, resume ? value(CONTINUES_HEADER) : '');
    const info = requestInfo({ ...stamp, path: endpoint.path, model, stream: streaming, resume });
    const context = setUpReceiver(key, enc, info);
    const inside = openChunk(createSecretKey(context.key), context.baseNonce, AAD_CHUNK, sealed);
    if (!timingSafeEqual(inside.subarray(CEK_BYTES), hash('sha256', body, 'buffer')))
      throw new SealError('not_opened', 'the body is a different one');
    const cek = inside.subarray(0, CEK_BYTES);
    const opened = readRequestContent(openBody(cek, stamp.nonce, body));
    const shared = () => expand(extract(stamp.nonce, cek), LABEL_RESUMABLE, RESPONSE_NONCE_BYTES);
    const secret: AnswerExportSecret = resume
      ? { kid, salt: kid, secret: shared() }
      : { kid, salt: enc, secret: context.export(LABEL_RESPONSE, RESPONSE_NONCE_BYTES) };
    const sent = frames === undefined ? undefined : openReplayedStream(frames, secret.secret);
    // Remember the request only after it was opened, so that requests that cannot be opened use no memory.
    if (!this.#replay.take(name, stamp.until * 1000)) throw new SealError('not_opened', 'it was already received');
    this.used = true;
    return {
      model,
      headers: opened.headers,
      key: key.publicKey,
      body: Buffer.from(opened.body.buffer, opened.body.byteOffset, opened.body.length),
      sealer: new AnswerSealer(secret, sent?.end),
      resume,
      sent,
      unanswered: () => this.#replay.forget(name),
    };
  }
}

/**
 * Splits the body into the request and, after it, the part of the response that the client has.
 * @throws SealError malformed
 */
function splitGiven(given: Uint8Array, at: string): { body: Uint8Array; frames: Uint8Array | undefined } {
  if (at === '') return { body: given, frames: undefined };
  const end = Number(at);
  if (!Number.isInteger(end) || end < 0 || end >= given.length)
    throw new SealError('malformed', 'the position does not exist');
  if (given.length - end > CONTINUED_MAX_BYTES)
    throw new SealError('too_large', 'it is longer than any gateway stores');
  return { body: given.subarray(0, end), frames: given.subarray(end) };
}

/** Opens the chunks of the body, which must be in order and complete. @throws SealError, and errors of node:crypto */
function openBody(cek: Uint8Array, salt: Uint8Array, body: Uint8Array): Buffer {
  const prk = extract(salt, cek);
  const key = createSecretKey(expand(prk, LABEL_BODY_KEY, AEAD_KEY_BYTES));
  const nonces = new ChunkNonces(expand(prk, LABEL_BODY_NONCE, AEAD_NONCE_BYTES));
  const sealed = splitChunks(body);
  const last = sealed.length - 1;
  return Buffer.concat(
    sealed.map((chunk, at) => removePadding(openChunk(key, nonces.next(), at === last ? AAD_FINAL : AAD_CHUNK, chunk))),
  );
}
