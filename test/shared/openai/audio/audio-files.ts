/** Audio files of known length, without sound. */

const ascii = (text: string) => Buffer.from(text, 'latin1');

export function wav(
  seconds: number,
  { rate = 16_000, channels = 1, bits = 16, claimed = -1, extra = Buffer.alloc(0) } = {},
) {
  const sound = Buffer.alloc((seconds * rate * channels * bits) / 8);
  const header = Buffer.alloc(28);
  header.write('fmt ', 0);
  header.writeUInt32LE(16, 4);
  header.writeUInt16LE(1, 8);
  header.writeUInt16LE(channels, 10);
  header.writeUInt32LE(rate, 12);
  header.writeUInt32LE((rate * channels * bits) / 8, 16);
  header.writeUInt16LE((channels * bits) / 8, 20);
  header.writeUInt16LE(bits, 22);
  header.write('data', 24);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(claimed < 0 ? sound.length : claimed);
  return Buffer.concat([ascii('RIFF\0\0\0\0WAVE'), extra, header, length, sound]);
}

/** Frames of MPEG 1 layer 3 with 128 kbit/s at 44.1 kHz, which have 417 bytes and 1,152 samples. */
export function mp3(frames: number, { before = Buffer.alloc(0) } = {}) {
  const frame = Buffer.alloc(417);
  frame.set([0xff, 0xfb, 0x90, 0x00]);
  return Buffer.concat([before, ...Array.from({ length: frames }, () => frame)]);
}

export function id3(bytes: number) {
  const size = [21, 14, 7, 0].map((shift) => (bytes >> shift) & 127);
  return Buffer.concat([ascii('ID3\x04\0\0'), Buffer.from(size), Buffer.alloc(bytes, 0xff)]);
}

/** Frames of AAC in ADTS at 16 kHz, 1,024 samples each. */
export function aac(frames: number, bytes = 50) {
  const frame = Buffer.alloc(bytes);
  frame.set([
    0xff,
    0xf1,
    (1 << 6) | (8 << 2),
    (2 << 6) | (bytes >> 11),
    (bytes >> 3) & 255,
    ((bytes & 7) << 5) | 31,
    0xfc,
  ]);
  return Buffer.concat(Array.from({ length: frames }, () => frame));
}

/** A page of Ogg. `granule`: samples up to its end. */
export function ogg(payload: Buffer, granule: bigint, { flags = 0, serial = 1 } = {}) {
  const header = Buffer.alloc(27);
  header.write('OggS');
  header[5] = flags;
  header.writeBigInt64LE(granule, 6);
  header.writeUInt32LE(serial, 14);
  const segments = Array.from({ length: Math.floor(payload.length / 255) + 1 }, (_, n) =>
    Math.min(255, payload.length - n * 255),
  );
  header[26] = segments.length;
  return Buffer.concat([header, Buffer.from(segments), payload]);
}

/** Opus always counts 48,000 samples a second, and skips the first `preSkip`. */
export function opusPages(seconds: number, preSkip = 312): [head: Buffer, ...Buffer[]] {
  const head = Buffer.alloc(19);
  head.write('OpusHead');
  head.writeUInt16LE(preSkip, 10);
  const last = BigInt(Math.round(seconds * 48_000) + preSkip);
  return [ogg(head, 0n, { flags: 2 }), ogg(Buffer.alloc(700), -1n), ogg(Buffer.alloc(300), last)];
}

export const opus = (seconds: number) => Buffer.concat(opusPages(seconds));

export function vorbis(seconds: number, rate = 22_050) {
  const head = Buffer.alloc(30);
  head.write('\x01vorbis', 'latin1');
  head.writeUInt32LE(rate, 12);
  return Buffer.concat([ogg(head, 0n, { flags: 2 }), ogg(Buffer.alloc(500), BigInt(Math.round(seconds * rate)))]);
}

export function flac(samples: number, { rate = 44_100, bytes = 1_000 } = {}) {
  const info = Buffer.alloc(42);
  info.write('fLaC');
  info.writeUInt32BE(rate * 4096 + (1 << 9) + (15 << 4), 18);
  info.writeUInt16BE(((rate & 15) << 12) | (1 << 9) | (15 << 4) | Math.floor(samples / 2 ** 32), 20);
  info.writeUInt32BE(samples % 2 ** 32, 22);
  return Buffer.concat([info, Buffer.alloc(bytes)]);
}
