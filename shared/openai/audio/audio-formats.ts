/**
 * Containers of audio, as far as their length in time needs them: WAV, FLAC, Ogg, and frames of MP3 and AAC. Each reads
 * headers and skips the sound between them.
 */
import { decodeUtf8 } from '../byte-search.ts';

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

/** Everything that follows is sound. */
const REST = Number.MAX_SAFE_INTEGER;

function ascii(bytes: Uint8Array, from: number, length: number): string {
  return decodeUtf8(bytes.subarray(from, from + length));
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

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
        const computed = (rate * channels * view.getUint16(14, true)) / 8;
        this.#bytesPerSecond = UNCOMPRESSED.has(tag) ? computed : view.getUint32(8, true);
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

/** Ogg (RFC 3533): each page has the number of samples up to its end. A file may have several streams in a row. */
class Ogg implements AudioFormat {
  size = 27;
  #next: 'page' | 'table' | 'codec' = 'page';
  /** True if the page begins a stream. */
  #begins = false;
  #payload = 0;
  #rate = 0;
  #preSkip = 0;
  #samples = 0;
  /** Milliseconds of the streams before the current one. */
  #before = 0;

  read(header: Uint8Array): number {
    switch (this.#next) {
      case 'page':
        return this.#page(header);
      case 'table': {
        this.#payload = header.subarray(0, this.size).reduce((sum, length) => sum + length, 0);
        const table = this.size;
        if (this.#begins && this.#payload >= CODEC_BYTES) return this.#expect('codec', CODEC_BYTES, table);
        return this.#expect('page', 27, table + this.#payload);
      }
      case 'codec':
        this.#codec(header);
        return this.#expect('page', 27, this.#payload);
    }
  }

  #page(header: Uint8Array): number {
    if (ascii(header, 0, 4) !== 'OggS') return 1;
    const view = viewOf(header);
    this.#begins = ((header[5] ?? 0) & 2) !== 0;
    if (this.#begins) {
      this.#before = this.#sum();
      [this.#rate, this.#preSkip, this.#samples] = [0, 0, 0];
    }
    const high = view.getInt32(10, true);
    // −1: no packet ends on this page.
    if (high >= 0) this.#samples = Math.max(this.#samples, high * 2 ** 32 + view.getUint32(6, true));
    const segments = header[26] ?? 0;
    return segments === 0 ? 27 : this.#expect('table', segments, 27);
  }

  #codec(header: Uint8Array): void {
    const view = viewOf(header);
    if (ascii(header, 0, 8) === 'OpusHead') {
      this.#rate = 48_000;
      this.#preSkip = view.getUint16(10, true);
    } else if (ascii(header, 1, 6) === 'vorbis') this.#rate = view.getUint32(12, true);
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

  ms(): number | undefined {
    const sum = this.#sum();
    return sum > 0 ? sum : undefined;
  }
}

const CODEC_BYTES = 19;

/** Kilobits per second of MP3 by the index in a frame's header. */
const MPEG_1_KBITS = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const MPEG_2_KBITS = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const MPEG_RATES = [44_100, 48_000, 32_000];
const AAC_RATES = [
  96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350,
];
/** After this many bytes without a frame, the file has another format. A search to its end would take long. */
const LOST_MAX_BYTES = 64 * 1024;

/** Frames of MP3 (ISO 11172-3) or of AAC in ADTS (ISO 14496-3), after an ID3 tag if there is one. */
class MpegFrames implements AudioFormat {
  size = 7;
  #seconds = 0;
  #lost = 0;

  read(header: Uint8Array): number {
    if (ascii(header, 0, 3) === 'ID3') return this.#tag(header);
    const frame = frameOf(header);
    if (frame === undefined) return ++this.#lost > LOST_MAX_BYTES ? REST : 1;
    this.#lost = 0;
    this.#seconds += frame.samples / frame.rate;
    return frame.bytes;
  }

  #tag(header: Uint8Array): number {
    if (this.size < 10) {
      this.size = 10;
      return 0;
    }
    this.size = 7;
    const [flags = 0, a = 0, b = 0, c = 0, d = 0] = header.subarray(5, 10);
    const footer = (flags & 0x10) === 0 ? 0 : 10;
    return 10 + footer + (((a & 127) << 21) | ((b & 127) << 14) | ((c & 127) << 7) | (d & 127));
  }

  ms(): number | undefined {
    return this.#seconds === 0 ? undefined : this.#seconds * 1_000;
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
