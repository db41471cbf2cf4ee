/** Seals one answer: a SEGMENT, chunks, a final one. */
import { createCipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import type { SplicedStream } from '../../shared/openai/continuation/spliced-stream.ts';
import { concatBytes } from '../../shared/seal/bytes.ts';
import { ANSWER_HEADERS, type ContinuationPoint, prependHead } from '../../shared/seal/content.ts';
import { CONTENT_MAX_BYTES, paddedAnswerSize, padInPlace } from '../../shared/seal/padding.ts';
import { buildFrame, FRAME, frameBytes, writeSealFrame } from '../../shared/seal/response-frames.ts';
import { ChunkNonces } from '../../shared/seal/sequence.ts';
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
} from '../../shared/seal/suite.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';
import { expand, extract } from './hpke.ts';

const GCM = { authTagLength: TAG_BYTES };
const NOTHING = new Uint8Array(0);

/**
 * Of the chunk that is being sealed, the plaintext. Every buffer outside the heap costs the allocator as much as a seal, and the collector
 * frees them thousands at a time, in pauses that each stream feels.
 */
const PLAIN_ROOM = new Uint8Array(CHUNK_MAX_BYTES);

/** What gateways and clients between must see to obey. */
const OUTSIDE: ReadonlySet<string> = new Set([
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'openai-processing-ms',
]);

/** What an answer's keys are made of. Client and node have it; of a stream that may go on elsewhere the other candidates, too. */
export interface AnswerExportSecret {
  kid: Uint8Array;
  /** `enc`, or the `kid` where other candidates can make the keys as well. */
  salt: Uint8Array;
  secret: Uint8Array;
}

/** As RFC 9458 §4.4 makes them. */
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
  /** Read of the engine in this task; at most what one read of its socket gives. */
  #gathered: Uint8Array[] = [];
  /** Gives whole events alone, and those of an engine that goes on as the first one would have said them. */
  #joined: SplicedStream | undefined;

  constructor(secret: AnswerExportSecret, continues?: ContinuationPoint, random = randomBytes) {
    const nonce = random(RESPONSE_NONCE_BYTES);
    const { key, nonces } = answerKeys(secret, nonce);
    this.#key = key;
    this.#nonces = nonces;
    this.#continues = continues;
    this.#begun = buildFrame(FRAME.segment, secret.kid, nonce);
  }

  /** From now on what is gathered goes through it. */
  joins(joined: SplicedStream): void {
    this.#joined = joined;
  }

  /** Why the engine's answer is not read on: the client is to have no more of it. */
  get fault(): string | undefined {
    return this.#joined?.fault;
  }

  /** The engine's head goes inside; what is left outside tells no more than the sizes do. */
  head(status: number, headers: HeaderList, streams: boolean): HeaderList {
    const inside = headers.filter(([name, value]) => ANSWER_HEADERS.has(name) && PLAIN.test(value));
    const continues = this.#continues;
    this.#head = prependHead({ status, headers: inside, ...(continues !== undefined && { continues }) }, NOTHING);
    const type = ['content-type', streams ? SEALED_STREAM_TYPE : SEALED_TYPE] as const;
    return [type, ...headers.filter(([name]) => OUTSIDE.has(name))];
  }

  /** `flush` is called once for all that is gathered in one task, when the task is over. */
  gather(pieces: readonly Uint8Array[], flush: () => void): void {
    const joined = this.#joined;
    const whole = joined === undefined ? pieces : pieces.flatMap((piece) => joined.push(piece));
    if (whole.length === 0) return;
    if (this.#gathered.length === 0) queueMicrotask(flush);
    this.#gathered.push(...whole);
  }

  /** Frames for what was gathered. */
  gathered(): Uint8Array {
    const pieces = this.#gathered;
    this.#gathered = [];
    return pieces.length === 0
      ? NOTHING
      : this.chunk(pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces));
  }

  /** What is left, and where the answer is whole the frame that says so. */
  last(whole: boolean): Uint8Array {
    return whole ? concatBytes(this.gathered(), this.final()) : this.gathered();
  }

  /** Frames for a piece of the answer: one chunk for each 16 KiB of it. */
  chunk(content: Uint8Array): Uint8Array {
    const whole = this.#head.length === 0 ? content : concatBytes(this.#head, content);
    this.#head = NOTHING;
    const frames = [this.#begun];
    this.#begun = NOTHING;
    for (let at = 0; at < whole.length; at += CONTENT_MAX_BYTES)
      frames.push(this.#seal(FRAME.chunk, whole.subarray(at, at + CONTENT_MAX_BYTES)));
    return frames.length === 2 && frames[0] === NOTHING && frames[1] !== undefined ? frames[1] : concatBytes(...frames);
  }

  /** The whole answer came: without this frame no client takes it for complete. */
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

/** As the inside may hold it: see shared/seal/content.ts. */
const PLAIN = /^[\t\x20-\x7e]{0,4096}$/;
