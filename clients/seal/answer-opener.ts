/** Opens a sealed response while it arrives. */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { ChunkNonces } from '../../shared/seal/chunk-nonces.ts';
import { removePadding } from '../../shared/seal/chunk-padding.ts';
import {
  AAD_CHUNK,
  AAD_FINAL,
  AEAD_KEY_BYTES,
  AEAD_NONCE_BYTES,
  CONTINUED_MAX_BYTES,
  KID_BYTES,
  LABEL_KEY,
  LABEL_NONCE,
  RESPONSE_NONCE_BYTES,
} from '../../shared/seal/hpke-suite.ts';
import { concatBytes, utf8Text } from '../../shared/seal/portable-bytes.ts';
import { FRAME, FrameSplitter, frameBytes, type ResponseFrame } from '../../shared/seal/response-frames.ts';
import { SealError } from '../../shared/seal/seal-error.ts';
import { type AnswerHead, type ContinuationPoint, readAnswerContent } from '../../shared/seal/sealed-plaintext.ts';
import { type ChunkKey, chunkKey } from './chunk-key.ts';
import type { SealNode } from './pinned-candidates.ts';
import { SealClientError } from './seal-client-error.ts';
import type { AnswerSecret, SealedRequest } from './seal-request.ts';

const { subtle } = globalThis.crypto;

/** A part of the response, its end, or an unsigned message of the gateway (`note`). */
export type OpenedPart =
  | { kind: 'head'; head: AnswerHead; node: SealNode }
  /** Another node continues where the previous one broke off. */
  | { kind: 'continued'; node: SealNode }
  | { kind: 'data'; bytes: Uint8Array }
  | { kind: 'note'; text: string }
  | { kind: 'end' };

export class AnswerOpener {
  readonly #secrets: ReadonlyMap<string, AnswerSecret>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #splitter = new FrameSplitter();
  /** Opened parts of the last chunk of bytes that was read. They are bounded by the content of that chunk. */
  #opened: OpenedPart[] = [];
  /** The failure that `next` throws after it has returned the parts before the failure. */
  #failed: SealClientError | undefined;
  readonly #resume: boolean;
  #part: Part | undefined;
  /** The end of the previous node's part; undefined in the first part. */
  #before: ContinuationPoint | undefined;
  /** Nodes that sealed a part, by `kid`. Each node may seal one part, so there are at most as many parts as nodes. */
  readonly #answered = new Set<string>();
  /** Bytes of all frames so far, counted as gateways count them. */
  #bytes = 0;
  #ended = false;

  constructor(body: ReadableStream<Uint8Array>, { secrets, resume }: Pick<SealedRequest, 'secrets' | 'resume'>) {
    this.#reader = body.getReader();
    this.#secrets = secrets;
    this.#resume = resume;
  }

