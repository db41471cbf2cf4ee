/**
 * Containers of audio, as far as their length in time needs them: WAV, FLAC, Ogg, and frames of MP3 and AAC. Each reads
 * headers and skips the sound between them.
 */
import { decodeUtf8, encodeUtf8, startsWith } from '../byte-search.ts';

export interface AudioFormat {
  /** Bytes of the header that `read` needs next; at most HEADER_MAX_BYTES. */
  readonly size: number;
  /**
   * @param header at least `size` bytes
   * @param at offset of the header in the file
   * @returns how many bytes after the beginning of this header the next one begins
   */
  read(header: Uint8Array, at: number): number;
  /** Milliseconds of sound in the `total` bytes that were given; undefined: unknown. */
  ms(total: number): number | undefined;
}

/** The longest header: the table of an Ogg page with 255 segments. */
export const HEADER_MAX_BYTES = 255;
/** Bytes by which a format can be recognized. */
export const MAGIC_BYTES = 12;

/** No header follows. */
const REST = Number.MAX_SAFE_INTEGER;

/**
 * Bytes per millisecond of sound that is not read, as in MP4 and WebM: 32 kbit/s, as speech usually has there. Without
 * this estimate, a client could avoid a limit of audio seconds by its choice of a format.
 */
export const UNREAD_BYTES_PER_MS = 4;
/** Most bytes of a file that are searched for headers, because each takes about 100 ns. */
const SEARCH_MAX_BYTES = 64 * 1024;

/** The search for the next header, byte by byte, in a file with other bytes between headers. */
class HeaderSearch {
  #bytes = 0;
  /** Offset of the end of the search. */
  #end: number | undefined;

