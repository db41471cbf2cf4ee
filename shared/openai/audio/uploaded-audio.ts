/** Measures the audio of a multipart body while it passes. */
import { ByteSearch, decodeUtf8, encodeUtf8 } from '../byte-search.ts';
import { headerParameters, MAX_PART_HEADER_BYTES, multipartBoundary } from '../multipart-headers.ts';
import { AudioDuration } from './audio-duration.ts';

const BLANK_LINE = new ByteSearch('\r\n\r\n');
/** A body begins with its first boundary, without the line end that comes before each other one. */
const LINE_END = encodeUtf8('\r\n');
/** Engines read the audio from the part with this name. */
const FILE = 'file';
const DISPOSITION = /(?:^|\r\n)content-disposition:([^\r\n]*)/i;

function isFile(headers: string): boolean {
  return headerParameters(DISPOSITION.exec(headers)?.[1] ?? '')?.get('name') === FILE;
}

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

  /** Undefined if the content type has no valid boundary. */
  static of(contentType: string | undefined): UploadedAudio | undefined {
    const boundary = multipartBoundary(contentType ?? '');
    return boundary === undefined ? undefined : new UploadedAudio(boundary);
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
    if (this.#state === 'headers' && this.#held.length > MAX_PART_HEADER_BYTES) this.#state = 'unread'; // the scan refuses such a body
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
    this.#file = isFile(decodeUtf8(bytes.subarray(at, end))) ? new AudioDuration() : undefined;
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
