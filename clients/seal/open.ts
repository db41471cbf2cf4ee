/** Opens a sealed answer as it comes. */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { concat, textOf } from '../../shared/seal/bytes.ts';
import { type AnswerHead, readAnswerContent } from '../../shared/seal/content.ts';
import { SealError } from '../../shared/seal/error.ts';
import { unpadded } from '../../shared/seal/padding.ts';
import { FRAME, FrameSplitter, type ResponseFrame } from '../../shared/seal/response-frames.ts';
import { ChunkNonces } from '../../shared/seal/sequence.ts';
import {
  AAD_CHUNK,
  AAD_FINAL,
  AEAD_NONCE_BYTES,
  KID_BYTES,
  LABEL_KEY,
  LABEL_NONCE,
  RESPONSE_NONCE_BYTES,
} from '../../shared/seal/suite.ts';
import type { SealNode } from './candidates.ts';
import { SealClientError } from './error.ts';
import type { AnswerSecret } from './seal.ts';

const { subtle } = globalThis.crypto;

/** The end, a piece of the answer, or what the gateway says in its own name. */
export type Opened =
  | { kind: 'head'; head: AnswerHead; node: SealNode }
  | { kind: 'data'; bytes: Uint8Array }
  | { kind: 'note'; text: string }
  | { kind: 'end' };

export class AnswerOpener {
  readonly #secrets: ReadonlyMap<string, AnswerSecret>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #splitter = new FrameSplitter();
  #frames: ResponseFrame[] = [];
  #node: SealNode | undefined;
  #key: Awaited<ReturnType<typeof subtle.deriveKey>> | undefined;
  #nonces: ChunkNonces | undefined;
  #hasHead = false;
  #waiting: Uint8Array | undefined;

  constructor(body: ReadableStream<Uint8Array>, secrets: ReadonlyMap<string, AnswerSecret>) {
    this.#reader = body.getReader();
    this.#secrets = secrets;
  }

  /** @throws SealClientError not_opened, cut; what the connection throws */
  async next(): Promise<Opened> {
    for (;;) {
      const bytes = this.#waiting;
      this.#waiting = undefined;
      if (bytes !== undefined && bytes.length > 0) return { kind: 'data', bytes };
      const frame = this.#frames.shift();
      if (frame === undefined) {
        await this.#read();
        continue;
      }
      const opened = await this.#open(frame).catch(refuse);
      if (opened !== undefined) return opened;
    }
  }

  cancel(reason?: unknown): Promise<void> {
    return this.#reader.cancel(reason);
  }

  async #read(): Promise<void> {
    const { done, value } = await this.#reader.read();
    if (done) throw new SealClientError('cut', 'The answer ended before its last chunk.');
    try {
      this.#frames = this.#splitter.push(value);
    } catch (cause) {
      refuse(cause);
    }
  }

  async #open({ type, payload }: ResponseFrame): Promise<Opened | undefined> {
    switch (type) {
      case FRAME.note:
        return payload.length === 0 ? undefined : { kind: 'note', text: textOf(payload) };
      case FRAME.segment:
        return this.#begin(payload);
      case FRAME.chunk:
        return this.#content(unpadded(await this.#decrypt(AAD_CHUNK, payload)));
      case FRAME.final:
        if (unpadded(await this.#decrypt(AAD_FINAL, payload)).length > 0 || !this.#hasHead)
          throw new SealError('malformed', 'a last chunk with content');
        return { kind: 'end' };
    }
  }

  /** RFC 9458 §4.4. A second part is none that was asked for. */
  async #begin(payload: Uint8Array): Promise<undefined> {
    const kid = toBase64url(payload.subarray(0, KID_BYTES));
    const nonce = payload.subarray(KID_BYTES);
    const secret = this.#secrets.get(kid);
    if (this.#node !== undefined || secret === undefined || nonce.length !== RESPONSE_NONCE_BYTES)
      throw new SealError('malformed', 'a part of no node that was asked');
    this.#node = secret.node;
    const base = await subtle.importKey('raw', new Uint8Array(secret.secret), 'HKDF', false, [
      'deriveBits',
      'deriveKey',
    ]);
    const salt = concat(secret.enc, nonce);
    const hkdf = (info: Uint8Array) => ({ name: 'HKDF', hash: 'SHA-256', salt, info: new Uint8Array(info) });
    this.#key = await subtle.deriveKey(hkdf(LABEL_KEY), base, { name: 'AES-GCM', length: 256 }, false, ['decrypt']);
    this.#nonces = new ChunkNonces(
      new Uint8Array(await subtle.deriveBits(hkdf(LABEL_NONCE), base, AEAD_NONCE_BYTES * 8)),
    );
    return undefined;
  }

  async #decrypt(aad: Uint8Array, sealed: Uint8Array): Promise<Uint8Array> {
    if (this.#key === undefined || this.#nonces === undefined)
      throw new SealError('malformed', 'a chunk before its part');
    const algorithm = { name: 'AES-GCM', iv: this.#nonces.next(), additionalData: new Uint8Array(aad) };
    return new Uint8Array(await subtle.decrypt(algorithm, this.#key, new Uint8Array(sealed)));
  }

  #content(content: Uint8Array): Opened | undefined {
    if (this.#hasHead || this.#node === undefined)
      return content.length === 0 ? undefined : { kind: 'data', bytes: content };
    this.#hasHead = true;
    const { body, ...head } = readAnswerContent(content);
    this.#waiting = body;
    return { kind: 'head', head, node: this.#node };
  }
}

/** One word for whatever does not fit. */
function refuse(cause: unknown): never {
  throw new SealClientError('not_opened', 'The answer is not what a node sealed.', { cause });
}