  /** @returns how many bytes to advance */
  next(at: number): number {
    if (++this.#bytes <= SEARCH_MAX_BYTES) return 1;
    this.#end = at;
    return REST;
  }

  /** Estimated milliseconds of what follows the end of the search. Otherwise junk could hide the rest of a file. */
  unreadMs(total: number): number {
    return this.#end === undefined ? 0 : Math.max(0, total - this.#end) / UNREAD_BYTES_PER_MS;
  }
}

function ascii(bytes: Uint8Array, from: number, length: number): string {
  return decodeUtf8(bytes.subarray(from, from + length));
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** No compressed format takes more for a sample. */
const RAW_SAMPLE_BYTES = 2;
/** Format tags of samples that are not compressed: PCM, IEEE float, and "extensible". */
const UNCOMPRESSED: ReadonlySet<number> = new Set([1, 3, 0xfffe]);

/** RIFF WAVE. A stream may not know its length in advance, and then writes 0 or 2^32 − 1. */
class Wav implements AudioFormat {
  size = 12;
  #next: 'riff' | 'chunk' | 'format' = 'riff';
  #formatBytes = 0;
  #bytesPerSecond = 0;
  #begin = 0;
  #claimed = 0;

  read(header: Uint8Array, at: number): number {
    const view = viewOf(header);
    switch (this.#next) {
      case 'riff':
        return this.#expect('chunk', 8, 12);
      case 'chunk': {
        const [id, length] = [ascii(header, 0, 4), view.getUint32(4, true)];
        if (id === 'data') {
          this.#begin = at + 8;
          this.#claimed = length;
          return REST;
        }
        if (id !== 'fmt ' || length < 16) return 8 + length + (length % 2);
        this.#formatBytes = length + (length % 2);
        return this.#expect('format', 16, 8);
      }
      case 'format': {
        const [tag, channels, rate] = [view.getUint16(0, true), view.getUint16(2, true), view.getUint32(4, true)];
        const raw = (rate * channels * view.getUint16(14, true)) / 8;
        // Decoders do not read the bytes per second of a compressed format, so a client could claim any number.
        const compressed = Math.min(view.getUint32(8, true), rate * channels * RAW_SAMPLE_BYTES);
        this.#bytesPerSecond = UNCOMPRESSED.has(tag) ? raw : compressed;
        return this.#expect('chunk', 8, this.#formatBytes);
      }
    }
  }

  #expect(next: 'chunk' | 'format', size: number, advance: number): number {
    this.#next = next;
    this.size = size;
    return advance;
  }

  ms(total: number): number | undefined {
    if (this.#bytesPerSecond === 0 || this.#begin === 0) return undefined;
    const there = Math.max(0, total - this.#begin);
    const bytes = this.#claimed === 0 ? there : Math.min(this.#claimed, there);
    return (bytes / this.#bytesPerSecond) * 1_000;
  }
}

/** FLAC (RFC 9639 §8.2): the first block has the sample rate and the number of samples. */
class Flac implements AudioFormat {
  readonly size = 42;
  #rate = 0;
  #samples = 0;
  #rawBytesPerSecond = 0;

  read(header: Uint8Array): number {
    const view = viewOf(header);
    this.#rate = view.getUint32(18) >>> 12;
    const packed = view.getUint16(20);
    const channels = ((packed >> 9) & 7) + 1;
    const bits = ((packed >> 4) & 31) + 1;
    this.#samples = (packed & 15) * 2 ** 32 + view.getUint32(22);
    this.#rawBytesPerSecond = (this.#rate * channels * bits) / 8;
    return REST;
  }

  /** A stream that does not know its length writes 0 samples. No sound takes more bytes than uncompressed. */
  ms(total: number): number | undefined {
    if (this.#rate === 0) return undefined;
    return Math.max(this.#samples / this.#rate, total / this.#rawBytesPerSecond) * 1_000;
  }
}

/**
 * Ogg (RFC 3533): each page has the number of samples up to its end. A file may have several streams, one after the
 * other or interleaved. Only the last stream that began is read.
 */
class Ogg implements AudioFormat {
  size = 27;
  #next: 'page' | 'table' | 'codec' = 'page';
  /** True if the page begins a stream. */
  #begins = false;
  #payload = 0;
  /** Serial numbers of the page and of the stream that is read. */
  #page = 0;
  #stream = -1;
  #rate = 0;
  #preSkip = 0;
  #samples = 0;
  /** Milliseconds of the streams before the current one. */
  #before = 0;
  /** Bytes of streams that are not read. */
  #unread = 0;
  readonly #search = new HeaderSearch();

  read(header: Uint8Array, at: number): number {
    switch (this.#next) {
      case 'page':
        return this.#header(header, at);
      case 'table': {
        this.#payload = header.subarray(0, this.size).reduce((sum, length) => sum + length, 0);
        const table = this.size;
        if (this.#begins && this.#payload >= CODEC_BYTES) return this.#expect('codec', CODEC_BYTES, table);
        if (this.#page !== this.#stream) this.#unread += this.#payload;
        return this.#expect('page', 27, table + this.#payload);
      }
      case 'codec':
        this.#codec(header);
        return this.#expect('page', 27, this.#payload);
    }
  }

  #header(header: Uint8Array, at: number): number {
    if (!startsWith(header, OGG_MAGIC)) return this.#search.next(at);
    const view = viewOf(header);
    this.#begins = ((header[5] ?? 0) & 2) !== 0;
    this.#page = view.getUint32(14, true);
    const high = view.getInt32(10, true);
    // −1: no packet ends on this page.
    if (this.#page === this.#stream && !this.#begins && high >= 0)
      this.#samples = Math.max(this.#samples, high * 2 ** 32 + view.getUint32(6, true));
    const segments = header[26] ?? 0;
    return segments === 0 ? 27 : this.#expect('table', segments, 27);
  }

  #codec(header: Uint8Array): void {
    const view = viewOf(header);
    if (ascii(header, 0, 8) === 'OpusHead') this.#begin(48_000, view.getUint16(10, true));
    else if (ascii(header, 1, 6) === 'vorbis') this.#begin(view.getUint32(12, true), 0);
  }

  #begin(rate: number, preSkip: number): void {
    this.#before = this.#sum();
    [this.#stream, this.#rate, this.#preSkip, this.#samples] = [this.#page, rate, preSkip, 0];
  }

  #expect(next: 'page' | 'table' | 'codec', size: number, advance: number): number {
    this.#next = next;
    this.size = size;
    return advance;
  }

  #sum(): number {
    if (this.#rate === 0) return this.#before;
    return this.#before + (Math.max(0, this.#samples - this.#preSkip) / this.#rate) * 1_000;
  }

  ms(total: number): number | undefined {
    const sum = this.#sum() + this.#unread / UNREAD_BYTES_PER_MS + this.#search.unreadMs(total);
    return sum > 0 ? sum : undefined;
  }
}

const OGG_MAGIC = encodeUtf8('OggS');
const CODEC_BYTES = 19;

/** Kilobits per second of MP3 by the index in a frame's header. */
const MPEG_1_KBITS = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const MPEG_2_KBITS = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const MPEG_RATES = [44_100, 48_000, 32_000];
const AAC_RATES = [
  96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350,
];
const ID3 = encodeUtf8('ID3');

/** Frames of MP3 (ISO 11172-3) or of AAC in ADTS (ISO 14496-3), after ID3 tags if there are any. */
class MpegFrames implements AudioFormat {
  size = 7;
  #seconds = 0;
  /** Offset at which a tag may begin. Decoders skip tags only before the first frame. */
  #tagAt = 0;
  readonly #search = new HeaderSearch();

  read(header: Uint8Array, at: number): number {
    if (at === this.#tagAt && startsWith(header, ID3)) return this.#tag(header, at);
    const frame = frameOf(header);
    if (frame === undefined) return this.#search.next(at);
    this.#seconds += frame.samples / frame.rate;
    return frame.bytes;
  }

  #tag(header: Uint8Array, at: number): number {
    if (this.size < 10) {
      this.size = 10;
      return 0;
    }
    this.size = 7;
    const [flags = 0, a = 0, b = 0, c = 0, d = 0] = header.subarray(5, 10);
    const footer = (flags & 0x10) === 0 ? 0 : 10;
    const length = 10 + footer + (((a & 127) << 21) | ((b & 127) << 14) | ((c & 127) << 7) | (d & 127));
    this.#tagAt = at + length;
    return length;
  }

  ms(total: number): number | undefined {
    return this.#seconds === 0 ? undefined : this.#seconds * 1_000 + this.#search.unreadMs(total);
  }
}

interface MpegFrame {
  samples: number;
  rate: number;
  bytes: number;
}

function frameOf(header: Uint8Array): MpegFrame | undefined {
  const second = header[1] ?? 0;
  if (header[0] !== 0xff || (second & 0xe0) !== 0xe0) return undefined;
  const layer = (second >> 1) & 3;
  if (layer === 0) return (second & 0xf0) === 0xf0 ? adtsFrame(header) : undefined;
  return layer === 1 ? mp3Frame(second, header[2] ?? 0) : undefined;
}

function adtsFrame(header: Uint8Array): MpegFrame | undefined {
  const packed = viewOf(header).getUint32(2);
  const rate = AAC_RATES[(packed >>> 26) & 15];
  const bytes = (packed >>> 5) & 0x1fff;
  const blocks = ((header[6] ?? 0) & 3) + 1;
  return rate === undefined || bytes < 7 ? undefined : { samples: 1_024 * blocks, rate, bytes };
}

function mp3Frame(second: number, third: number): MpegFrame | undefined {
  const version = (second >> 3) & 3;
  const rate = MPEG_RATES[(third >> 2) & 3];
  const kbits = (version === 3 ? MPEG_1_KBITS : MPEG_2_KBITS)[third >> 4];
  if (version === 1 || rate === undefined || kbits === undefined || kbits === 0) return undefined;
  const samples = version === 3 ? 1_152 : 576;
  const perSecond = rate / (version === 3 ? 1 : version === 2 ? 2 : 4);
  return { samples, rate: perSecond, bytes: Math.floor((samples * kbits * 125) / perSecond) + ((third >> 1) & 1) };
}

/** @param magic the first MAGIC_BYTES of a file */
export function audioFormatOf(magic: Uint8Array): AudioFormat | undefined {
  const word = ascii(magic, 0, 4);
  if (word === 'fLaC') return new Flac();
  if (word === 'OggS') return new Ogg();
  if ((word === 'RIFF' || word === 'RF64') && ascii(magic, 8, 4) === 'WAVE') return new Wav();
  if (word.startsWith('ID3') || frameOf(magic) !== undefined) return new MpegFrames();
  return undefined;
}
