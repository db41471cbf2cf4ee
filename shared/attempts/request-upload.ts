import { neverRejects } from '../timing/in-background.ts';
import type { Link } from '../wire/link.ts';
import { OutboundStream } from '../wire/outbound-stream.ts';
import { STREAM_WINDOW_BYTES } from '../wire/protocol-constants.ts';
import type { AttemptBody } from './attempt-request.ts';
import { PieceReader } from './piece-reader.ts';

/**
 * Sends the request's body to the agent, from memory or from a stream that is read as the agent grants credit. The
 * upload starts with the first OPEN frame. After a later OPEN frame the agent reports how many bytes it has, and the
 * upload continues there.
 */
export class RequestUpload {
  /** Length of the body, if it is known before the end. */
  readonly length: number | undefined;
  readonly #reader: PieceReader | undefined;
  readonly #onBroken: () => void;
  #outgoing = new OutboundStream({ tail: 0 });
  /** Bytes that the agent already has, which a restarted stream must skip. */
  #skip = 0;
  #reading = false;
  #closed = false;
  #attached: { link: Link; stream: number } | undefined;

  /** `onBroken` is called when the client breaks the body off. */
  constructor(body: AttemptBody, length: number | undefined, onBroken: () => void) {
    this.#onBroken = onBroken;
    if (body instanceof ReadableStream) {
      this.length = length;
      this.#reader = new PieceReader(body);
      return;
    }
    this.length = body?.length ?? 0;
    if (body !== null) this.#outgoing.push(body);
    this.#outgoing.finish();
  }

  /** True if no byte is left to send. */
  get done(): boolean {
    return this.#closed || this.#outgoing.drained;
  }

  attach(link: Link, stream: number): void {
    this.#attached = { link, stream };
    link.attach(stream, {
      outgoing: this.#outgoing,
      ending: () => [{ type: 'end', stream, offset: this.#outgoing.length }],
      refill: () => this.#refill(),
    });
    this.#refill();
  }

  /**
   * Call when the agent reports that it has the first `offset` bytes. `fresh`: this object has sent no byte yet, so the
   * agent has those bytes from a previous object. Returns false if the bytes after `offset` are not available.
   */
  continueAt(offset: number, fresh: boolean): boolean {
    if (!fresh || this.#reader === undefined || offset < this.#outgoing.length) return this.#outgoing.rewind(offset);
    this.#skip = offset - this.#outgoing.length;
    this.#outgoing = new OutboundStream({ tail: 0, offset });
    return true;
  }

  #refill(): void {
    if (this.#reader !== undefined) neverRejects(this.#read(this.#reader));
  }

  /** Reads while fewer than STREAM_WINDOW_BYTES are unsent, so that little of the body waits in memory. */
  async #read(reader: PieceReader): Promise<void> {
    if (this.#reading || this.#outgoing.ended) return;
    this.#reading = true;
    try {
      while (!this.#closed && this.#outgoing.unsent < STREAM_WINDOW_BYTES) {
        const value = await reader.read();
        if (value === undefined) this.#outgoing.finish();
        else this.#outgoing.push(this.#unskipped(value));
        this.#attached?.link.kick(this.#attached.stream);
        if (value === undefined) break;
      }
    } catch {
      this.#onBroken();
    } finally {
      this.#reading = false;
    }
  }

  #unskipped(bytes: Uint8Array): Uint8Array {
    const rest = bytes.subarray(this.#skip);
    this.#skip -= bytes.length - rest.length;
    return rest;
  }

  /** Stops the upload: the rest is not needed. */
  close(): void {
    this.#closed = true;
    this.#reader?.cancel().catch(() => {});
  }
}
