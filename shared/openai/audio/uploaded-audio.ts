/** Measures the audio of a multipart body while it passes. */
import { ByteSearch, decodeUtf8, encodeUtf8 } from '../byte-search.ts';
import { AudioDuration } from './audio-duration.ts';

/** Longer headers of a part: the rest of the body is not measured. scan-multipart.ts refuses them. */
const HEADERS_MAX_BYTES = 16 * 1024;
const BLANK_LINE = new ByteSearch('\r\n\r\n');
/** A body begins with its first boundary, without the line end that comes before each other one. */
const LINE_END = encodeUtf8('\r\n');
/** The part that holds the audio. Engines read it by its name. */
const FILE = /;\s*name\s*=\s*"?file"?\s*(?:;|\r|$)/i;

export class UploadedAudio {
  readonly #delimiter: ByteSearch;
  #state: 'content' | 'headers' | 'unread' = 'content';
  #held: Uint8Array = LINE_END;
  /** The file of the current part. */
  #file: AudioDuration | undefined;
  #msBefore = 0;

  private constructor(boundary: string) {
    this.#delimiter = new ByteSearch(`\r\n--${boundary}`);
  }

  /** Undefined if the content type has no boundary. */
  static of(contentType: string | undefined): UploadedAudio | undefined {
    const [, quoted, token] = /;\s*boundary\s*=\s*(?:"([^"\\]{1,70})"|([^\s";]{1,70}))/i.exec(contentType ?? '') ?? [];
    const boundary = quoted ?? token;
    return boundary === undefined || !/^[\x20-\x7e]+$/.test(boundary) ? undefined : new UploadedAudio(boundary);
  }

  push(chunk: Uint8Array): void {
    if (this.#state === 'unread') return;
    const bytes = new Uint8Array(this.#held.length + chunk.length);
    bytes.set(this.#held);
    bytes.set(chunk, this.#held.length);
    let at = 0;
    for (let next = this.#step(bytes, at); next !== undefined; next = this.#step(bytes, at)) at = next;
    // The copy keeps the chunk's memory free. It is as short as a delimiter, or as the headers of one part.
    this.#held = bytes.slice(this.#state === 'content' ? this.#given(bytes, at) : at);
    if (this.#state === 'headers' && this.#held.length > HEADERS_MAX_BYTES) this.#state = 'unread';
  }

  /** Reads up to the end of the current content or headers. Undefined: their end is not in `bytes`. */
  #step(bytes: Uint8Array, at: number): number | undefined {
    if (this.#state === 'content') {
      const end = this.#delimiter.indexIn(bytes, at);
      if (end < 0) return undefined;
      this.#file?.push(bytes.subarray(at, end));
      this.#msBefore += this.#file?.ms ?? 0;
      this.#file = undefined;
      this.#state = 'headers';
      return end + this.#delimiter.bytes.length;
    }
    const end = BLANK_LINE.indexIn(bytes, at);
    if (end < 0) return undefined;
    this.#file = FILE.test(decodeUtf8(bytes.subarray(at, end))) ? new AudioDuration() : undefined;
    this.#state = 'content';
    return end + BLANK_LINE.bytes.length;
  }

  /** Gives the content that cannot be part of a delimiter to the file. Returns the offset of the rest. */
  #given(bytes: Uint8Array, at: number): number {
    const end = Math.max(at, bytes.length - this.#delimiter.bytes.length + 1);
    this.#file?.push(bytes.subarray(at, end));
    return end;
  }

  /** Milliseconds of all files so far. */
  get ms(): number {
    return this.#msBefore + (this.#file?.ms ?? 0);
  }
}
