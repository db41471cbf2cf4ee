import { copyView } from './copy-view.ts';
import { RETAINED_TAIL_BYTES, STREAM_WINDOW_BYTES } from './protocol-constants.ts';
import { WireError } from './wire-error.ts';

const EMPTY = new Uint8Array(0);

/** Pieces up to this size are copied together into slabs. */
const SMALL_BYTES = 2 * 1024;
const SLAB_BYTES = 8 * 1024;

/**
 * The sending side of one direction of a stream. Bytes have absolute offsets. They are kept until the peer has passed
 * them on, and for `tail` bytes longer, so that a new socket or a new object can continue after the break.
 *
 *     base ……… consumed ……… sent ……… end
 *
 * From `base` to `consumed`: passed on by the peer, kept for a claim. From `consumed` to `sent`: not yet passed on by
 * the peer. From `sent` to `end`: pushed by the producer and not sent yet.
 *
 * Kept bytes ≤ tail + credit + bytes that the producer pushed ahead, which the producer must limit with `unsent`.
 */
export class OutboundStream {
  readonly #tail: number;
  #chunks: Uint8Array[] = [];
  /** Chunks before this index are released. */
  #first = 0;
  /** Offset of the first byte that is kept. */
  #base = 0;
  #end = 0;
  #sent = 0;
  /** Position of the next byte to send: the chunk's index, and the offset at which that chunk begins. */
  #cursor = 0;
  #cursorStart = 0;
  #consumed = 0;
  #limit: number;
  #ended = false;
  /** Buffer into which small pieces are copied. Its first `#slabUsed` bytes are used. */
  #slab = EMPTY;
  #slabUsed = 0;

  constructor(options: { tail?: number; offset?: number } = {}) {
    const offset = options.offset ?? 0;
    this.#tail = options.tail ?? RETAINED_TAIL_BYTES;
    this.#base = offset;
    this.#end = offset;
    this.#sent = offset;
    this.#cursorStart = offset;
    this.#consumed = offset;
    this.#limit = offset + STREAM_WINDOW_BYTES;
  }

  get sent(): number {
    return this.#sent;
  }

  /** Number of bytes pushed so far; after the end, the length of the body. */
  get length(): number {
    return this.#end;
  }

  get consumed(): number {
    return this.#consumed;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** True if the body has ended and all of its bytes were sent. */
  get drained(): boolean {
    return this.#ended && this.#sent === this.#end;
  }

  /** Number of bytes kept in memory. */
  get kept(): number {
    return this.#end - this.#base;
  }

  /** Number of bytes that wait to be sent. */
  get unsent(): number {
    return this.#end - this.#sent;
  }

  /** True if bytes are waiting and the peer has granted credit for them. */
  get sendable(): boolean {
    return this.#sent < this.#end && this.#sent < this.#limit;
  }

  push(bytes: Uint8Array): void {
    if (this.#ended) throw new WireError('bad_state', 'bytes after the end of a body');
    if (bytes.length === 0) return;
    this.#end += bytes.length;
    if (bytes.length <= SMALL_BYTES) this.#append(bytes);
    else this.#chunks.push(copyView(bytes));
  }

  /**
   * Copies small pieces into one buffer. So all pieces that arrive between two sends become one frame, and a token does
   * not keep the whole buffer in memory with which it was read.
   */
  #append(bytes: Uint8Array): void {
    const last = this.#chunks.length - 1;
    if (this.#slabUsed + bytes.length > this.#slab.length) this.#renewSlab(bytes.length);
    const open = this.#chunks[last];
    this.#slab.set(bytes, this.#slabUsed);
    const start = this.#slabUsed;
    this.#slabUsed += bytes.length;
    const extends_ = open !== undefined && last >= this.#first && open.buffer === this.#slab.buffer;
    if (extends_ && open.byteOffset + open.length === start) {
      this.#chunks[last] = this.#slab.subarray(open.byteOffset, this.#slabUsed);
    } else {
      this.#chunks.push(this.#slab.subarray(start, this.#slabUsed));
    }
  }

  /**
   * The first slab is as large as its first piece, because most bodies are one piece. If more bytes arrive, the content
   * moves to a larger slab.
   */
  #renewSlab(bytes: number): void {
    const last = this.#chunks.length - 1;
    const open = this.#chunks[last];
    const isFirst = this.#slab === EMPTY;
    const begun = !isFirst && this.#slab.length < SLAB_BYTES && open?.buffer === this.#slab.buffer ? open : EMPTY;
    this.#slab = new Uint8Array(isFirst ? bytes : SLAB_BYTES);
    this.#slab.set(begun);
    this.#slabUsed = begun.length;
    if (begun !== EMPTY) this.#chunks[last] = this.#slab.subarray(0, begun.length);
  }

  finish(): void {
    this.#ended = true;
  }

  /** Returns the next bytes to send, at most `max`, from one chunk. Undefined if no bytes or no credit are left. */
  take(max: number): { offset: number; bytes: Uint8Array } | undefined {
    const room = Math.min(max, this.#limit - this.#sent);
    if (room <= 0 || this.#sent === this.#end) return undefined;
    let chunk = this.#chunks[this.#cursor];
    while (chunk !== undefined && this.#cursorStart + chunk.length <= this.#sent) {
      this.#cursorStart += chunk.length;
      chunk = this.#chunks[++this.#cursor];
    }
    if (chunk === undefined) return undefined;
    const from = this.#sent - this.#cursorStart;
    const bytes = chunk.subarray(from, from + room);
    const offset = this.#sent;
    this.#sent += bytes.length;
    return { offset, bytes };
  }

  /**
   * Call when the peer reports that it has passed on `consumed` bytes and accepts `window` more. @throws WireError
   * bad_offset if `consumed` exceeds the bytes that were sent
   */
  credit(consumed: number, window: number): void {
    if (consumed > this.#sent)
      throw new WireError('bad_offset', `CREDIT for byte ${consumed}, but only ${this.#sent} bytes were sent`);
    if (consumed > this.#consumed) this.#consumed = consumed;
    this.#limit = Math.max(this.#limit, consumed + window);
    this.#release(this.#consumed - this.#tail);
  }

  /** The earliest offset to which `rewind` can return. */
  get oldest(): number {
    return this.#base;
  }

  /**
   * Continues sending at `offset`, because the peer, or the object that replaced it, has no byte after `offset`.
   * Returns false if bytes after `offset` were already released, or if `offset` is beyond the end.
   */
  rewind(offset: number, window = STREAM_WINDOW_BYTES): boolean {
    if (offset < this.#base || offset > this.#end) return false;
    this.#sent = offset;
    this.#cursor = this.#first;
    this.#cursorStart = this.#base;
    this.#consumed = Math.min(this.#consumed, offset);
    this.#limit = offset + window;
    return true;
  }

  #release(upTo: number): void {
    let chunk = this.#chunks[this.#first];
    while (chunk !== undefined && this.#base + chunk.length <= upTo) {
      this.#chunks[this.#first] = EMPTY;
      this.#base += chunk.length;
      chunk = this.#chunks[++this.#first];
    }
    if (this.#cursor < this.#first) {
      this.#cursor = this.#first;
      this.#cursorStart = this.#base;
    }
    if (this.#first > 64 && this.#first * 2 > this.#chunks.length) {
      this.#chunks.splice(0, this.#first);
      this.#cursor -= this.#first;
      this.#first = 0;
    }
  }
}
