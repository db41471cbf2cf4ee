/** One answer that goes from an outlet to its client. */
import type { Socket } from 'node:net';
import { WireError } from '../../../shared/wire/error.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';
import { chunkOf } from './outlet-marker.ts';

/** Of one stream, on its way: what a client that stops reading makes us hold. */
export const OUTLET_WINDOW_BYTES = 128 * 1024;
/** Credit is given in steps of this, so that a short answer causes none. */
const CREDIT_STEP_BYTES = OUTLET_WINDOW_BYTES / 4;

const NOTHING = Buffer.alloc(0);
const LAST_CHUNK = Buffer.from('0\r\n\r\n');

/** The stream on the side of its object. */
interface OutflowSource {
  credit(consumed: number, window: number): void;
  /** The client left. */
  cancel(): void;
}

interface OutflowOptions {
  client: Socket;
  /** The head, and what came with it. Written when the stream is taken: before, a reset leaves the client without any answer. */
  opening: Buffer;
  /** Each piece is a chunk, with a last one at the end; else pieces as they are. */
  chunked: boolean;
  /** How many chunks went by, for all connections together. */
  traffic: { chunks: number };
  /** The last chunk is written. */
  ended(): void;
  /** There will be no end: the client must see that. */
  broke(): void;
}

/** Offsets count what came from the object, without the part that was in the opening. */
export class Outflow {
  readonly #options: OutflowOptions;
  /** Undefined before the stream is taken and after its end. */
  #source: OutflowSource | undefined;
  #received = 0;
  /** What the client has no room for: gathered, since pieces of a byte each would take a hundred times their size. */
  #waiting: FrameWriter | undefined;
  /** Up to this offset the object may send. */
  #granted = 0;

  constructor(options: OutflowOptions) {
    this.#options = options;
  }

  /** The stream is not announced yet. */
  wait(cancel: () => void): void {
    this.#source = { credit: () => {}, cancel };
  }

  /** The stream is taken: its bytes come from now on. */
  begin(source: OutflowSource): void {
    this.#source = source;
    this.#write(this.#options.opening);
    this.#granted = OUTLET_WINDOW_BYTES;
    source.credit(0, OUTLET_WINDOW_BYTES);
  }

  /** The stream was at its end when it was taken. */
  beginEnded(): void {
    this.#write(this.#options.opening);
    this.end(0);
  }

  /** Copies `bytes`. Throws WireError for bytes that do not follow or that nobody allowed. */
  data(offset: number, bytes: Uint8Array): void {
    if (offset !== this.#received) throw new WireError('bad_offset', `at ${offset}, not ${this.#received}`);
    if (offset + bytes.length > this.#granted) throw new WireError('over_credit', 'more than the window');
    if (bytes.length === 0) return;
    this.#received += bytes.length;
    if (this.#options.client.writableLength === 0) this.#writePiece(bytes);
    else this.#gather(bytes);
    this.#credit();
  }

  /** Throws WireError when bytes are missing before it. */
  end(offset: number): void {
    if (offset !== this.#received) throw new WireError('bad_offset', `ends at ${offset}, not ${this.#received}`);
    this.#source = undefined;
    this.#writeWaiting();
    if (this.#options.chunked) this.#write(LAST_CHUNK);
    this.#options.ended();
  }

  break(): void {
    this.#source = undefined;
    this.#options.broke();
  }

  /** The client left. Idempotent. */
  cancel(): void {
    const source = this.#source;
    this.#source = undefined;
    source?.cancel();
  }

  /** The client took what was waiting for it. */
  drained(): void {
    this.#writeWaiting();
    this.#credit();
  }

  #gather(bytes: Uint8Array): void {
    if (this.#waiting === undefined) {
      this.#waiting = new FrameWriter();
      // Below the high-water mark there is no `drain` to come: this tells when the client has taken what is before.
      this.#options.client.write(NOTHING, () => this.drained());
    }
    this.#waiting.bytes(bytes);
  }

  #writeWaiting(): void {
    if (this.#waiting === undefined || this.#waiting.length === 0) return;
    this.#writePiece(this.#waiting.message);
    this.#waiting = undefined;
  }

  #writePiece(bytes: Uint8Array): void {
    this.#write(this.#options.chunked ? chunkOf(bytes) : Buffer.from(bytes));
  }

  #write(bytes: Buffer): void {
    this.#options.traffic.chunks += 1;
    this.#options.client.write(bytes);
  }

  /** What is below the high-water mark waits without a `drain` to come; it counts with the next bytes. */
  #credit(): void {
    const { client } = this.#options;
    if (client.writableNeedDrain) return;
    const consumed = Math.max(0, this.#received - client.writableLength - (this.#waiting?.length ?? 0));
    if (consumed + OUTLET_WINDOW_BYTES - this.#granted < CREDIT_STEP_BYTES) return;
    this.#granted = consumed + OUTLET_WINDOW_BYTES;
    this.#source?.credit(consumed, OUTLET_WINDOW_BYTES);
  }
}