  /**
   * The next part. Data that arrived in one piece is returned as one piece.
   * @throws SealClientError not_opened, cut; errors of the connection
   */
  async next(): Promise<OpenedPart> {
    for (;;) {
      const opened = this.#opened.shift();
      if (opened !== undefined) return opened;
      if (this.#failed !== undefined) throw this.#failed;
      const { done, value } = await this.#reader.read();
      if (done) throw new SealClientError('cut', 'The response ended before its last chunk.');
      await this.#take(value);
    }
  }

  cancel(reason?: unknown): Promise<void> {
    return this.#reader.cancel(reason);
  }

  async #take(piece: Uint8Array): Promise<void> {
    const contents: Uint8Array[] = [];
    const flush = () => {
      if (contents.length > 0)
        this.#opened.push({
          kind: 'data',
          bytes: contents.length === 1 && contents[0] ? contents[0] : concatBytes(...contents),
        });
      contents.length = 0;
    };
    try {
      for (const { type, payload } of this.#splitter.push(piece)) {
        if (type !== FRAME.note) this.#bytes += frameBytes(payload.length);
        if (type === FRAME.chunk) {
          const opening = this.#decrypt(AAD_CHUNK, payload);
          const content = this.#content(removePadding(opening instanceof Promise ? await opening : opening));
          if (content.length > 0) contents.push(content);
          continue;
        }
        flush();
        await this.#other({ type, payload });
      }
    } catch (cause) {
      this.#failed = new SealClientError('not_opened', 'The response was not sealed by a node.', { cause });
      // Otherwise the node would continue to generate.
      this.#reader.cancel(cause).catch(() => {});
    }
    flush();
  }

  async #other({ type, payload }: ResponseFrame): Promise<void> {
    if (type === FRAME.segment) return this.#begin(payload);
    if (type === FRAME.note) {
      if (payload.length > 0) this.#opened.push({ kind: 'note', text: utf8Text(payload) });
      return;
    }
    if (removePadding(await this.#decrypt(AAD_FINAL, payload)).length > 0 || !this.#part?.chunks)
      throw new SealError('malformed', 'a last chunk with content');
    this.#ended = true;
    this.#opened.push({ kind: 'end' });
  }

  /** Derives the keys of a part (RFC 9458 §4.4). A second part is accepted only if the request allowed resuming. */
  async #begin(payload: Uint8Array): Promise<void> {
    const kid = toBase64url(payload.subarray(0, KID_BYTES));
    const nonce = payload.subarray(KID_BYTES);
    const secret = this.#secrets.get(kid);
    const before = this.#part;
    const isOdd = before !== undefined && (!this.#resume || this.#ended || before.chunks === 0);
    if (isOdd || secret === undefined || nonce.length !== RESPONSE_NONCE_BYTES || this.#answered.has(kid))
      throw new SealError('malformed', 'a part from a node that did not receive the request');
    if (before !== undefined && this.#bytes - frameBytes(payload.length) > CONTINUED_MAX_BYTES)
      throw new SealError('too_large', 'the response is too long to be continued by another node');
    this.#answered.add(kid);
    this.#before = before && { segment: before.segment, chunks: before.chunks };
    const base = await subtle.importKey('raw', new Uint8Array(secret.secret), 'HKDF', false, ['deriveBits']);
    const salt = concatBytes(secret.salt, nonce);
    const bits = async (info: Uint8Array, bytes: number) => {
      const hkdf = { name: 'HKDF', hash: 'SHA-256', salt, info: new Uint8Array(info) };
      return new Uint8Array(await subtle.deriveBits(hkdf, base, bytes * 8));
    };
    this.#part = {
      node: secret.node,
      segment: toBase64url(nonce),
      key: await chunkKey(await bits(LABEL_KEY, AEAD_KEY_BYTES)),
      nonces: new ChunkNonces(await bits(LABEL_NONCE, AEAD_NONCE_BYTES)),
      chunks: 0,
    };
  }

  #decrypt(aad: Uint8Array, sealed: Uint8Array): Uint8Array | Promise<Uint8Array> {
    if (this.#part === undefined || this.#ended) throw new SealError('malformed', 'a chunk outside its part');
    return this.#part.key.open(this.#part.nonces.next(), aad, sealed);
  }

  /**
   * Removes the head of a part from its first chunk. The head must state that the part continues exactly at the end of
   * the previous part.
   */
  #content(content: Uint8Array): Uint8Array {
    const part = this.#part;
    if (part === undefined || part.chunks++ > 0) return content;
    const { body, ...head } = readAnswerContent(content);
    const { continues } = head;
    if (continues?.segment !== this.#before?.segment || continues?.chunks !== this.#before?.chunks)
      throw new SealError('malformed', 'a part that does not continue at this position');
    const kind = this.#before === undefined ? 'head' : 'continued';
    this.#opened.push(kind === 'head' ? { kind, head, node: part.node } : { kind, node: part.node });
    return body;
  }
}

/** The part of a response that one node sealed. */
interface Part {
  node: SealNode;
  segment: string;
  key: ChunkKey;
  nonces: ChunkNonces;
  /** Number of opened chunks. */
  chunks: number;
}
