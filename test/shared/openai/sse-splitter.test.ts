import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type SseEvent, SseSplitter, sseFields } from '../../../shared/openai/sse-splitter.ts';
import { bytes, cut, cuts, text } from './support.ts';

interface Split {
  events: { text: string; event: string | undefined; data: string | undefined }[];
  pending: string;
}

/** Pushes the pieces; an LF that belongs to an event of the previous piece is appended to it. */
function split(pieces: readonly Uint8Array[]): Split {
  const splitter = new SseSplitter();
  const events: Split['events'] = [];
  for (const piece of pieces) {
    const last = events.at(-1);
    if (splitter.endedWithCr && piece[0] === 0x0a && last !== undefined) last.text += '\n';
    splitter.push(piece, (event) => {
      const { event: name, data } = sseFields(event);
      events.push({ text: text(event.bytes), event: name, data: data && text(data) });
    });
  }
  return { events, pending: text(splitter.pending) };
}

/** The standard's grammar over the whole text in one go. */
function reference(whole: string): Split {
  const blocks = whole.match(/(?:[^\r\n]+(?:\r\n|\r(?!\n)|\n))*(?:\r\n|\r(?!\n)|\n)/gy) ?? [];
  const events = blocks.map((block, i) => {
    const lines = (i === 0 ? block.replace(/^\ufeff/, '') : block).split(/\r\n|\r|\n/);
    const field = (name: string) =>
      lines.flatMap((line) => {
        const match = /^([^:]+)(?:: ?(.*))?$/s.exec(line);
        return match?.[1] === name ? [match[2] ?? ''] : [];
      });
    const data = field('data');
    return { text: block, event: field('event').at(-1), data: data.length === 0 ? undefined : data.join('\n') };
  });
  return { events, pending: whole.slice(blocks.join('').length) };
}

const lineEnd = fc.constantFrom('\n', '\r\n', '\r');
const line = fc.oneof(
  fc.constantFrom(
    '',
    'data: {"a":1}',
    'data:',
    'data',
    'data:  x',
    'datax: y',
    ': ping',
    ':',
    'event: message_stop',
    'event',
    'event:x',
    'id: 1',
    'retry: 5',
    'data: é😀',
    'data: [DONE]',
    ' data: x',
    '\ufeffdata: x',
    'dat',
    'DATA: x',
  ),
  fc.stringMatching(/^[^\r\n\ufeff]{0,12}$/, { size: 'small' }).map((s) => s.toWellFormed()),
);
const stream = fc
  .tuple(fc.boolean(), fc.array(fc.tuple(line, lineEnd), { maxLength: 25 }), fc.constantFrom('', 'data: cut'))
  .map(([bom, lines, tail]) => (bom ? '\ufeff' : '') + lines.map((pair) => pair.join('')).join('') + tail);

describe('events of a stream', () => {
  it('are those of the standard, in any line ends and cut anywhere', () => {
    fc.assert(
      fc.property(stream, cuts, (whole, at) => {
        expect(split(cut(bytes(whole), at))).toEqual(reference(whole));
      }),
      { numRuns: 3000 },
    );
  });

  it.each(['\n', '\r\n', '\r'])('are the same when cut at every single offset, line ends %j', (eol) => {
    const lines = [
      '\ufeffdata: {"text":"Grüße 😀"}',
      '',
      ': ping',
      '',
      '',
      'event: message_stop',
      'data: a',
      'data: b',
      '',
      'data: c',
      '',
    ];
    const whole = bytes(lines.join(eol) + eol);
    const wanted = reference(text(whole));
    expect(wanted.events.map(({ data }) => data)).toEqual(['{"text":"Grüße 😀"}', undefined, undefined, 'a\nb', 'c']);
    for (let first = 0; first <= whole.length; first++) {
      expect(split([whole.slice(0, first), whole.slice(first)])).toEqual(wanted);
    }
    expect(split(Array.from(whole, (byte) => Uint8Array.of(byte)))).toEqual(wanted);
  });

  it('are told at once when their blank line is a CR: what follows may take minutes', () => {
    expect(split([bytes('data: x\r\r')]).events).toHaveLength(1);
    expect(split([bytes('data: x\r\n\r')]).events).toHaveLength(1);
  });

  it('that are within one chunk are views of it', () => {
    const chunk = bytes('data: a\n\ndata: b\n\n');
    const seen: SseEvent[] = [];
    new SseSplitter().push(chunk, (event) => seen.push(event));
    expect(seen.map(({ bytes, end }) => [bytes.buffer === chunk.buffer, end])).toEqual([
      [true, 9],
      [true, 18],
    ]);
  });

  it('that are too long are told with their beginning, and the next one is whole again', () => {
    const splitter = new SseSplitter(32);
    const seen: [string, boolean][] = [];
    const whole = bytes(`event: big\ndata: ${'x'.repeat(500)}\n\ndata: small\n\n`);
    for (const byte of whole) {
      splitter.push(Uint8Array.of(byte), (event) => seen.push([text(event.bytes), event.tooLong]));
      expect(splitter.pending.length).toBeLessThanOrEqual(32);
    }
    expect(seen).toEqual([
      [`event: big\ndata: ${'x'.repeat(15)}`, true],
      ['data: small\n\n', false],
    ]);
  });

  it('never keep more than a mebibyte, for any output of an engine', () => {
    const splitter = new SseSplitter();
    const chunk = new Uint8Array(256 * 1024).fill(0x61);
    for (let i = 0; i < 64; i++) splitter.push(chunk, () => expect.unreachable());
    expect(splitter.pending.buffer.byteLength).toBeLessThanOrEqual(1024 * 1024);
    expect(splitter.pendingBytes).toBe(16 * 1024 * 1024);
  });

  it('that never ended are told as the rest', () => {
    const splitter = new SseSplitter();
    splitter.push(bytes('data: a\n\ndata: b\n'), () => {});
    expect(text(splitter.rest()?.bytes ?? [])).toBe('data: b\n');
    splitter.push(bytes('\n'), () => {});
    expect(splitter.rest()).toBeUndefined();
  });
});
