/**
 * Server-sent events on bytes: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 * Lines end with CRLF, LF or CR, a blank line ends an event, and a chunk may end anywhere.
 */
import { concat } from '../collections/concat.ts';
import { BOM, ByteBuffer, decodeUtf8, encodeUtf8, startsWith } from './byte-search.ts';

/** Maximum length of an event that is parsed. A longer event is passed on without being parsed. */
const MAX_EVENT_BYTES = 1024 * 1024;

const LF = 0x0a;
const CR = 0x0d;
const DATA = encodeUtf8('data');
const EVENT = encodeUtf8('event');
const ERROR = encodeUtf8('error');
const NEWLINE = encodeUtf8('\n');

export interface SseEvent {
  /** The event as received, with its blank line. If the event is too long, only its beginning. */
  bytes: Uint8Array;
  tooLong: boolean;
  /** Offset after the event's blank line, in the chunk that completed the event. */
  end: number;
  /** True for the first event, the only one that a byte order mark may precede. */
  first: boolean;
}

/**
 * Finds the ends of events. The bytes of all events, followed by `pending`, are the bytes pushed. Exception: if a chunk
 * ends with the CR of a CRLF that ends an event, the event is emitted without the LF; see `endedWithCr`.
 */
export class SseSplitter {
  readonly #event: ByteBuffer;
  /** True if the current line is empty so far. */
  #lineEmpty = true;
  /** True if the last byte was a CR. An LF that follows belongs to the same line end. */
  #afterCr = false;
  /** True if the CR of `#afterCr` ended an event. */
  #crEndedEvent = false;
  #first = true;

  constructor(maxEventBytes = MAX_EVENT_BYTES) {
    this.#event = new ByteBuffer(maxEventBytes);
  }

  /** Number of bytes of the unfinished event. */
  get pendingBytes(): number {
    return this.#event.offered;
  }

  /** The beginning of the unfinished event, a view until the next push. */
  get pending(): Uint8Array {
    return this.#event.bytes();
  }

  /**
   * True if the last event ended with a CR at the end of a chunk. If the next chunk begins with an LF, this LF belongs
   * to that event.
   */
  get endedWithCr(): boolean {
    return this.#afterCr && this.#crEndedEvent;
  }

  /**
   * @param visit called for each event that this chunk completes. Events are not collected in an array, because for a
   * chunk of short lines the array would take many times the chunk's size.
   */
  push(chunk: Uint8Array, visit: (event: SseEvent) => void): void {
    if (chunk.length === 0) return;
    let from = 0;
    let line = 0;
    if (this.#afterCr && chunk[0] === LF) {
      line = 1;
      if (this.#crEndedEvent) from = 1;
    }
    this.#afterCr = false;
    let lf = chunk.indexOf(LF, line);
    let cr = chunk.indexOf(CR, line);
    for (;;) {
      if (lf >= 0 && lf < line) lf = chunk.indexOf(LF, line);
      if (cr >= 0 && cr < line) cr = chunk.indexOf(CR, line);
      const isCr = cr >= 0 && (lf < 0 || cr < lf);
      const at = isCr ? cr : lf;
      if (at < 0) break;
      const blank = this.#lineEmpty && at === line;
      line = isCr && chunk[at + 1] === LF ? at + 2 : at + 1;
      this.#lineEmpty = true;
      if (isCr && line === chunk.length && chunk[at + 1] !== LF) {
        this.#afterCr = true;
        this.#crEndedEvent = blank;
      }
      if (blank) {
        visit(this.#complete(chunk, from, line));
        from = line;
      }
    }
    if (line < chunk.length) this.#lineEmpty = false;
    if (from < chunk.length) this.#event.add(from === 0 ? chunk : chunk.subarray(from));
  }

  /** The event that was not complete when the stream ended, if any; its `end` is 0. */
  rest(): SseEvent | undefined {
    if (this.#event.offered === 0) return undefined;
    return { bytes: this.#event.bytes(), tooLong: this.#event.overflowed, end: 0, first: this.#first };
  }

  #complete(chunk: Uint8Array, from: number, end: number): SseEvent {
    const first = this.#first;
    this.#first = false;
    const here = chunk.subarray(from, end);
    if (this.#event.offered === 0) return { bytes: here, tooLong: false, end, first };
    this.#event.add(here);
    const tooLong = this.#event.overflowed;
    return { bytes: this.#event.take(), tooLong, end, first };
  }
}

export interface SseFields {
  /** The `event` field; undefined if absent. */
  event?: string;
  /** The `data` lines joined by LF; undefined if there are none, as in a comment. */
  data?: Uint8Array;
  /**
   * True if there is an `error` field. It is not in the standard: llama.cpp reports its failures in it, and clients
   * skip it.
   */
  error?: true;
}

function lineEnd(bytes: Uint8Array, from: number): number {
  for (let i = from; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === LF || byte === CR) return i;
  }
  return bytes.length;
}

/** Offset of the value if the line has this field; otherwise undefined. */
function valueAt(bytes: Uint8Array, line: number, end: number, name: Uint8Array): number | undefined {
  const colon = line + name.length;
  if (colon > end || !startsWith(bytes, name, line)) return undefined;
  if (colon === end) return end;
  if (bytes[colon] !== 0x3a) return undefined;
  return colon + 1 < end && bytes[colon + 1] === 0x20 ? colon + 2 : colon + 1;
}

/** The fields of one event; `id` and `retry` are not needed here. */
export function sseFields(event: { bytes: Uint8Array; first: boolean }): SseFields {
  const { bytes, first } = event;
  const fields: SseFields = {};
  const more: Uint8Array[] = [];
  let line = first && startsWith(bytes, BOM) ? BOM.length : 0;
  while (line < bytes.length) {
    const end = lineEnd(bytes, line);
    const data = valueAt(bytes, line, end, DATA);
    if (data !== undefined) {
      const value = bytes.subarray(data, end);
      if (fields.data === undefined) fields.data = value;
      else more.push(NEWLINE, value);
    } else {
      const name = valueAt(bytes, line, end, EVENT);
      if (name !== undefined) fields.event = decodeUtf8(bytes.subarray(name, end));
      else if (valueAt(bytes, line, end, ERROR) !== undefined) fields.error = true;
    }
    // A CRLF counts as two line ends here. The empty line between CR and LF has no field, so it changes nothing.
    line = end + 1;
  }
  if (fields.data !== undefined && more.length > 0) fields.data = concat([fields.data, ...more]);
  return fields;
}
