/** Seals one response: a SEGMENT, chunks, and a final frame. */
import { createCipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import type { SplicedStream } from '../../shared/openai/continuation/spliced-stream.ts';
import { ChunkNonces } from '../../shared/seal/chunk-nonces.ts';
import { CONTENT_MAX_BYTES, paddedAnswerSize, padInPlace } from '../../shared/seal/chunk-padding.ts';
import {
  AAD_FINAL,
  AEAD_KEY_BYTES,
  AEAD_NONCE_BYTES,
  CHUNK_MAX_BYTES,
  LABEL_KEY,
  LABEL_NONCE,
  RESPONSE_NONCE_BYTES,
  SEALED_STREAM_TYPE,
  SEALED_TYPE,
  TAG_BYTES,
} from '../../shared/seal/hpke-suite.ts';
import { concatBytes } from '../../shared/seal/portable-bytes.ts';
import { buildFrame, FRAME, frameBytes, writeSealFrame } from '../../shared/seal/response-frames.ts';
import { ANSWER_HEADERS, type ContinuationPoint, prependHead } from '../../shared/seal/sealed-plaintext.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import { expand, extract } from './hpke.ts';

const GCM = { authTagLength: TAG_BYTES };
const NOTHING = new Uint8Array(0);

/**
 * Memory for the plaintext of the chunk that is being sealed; reused for every chunk. Allocating a buffer outside the
 * heap takes as long as sealing it, and the garbage collector frees thousands of such buffers in pauses that delay each
 * stream.
 */
const PLAIN_ROOM = new Uint8Array(CHUNK_MAX_BYTES);

/**
 * Headers that stay outside the seal, because programs between the node and the client, such as a gateway, must act on
 * them.
 */
const OUTSIDE: ReadonlySet<string> = new Set([
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'openai-processing-ms',
]);

/**
 * The secret from which a response's keys are derived. The client and the node know it. If the stream may be resumed,
 * all candidate nodes know it.
 */
export interface AnswerExportSecret {
  kid: Uint8Array;
  /** Salt of the keys: `enc`, or the `kid` if other candidates must be able to derive the keys, too. */
  salt: Uint8Array;
  secret: Uint8Array;
}

/** Derives the keys of a response (RFC 9458 §4.4). */
export function answerKeys({ salt, secret }: AnswerExportSecret, nonce: Uint8Array): AnswerKeys {
  const prk = extract(concatBytes(salt, nonce), secret);
  const nonces = new ChunkNonces(expand(prk, LABEL_NONCE, AEAD_NONCE_BYTES));
  return { key: createSecretKey(expand(prk, LABEL_KEY, AEAD_KEY_BYTES)), nonces };
}

export interface AnswerKeys {
  key: KeyObject;
  nonces: ChunkNonces;
}

export class AnswerSealer {
  readonly #key: KeyObject;
  readonly #nonces: ChunkNonces;
  readonly #continues: ContinuationPoint | undefined;
  #begun: Uint8Array;
  #head: Uint8Array = NOTHING;
  /** Bytes of the engine that arrived in the current task of the event loop: at most one read of its socket. */
  #pendingChunks: Uint8Array[] = [];
  /**
   * Splits the engine's response into events, and passes on only whole ones. If this node continues a stream, rewrites
   * the events as the first engine would have sent them. Undefined if the stream cannot be resumed.
   */
  #joined: SplicedStream | undefined;

  constructor(secret: AnswerExportSecret, continues?: ContinuationPoint, random = randomBytes) {
    const nonce = random(RESPONSE_NONCE_BYTES);
    const { key, nonces } = answerKeys(secret, nonce);
    this.#key = key;
    this.#nonces = nonces;
    this.#continues = continues;
    this.#begun = buildFrame(FRAME.segment, secret.kid, nonce);
  }

  /** From now on gathered bytes pass through `joined`. */
  joins(joined: SplicedStream): void {
    this.#joined = joined;
  }

  /** Why the engine's stream is invalid; undefined if it is valid. After a fault no more of the stream may be sent. */
  get fault(): string | undefined {
    return this.#joined?.fault;
  }

  /**
   * Moves the head of the engine's response inside the seal, and returns the headers that remain outside. Those reveal
   * no more than the response's size does.
   */
  head(status: number, headers: HeaderList, streams: boolean): HeaderList {
    const inside = headers.filter(([name, value]) => ANSWER_HEADERS.has(name) && PLAIN.test(value));
    const continues = this.#continues;
    this.#head = prependHead({ status, headers: inside, ...(continues !== undefined && { continues }) }, NOTHING);
    const type = ['content-type', streams ? SEALED_STREAM_TYPE : SEALED_TYPE] as const;
    return [type, ...headers.filter(([name]) => OUTSIDE.has(name))];
  }

  /** Gathers the bytes that arrive in one task of the event loop. Calls `flush` once, when the task ends. */
  gather(pieces: readonly Uint8Array[], flush: () => void): void {
    const joined = this.#joined;
    const whole = joined === undefined ? pieces : pieces.flatMap((piece) => joined.push(piece));
    if (whole.length === 0) return;
    if (this.#pendingChunks.length === 0) queueMicrotask(flush);
    this.#pendingChunks.push(...whole);
  }

  /** Frames with the gathered bytes. */
  gathered(): Uint8Array {
    const pieces = this.#pendingChunks;
    this.#pendingChunks = [];
    return pieces.length === 0
      ? NOTHING
      : this.chunk(pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces));
  }

  /** The remaining frames, with the final frame if the response is complete. */
  last(whole: boolean): Uint8Array {
    return whole ? concatBytes(this.gathered(), this.final()) : this.gathered();
  }

  /** Frames with a piece of the response: one chunk for each 16 KiB. */
  chunk(content: Uint8Array): Uint8Array {
    const whole = this.#head.length === 0 ? content : concatBytes(this.#head, content);
    this.#head = NOTHING;
    const frames = [this.#begun];
    this.#begun = NOTHING;
    for (let at = 0; at < whole.length; at += CONTENT_MAX_BYTES)
      frames.push(this.#seal(FRAME.chunk, whole.subarray(at, at + CONTENT_MAX_BYTES)));
    return frames.length === 2 && frames[0] === NOTHING && frames[1] !== undefined ? frames[1] : concatBytes(...frames);
  }

  /** The final frame. Without it a client does not accept the response as complete. */
  final(): Uint8Array {
    const before = this.#head.length > 0 || this.#begun.length > 0 ? this.chunk(NOTHING) : NOTHING;
    return concatBytes(before, this.#seal(FRAME.final, NOTHING));
  }

  #seal(type: typeof FRAME.chunk | typeof FRAME.final, content: Uint8Array): Uint8Array {
    const cipher = createCipheriv('aes-256-gcm', this.#key, this.#nonces.next(), GCM);
    if (type === FRAME.final) cipher.setAAD(AAD_FINAL);
    const plain = PLAIN_ROOM.subarray(0, paddedAnswerSize(content.length));
    padInPlace(content, plain);
    const sealed = cipher.update(plain);
    cipher.final();
    const bytes = Buffer.allocUnsafe(frameBytes(plain.length + TAG_BYTES));
    writeSealFrame(bytes, type, [sealed, cipher.getAuthTag()]);
    return bytes;
  }
}

/** Header values that may be inside the seal; see shared/seal/sealed-plaintext.ts. */
const PLAIN = /^[\t\x20-\x7e]{0,4096}$/;
