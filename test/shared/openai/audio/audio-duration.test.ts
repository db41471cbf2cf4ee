import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AudioDuration } from '../../../../shared/openai/audio/audio-duration.ts';
import { audioFormatOf } from '../../../../shared/openai/audio/audio-formats.ts';
import { UploadedAudio } from '../../../../shared/openai/audio/uploaded-audio.ts';
import { scanMultipart } from '../../../../shared/openai/scan-multipart.ts';
import { cut, cuts } from '../support.ts';
import { aac, flac, id3, mp3, ogg, opus, opusPages, vorbis, wav } from './audio-files.ts';

function ms(file: Uint8Array, at: readonly number[] = []): number {
  const duration = new AudioDuration();
  for (const piece of cut(file, at)) duration.push(piece);
  return duration.ms;
}

const LIST = Buffer.from('LIST\x05\0\0\0abcde\0', 'latin1');
const FILES: readonly [name: string, file: Buffer, ms: number][] = [
  ['wav', wav(2.5), 2_500],
  [
    'wav, stereo, 24 bits, with another chunk first',
    wav(0.5, { channels: 2, bits: 24, rate: 48_000, extra: LIST }),
    500,
  ],
  ['wav of a stream', wav(1, { claimed: 0xffffffff }), 1_000],
  ['wav without a length', wav(1, { claimed: 0 }), 1_000],
  ['mp3', mp3(100), 2_612],
  ['mp3 after a tag', mp3(100, { before: id3(3_000) }), 2_612],
  ['mp3 with other bytes between its frames', Buffer.concat([mp3(50), Buffer.alloc(999), mp3(50)]), 2_612],
  ['aac', aac(100), 6_400],
  ['opus', opus(3.25), 3_250],
  ['two streams of opus in one file', Buffer.concat([opus(1), opus(2)]), 3_000],
  ['vorbis', vorbis(4), 4_000],
  ['flac', flac(441_000), 10_000],
  ['flac of many samples', flac(2 ** 33), 194_783_097],
];

describe('the length of an audio file', () => {
  it.each(FILES)('%s', (_, file, expected) => {
    expect(ms(file)).toBe(expected);
  });

  it('is the same in whatever pieces it comes', () => {
    fc.assert(
      fc.property(fc.constantFrom(...FILES), cuts, ([, file, expected], at) => {
        expect(ms(file, at)).toBe(expected);
      }),
    );
  });

  it('is at least what its bytes hold uncompressed if the header of FLAC claims less', () => {
    expect(ms(flac(1, { rate: 8_000, bytes: 32_000 - 42 }))).toBe(1_000);
  });

  it('is estimated by its bytes for formats that are not read, for garbage and for headers alone', () => {
    expect(ms(Buffer.concat([Buffer.from('\0\0\0\x18ftypM4A ', 'latin1'), Buffer.alloc(4_000 - 12)]))).toBe(1_000);
    expect(ms(Buffer.alloc(0))).toBe(0);
    expect(ms(Buffer.from([0xff]))).toBe(0);
    expect(ms(Buffer.concat([id3(10), Buffer.alloc(3_980, 1)]))).toBe(1_000);
    expect(ms(wav(1).subarray(0, 40))).toBe(10);
  });

  it('counts what follows a long run of other bytes by its size, so that junk hides no sound', () => {
    const junk = Buffer.alloc(80_000);
    const unread = (file: Buffer) => (junk.length - 64 * 1024 + file.length) / 4;
    expect(ms(Buffer.concat([mp3(1), junk, mp3(1_000)]))).toBeCloseTo(26 + unread(mp3(1_000)), -1);
    expect(ms(Buffer.concat([opus(1), junk, opus(900)]))).toBeCloseTo(1_000 + unread(opus(900)), -1);
    // A decoder reads on behind a tag that follows a frame.
    expect(ms(Buffer.concat([mp3(50), id3(417 * 100).subarray(0, 10), mp3(100)]))).toBe(3_918);
  });

  it('of a stream is not changed by another one that is interleaved', () => {
    const skeleton = ogg(Buffer.alloc(64), 0n, { flags: 2, serial: 9 });
    const [head, ...rest] = opusPages(60);
    const sound = ogg(Buffer.alloc(1_000), 2n ** 40n, { serial: 9 });
    expect(ms(Buffer.concat([head, skeleton, ...rest]))).toBe(60_000);
    expect(ms(Buffer.concat([head, skeleton, sound, ...rest]))).toBe(60_250);
  });

  it('of a compressed WAV is not hidden by the bytes per second that its header claims', () => {
    const file = wav(10);
    file.writeUInt16LE(0x11, 20);
    file.writeUInt32LE(0xffffffff, 28);
    expect(ms(file)).toBe(10_000);
  });

  it.each(['OggS', '\xff\xfb\x90\0'])('takes a bounded search for headers after %j', (magic) => {
    const format = audioFormatOf(Buffer.from(magic.padEnd(12, '\0'), 'latin1'));
    const header = Buffer.alloc(255);
    let [at, steps] = [0, 0];
    for (; at < 1e9 && steps < 1e6; steps++) at += format?.read(header, at) ?? 0;
    expect(at).toBeGreaterThan(1e9);
    expect(steps).toBeLessThanOrEqual(64 * 1024 + 1);
  });

  it('is a number for any bytes, and takes no long search', () => {
    const begin = fc.constantFrom(
      '',
      'RIFF0000WAVEfmt ',
      'RIFF0000WAVEdata',
      'fLaC',
      'OggS',
      'ID3',
      '\xff\xfb\x90',
      '\xff\xf1',
    );
    fc.assert(
      fc.property(begin, fc.uint8Array({ maxLength: 600 }), cuts, (first, rest, at) => {
        const length = ms(Buffer.concat([Buffer.from(first, 'latin1'), rest]), at);
        expect(Number.isSafeInteger(length) && length >= 0).toBe(true);
      }),
    );
  });
});

