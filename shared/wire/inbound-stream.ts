import { STREAM_WINDOW_BYTES, STREAM_WINDOW_MAX_BYTES } from './protocol-constants.ts';
import type { WindowPool } from './window-pool.ts';
import { WireError } from './wire-error.ts';

/**
 * The receiving side of one direction of a stream. Counts the bytes that arrived, the bytes that the next hop took, and
 * the bytes that the sender may still send. Holds no bytes.
 */
export class InboundStream {
  #received: number;
  #consumed: number;
  #limit: number;
  #window: number;
  /** Value of `consumed` when the window last grew. */
  #grownAt: number;
  #length: number | undefined;
  /** Number of buffered bytes that arrived over a previous socket. The current socket gets no credit for them. */
  #foreign = 0;

  constructor(options: { offset?: number } = {}) {
    const offset = options.offset ?? 0;
    this.#received = offset;
    this.#consumed = offset;
    this.#grownAt = offset;
    this.#window = STREAM_WINDOW_BYTES;
    this.#limit = offset + this.#window;
  }

  get received(): number {
    return this.#received;
  }

  get consumed(): number {
    return this.#consumed;
  }

  /** Number of bytes that arrived and were not passed on yet. */
  get buffered(): number {
    return this.#received - this.#consumed;
  }

  get complete(): boolean {
    return this.#length === this.#received;
  }

  /**
   * Accepts DATA at `offset`. Returns only the new bytes, because a resumed sender may repeat some.
   * @throws WireError bad_offset for a gap or bytes after the end, over_credit for more than was granted
   */
  accept(offset: number, bytes: Uint8Array): Uint8Array {
    const end = offset + bytes.length;
    if (offset > this.#received)
      throw new WireError('bad_offset', `DATA at byte ${offset}, but byte ${this.#received} comes next`);
    if (end > this.#limit)
      throw new WireError('over_credit', `DATA up to byte ${end}, but credit ends at byte ${this.#limit}`);
    if (this.#length !== undefined && end > this.#length) throw new WireError('bad_offset', 'DATA after END');
    if (end <= this.#received) return bytes.subarray(0, 0);
    const fresh = bytes.subarray(this.#received - offset);
    this.#received = end;
    return fresh;
  }

  /**
   * Accepts END: the body has `length` bytes. @throws WireError bad_offset if not all of them have arrived, because END
   * never overtakes DATA
   */
  end(length: number): void {
    if (length !== this.#received)
      throw new WireError('bad_offset', `END at byte ${length}, but ${this.#received} bytes arrived`);
    this.#length = length;
  }

  /**
   * Call when the next hop has taken `bytes`, or they were discarded. Returns the number of bytes for which the current
   * socket gets credit.
   */
  consume(bytes: number): number {
    const taken = Math.min(bytes, this.buffered);
    const foreign = Math.min(this.#foreign, taken);
    this.#consumed += taken;
    this.#foreign -= foreign;
    return taken - foreign;
  }

  /**
   * Call when the socket is given up, although it may survive. The socket gets credit for the stream's buffered bytes
   * now, and none when they are consumed. Returns the number of bytes for which it gets credit.
   */
  disown(): number {
    const own = this.buffered - this.#foreign;
    this.#foreign = this.buffered;
    return own;
  }

  /**
   * Discards the buffered bytes, which this end will ask the sender to resend. Returns the number of bytes for which
   * the socket gets credit.
   */
  drop(): number {
    const own = this.buffered - this.#foreign;
    this.#received = this.#consumed;
    this.#foreign = 0;
    this.#length = undefined;
    return own;
  }

  /**
   * Call when the stream is claimed again. The sender gets an initial window after the bytes that have arrived. Before
   * this call, `shrink` must return the growth to the old socket's pool. `sameSocket`: the claim came over the same
   * socket, which still gets credit for the buffered bytes.
   */
  resume(sameSocket = false): void {
    if (!sameSocket) this.#foreign = this.buffered;
    this.#window = STREAM_WINDOW_BYTES;
    this.#grownAt = this.#consumed;
    this.#limit = this.#received + STREAM_WINDOW_BYTES;
  }

  /**
   * The credit to send now; undefined if it is less than half of the initial window. Waiting for half of a grown window
   * would be too long: on a long path a fast sender could stop until the credit arrives. The window doubles if the
   * reader has taken a whole window and no byte waits, because then the window slows the sender down, not the reader.
   * The growth is taken from `pool`.
   */
  credit(pool: WindowPool): { consumed: number; window: number } | undefined {
    if (this.#length !== undefined) return undefined;
    if (this.buffered === 0 && this.#consumed - this.#grownAt >= this.#window) {
      this.#window += pool.take(Math.min(this.#window, STREAM_WINDOW_MAX_BYTES - this.#window));
      this.#grownAt = this.#consumed;
    }
    const limit = this.#consumed + this.#window;
    if (limit - this.#limit < STREAM_WINDOW_BYTES / 2) return undefined;
    this.#limit = limit;
    return { consumed: this.#consumed, window: this.#window };
  }

  /** Returns the window's growth to the pool, because the stream has ended or its reader has stalled. */
  shrink(pool: WindowPool): void {
    pool.give(this.#window - STREAM_WINDOW_BYTES);
    this.#window = STREAM_WINDOW_BYTES;
  }
}
