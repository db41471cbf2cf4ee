import { Readable } from 'node:stream';
import { UploadedAudio } from '../../shared/openai/audio/uploaded-audio.ts';
import { EditedBody } from '../../shared/openai/body-edits.ts';
import { copyView } from '../../shared/wire/copy-view.ts';
import type { BodyEdit } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import { InboundStream } from '../../shared/wire/inbound-stream.ts';

/** Maximum bytes that the HTTP client buffers before its socket takes them. */
const AHEAD_BYTES = 64 * 1024;

/**
 * A request's body on its way from the tunnel to the engine. Checks offsets, applies edits, and returns credit as the
 * engine takes the bytes.
 * @param onConsumed called with the number of bytes for which the sender gets new credit
 */
export class EngineRequestBody {
  readonly incoming = new InboundStream();
  readonly #edited: EditedBody;
  /** The original body, kept so that it can be sent again with other edits. */
  #raw: { chunks: Uint8Array[]; bytes: number; max: number } | undefined;
  readonly #length: number | undefined;
  readonly #onConsumed: (bytes: number) => void;
  /** Received chunks in their edited form, with their original length. */
  #waiting: { original: number; pieces: Uint8Array[] }[] = [];
  #readable: Readable | undefined;
  #wantsMore = false;
  #audio: UploadedAudio | undefined;

  /** Maximum bytes of the edited body that are kept for use after the response; see `keep`. */
  #keepMax = 0;
  #retained: { chunks: Uint8Array[]; bytes: number } | undefined;

  /** @throws RangeError if edits overlap */
  constructor(edits: BodyEdit[], length: number | undefined, onConsumed: (bytes: number) => void) {
    this.#edited = new EditedBody(edits);
    this.#length = length;
    this.#onConsumed = onConsumed;
  }

  /** Handles DATA. @throws WireError */
  data(offset: number, bytes: Uint8Array): void {
    const fresh = this.incoming.accept(offset, bytes);
    const repeated = bytes.length - fresh.length;
    if (repeated > 0) this.#onConsumed(repeated);
    if (fresh.length === 0) return;
    const own = copyView(fresh);
    this.#keepRaw(own);
    this.#audio?.push(own);
    const pieces = this.#edited.push(own);
    this.#keep(pieces);
    this.#waiting.push({ original: fresh.length, pieces });
    this.#feed();
  }

  /** Measures the audio of a multipart body from now on. @param headers the request's headers */
  measureAudio(headers: HeaderList): void {
    this.#audio = UploadedAudio.of(headers.find(([name]) => name === 'content-type')?.[1]);
  }

  /** Milliseconds of audio in the body so far. */
  get audioMs(): number {
    return this.#audio?.ms ?? 0;
  }

  /** Keeps the edited body from now on. If it exceeds `max` bytes, nothing is kept. */
  keep(max: number): void {
    this.#keepMax = max;
    this.#retained = { chunks: [], bytes: 0 };
  }

  /** Keeps the original body from now on, until `dropRaw`. If it exceeds `max` bytes, nothing is kept. */
  keepRaw(max: number): void {
    this.#raw = { chunks: [], bytes: 0, max };
  }

  dropRaw(): void {
    this.#raw = undefined;
  }

  #keepRaw(chunk: Uint8Array): void {
    const raw = this.#raw;
    if (raw === undefined) return;
    raw.bytes += chunk.length;
    if (raw.bytes > raw.max) this.#raw = undefined;
    else raw.chunks.push(chunk);
  }

  /** The whole body with other edits. Undefined if it was not kept, or is incomplete. @throws RangeError */
  again(edits: BodyEdit[]): Buffer | undefined {
    if (this.#raw === undefined || !this.incoming.complete) return undefined;
    const edited = new EditedBody(edits);
    return Buffer.concat([...this.#raw.chunks.flatMap((chunk) => edited.push(chunk)), ...edited.end()]);
  }

  #keep(pieces: readonly Uint8Array[]): void {
    for (const piece of pieces) {
      if (this.#retained === undefined) return;
      this.#retained.bytes += piece.length;
      if (this.#retained.bytes > this.#keepMax) this.#retained = undefined;
      else this.#retained.chunks.push(piece);
    }
  }

  /** Returns the kept body, once. Undefined if it was too long, or is incomplete. */
  takeKept(): Uint8Array | undefined {
    const retained = this.#retained;
    this.#retained = undefined;
    return retained === undefined || !this.incoming.complete ? undefined : Buffer.concat(retained.chunks);
  }

  /** Handles END. @throws WireError, RangeError if an edit lies beyond the end */
  end(length: number): void {
    this.incoming.end(length);
    const pieces = this.#edited.end();
    this.#keep(pieces);
    this.#waiting.push({ original: 0, pieces });
    this.#feed();
  }

  /** The content-length for the engine; undefined: chunked. */
  get contentLength(): number | undefined {
    if (this.#length === undefined) return undefined;
    return this.#edited.lengthAfter(this.#length);
  }

  /** The body for the HTTP client: bytes if it is already complete, otherwise a stream. Call once. */
  open(): Buffer | Readable {
    if (this.incoming.complete) {
      const whole = Buffer.concat(this.#waiting.flatMap(({ pieces }) => pieces));
      this.#waiting = [];
      this.#consumed(this.incoming.buffered);
      return whole;
    }
    this.#readable = new Readable({
      highWaterMark: AHEAD_BYTES,
      read: () => {
        this.#wantsMore = true;
        this.#feed();
      },
    });
    this.#readable.on('error', () => {}); // the HTTP client destroys the stream when the engine disconnects
    return this.#readable;
  }

  /** Call when the engine reads no more of the body: drops the rest. */
  abandon(): void {
    this.#waiting = [];
    this.#readable?.destroy();
    this.#consumed(this.incoming.buffered);
  }

  #feed(): void {
    while (this.#wantsMore && this.#readable !== undefined) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      for (const piece of next.pieces) this.#wantsMore = this.#readable.push(piece);
      this.#consumed(next.original);
    }
    if (this.incoming.complete && this.#waiting.length === 0) this.#readable?.push(null);
  }

  #consumed(bytes: number): void {
    this.#onConsumed(this.incoming.consume(bytes));
  }
}