describe('the audio of a form', () => {
  const type = 'multipart/form-data; boundary=frontier';
  const part = (headers: string, value: Buffer | string) =>
    Buffer.concat([Buffer.from(`--frontier\r\n${headers}\r\n\r\n`), Buffer.from(value), Buffer.from('\r\n')]);
  const field = (name: string, value: Buffer | string) => part(`Content-Disposition: form-data; name="${name}"`, value);
  const file = (bytes: Buffer, name = 'file') =>
    part(`Content-Disposition: form-data; name="${name}"; filename="file.wav"\r\nContent-Type: audio/wav`, bytes);
  const form = (...parts: Buffer[]) => Buffer.concat([...parts, Buffer.from('--frontier--\r\n')]);
  const uploaded = (body: Buffer, at: readonly number[] = []) => {
    const audio = UploadedAudio.of(type);
    for (const piece of cut(body, at)) audio?.push(piece);
    return audio?.ms;
  };

  it('is found among the other fields, in whatever pieces it comes', () => {
    const body = form(field('model', 'm'), file(wav(2)), field('prompt', '\r\n\r\n--frontie'), field('language', 'de'));
    expect(uploaded(body)).toBe(2_000);
    fc.assert(
      fc.property(cuts, (at) => {
        expect(uploaded(body, at)).toBe(2_000);
      }),
    );
  });

  it('is the sum of all files, and not of other fields', () => {
    expect(uploaded(form(file(wav(1)), file(wav(2))))).toBe(3_000);
    expect(uploaded(form(field('model', 'm'), file(wav(1), 'other')))).toBe(0);
    // A field that contains the headers of a file does not count.
    expect(uploaded(form(field('prompt', '; name="file"\r\n\r\nRIFF'), file(wav(1))))).toBe(1_000);
  });

  it.each([
    ['multipart/form-data; x="; boundary=other"; boundary=frontier', 'Content-Disposition: form-data; name="file"'],
    ['multipart/form-data; boundary=frontier', 'Content-Disposition: form-data; filename="; name=x"; NAME=file'],
    ['multipart/form-data; boundary="frontier"', 'X-Other: a\r\nCONTENT-DISPOSITION:form-data; name = "file"'],
  ])('is counted for every form that the scan of the model accepts: %s', (contentType, headers) => {
    const body = form(part(headers, wav(2)), field('model', 'm'));
    expect(scanMultipart(body, contentType).model).toBe('m');
    const audio = UploadedAudio.of(contentType);
    audio?.push(body);
    expect(audio?.ms).toBe(2_000);
  });

  it('is not that of a part which only mentions the name of the file', () => {
    expect(uploaded(form(part('Content-Disposition: form-data; name="x"; filename="; name=file;"', wav(1))))).toBe(0);
    expect(uploaded(form(part('Content-Disposition: form-data; name=x\r\nX: a; name=file', wav(1))))).toBe(0);
  });

  it('is that of the bytes so far', () => {
    const body = form(field('model', 'm'), file(wav(2)));
    expect(uploaded(body.subarray(0, body.length / 2))).toBeGreaterThan(900);
  });

  it('is not measured without a boundary or behind headers without an end', () => {
    for (const other of [
      undefined,
      'multipart/form-data',
      'multipart/form-data; boundary=',
      'multipart/form-data; boundary="ä"',
    ])
      expect(UploadedAudio.of(other)).toBeUndefined();
    expect(uploaded(form(part(`X: ${'a'.repeat(20_000)}`, ''), file(wav(1))), [17_000])).toBe(0);
  });
});
