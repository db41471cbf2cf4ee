import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Edit, EditedBody, joinEdits, modelNameEdit, usageEdits } from '../../../shared/openai/body-edits.ts';
import { scanJson } from '../../../shared/openai/scan-json-body.ts';
import { bytes, cut, cuts, gaps, space, type Tree, text, write } from './support.ts';

const CHAT = { injectUsage: true };

function apply(whole: Uint8Array, edits: readonly Edit[], at: readonly number[] = []): string {
  const body = new EditedBody(edits);
  const out: Uint8Array[] = [];
  for (const chunk of cut(whole, at)) out.push(...body.push(chunk));
  out.push(...body.end());
  const edited = text(out);
  expect(bytes(edited)).toHaveLength(body.lengthAfter(whole.length));
  return edited;
}

function injected(body: string): string {
  return apply(bytes(body), usageEdits(scanJson(bytes(body)), CHAT));
}

describe('asking the engine for usage', () => {
  it.each([
    ['{"model":"m","stream":true}', '{"model":"m","stream":true,"stream_options":{"include_usage":true}}'],
    ['{"stream":true }\n', '{"stream":true ,"stream_options":{"include_usage":true}}\n'],
    ['{"stream":true,"stream_options":null}', '{"stream":true,"stream_options":{"include_usage":true}}'],
    ['{"stream_options":{},"stream":true}', '{"stream_options":{"include_usage":true},"stream":true}'],
    ['{"stream_options":{ \n},"stream":true}', '{"stream_options":{"include_usage":true \n},"stream":true}'],
    ['{"stream_options":{ "a":1},"stream":true}', '{"stream_options":{"include_usage":true, "a":1},"stream":true}'],
    [
      '{"stream_options":{"include_usage": false},"stream":true}',
      '{"stream_options":{"include_usage": true},"stream":true}',
    ],
    [
      '{"stream_options":{"include_usage":null ,"a":{}},"stream":true}',
      '{"stream_options":{"include_usage":true ,"a":{}},"stream":true}',
    ],
    [
      '{"stream_options":{"include\\u005fusage":false},"stream":true}',
      '{"stream_options":{"include\\u005fusage":true},"stream":true}',
    ],
    [
      '{"stream_options":{"a":{"include_usage":true}},"stream":true}',
      '{"stream_options":{"include_usage":true,"a":{"include_usage":true}},"stream":true}',
    ],
    [
      '{"stream_options":{"continuous_usage_stats":true, "include_usage":false},"stream":true}',
      '{"stream_options":{"continuous_usage_stats":false, "include_usage":true},"stream":true}',
    ],
    [
      '{"stream_options":{"continuous_usage_stats": 1},"stream":true}',
      '{"stream_options":{"include_usage":true,"continuous_usage_stats": false},"stream":true}',
    ],
    [
      '{"stream_options":{"continuous_usage_stats":null},"stream":true}',
      '{"stream_options":{"include_usage":true,"continuous_usage_stats":null},"stream":true}',
    ],
  ])('turns %s into %s', (before, after) => {
    expect(injected(before)).toBe(after);
  });

  it.each([
    ['the client asked itself', '{"stream":true,"stream_options":{"include_usage":true}}'],
    [
      'the client asked for it in every chunk',
      '{"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true}}',
    ],
    ['nothing streams', '{"model":"m","stream_options":{"include_usage":false}}'],
    ['stream is false', '{"stream":false}'],
    ['stream is null', '{"stream":null}'],
    ['stream_options is a list', '{"stream":true,"stream_options":[]}'],
    ['stream_options is a word', '{"stream":true,"stream_options":"no"}'],
    ['stream_options is true', '{"stream":true,"stream_options":true}'],
    [
      'include_usage is something that the engine must judge',
      '{"stream":true,"stream_options":{"include_usage":"maybe"}}',
    ],
  ])('leaves the body alone where %s', (_, body) => {
    expect(usageEdits(scanJson(bytes(body)), CHAT)).toEqual([]);
  });

  it('leaves endpoints alone that do not know stream_options', () => {
    expect(usageEdits(scanJson(bytes('{"stream":true}')), { injectUsage: false })).toEqual([]);
  });

  it('and another name for the model gives the body that a parser would have written, however it is cut', () => {
    const options: fc.Arbitrary<Tree | undefined> = fc.oneof(
      fc.constant(undefined),
      fc.constantFrom(null, [], 'x', 1).map((json): Tree => ({ json })),
      fc
        .uniqueArray(
          fc.tuple(
            fc.constantFrom('include_usage', 'a', 'b'),
            fc.constantFrom(true, false, null, 'x', { include_usage: false }).map((json): Tree => ({ json })),
            fc.constantFrom(0, 1, 3),
          ),
          { selector: ([key]) => key },
        )
        .map((members): Tree => ({ members })),
    );
    const member = fc.tuple(fc.constantFrom('a', 'messages', 'ü'), fc.jsonValue({ maxDepth: 2 }));
    fc.assert(
      fc.property(
        fc.uniqueArray(member, { selector: ([key]) => key }),
        fc.constantFrom(undefined, true, false),
        options,
        fc.string({ minLength: 1, unit: 'grapheme' }),
        fc.nat(10),
        fc.array(space, { maxLength: 5 }),
        cuts,
        (others, stream, streamOptions, alias, turn, list, at) => {
          const members: [string, Tree, number][] = others.map(([key, json]) => [key, { json }, 0]);
          members.push(['model', { json: 'old' }, turn % 2]);
          if (stream !== undefined) members.push(['stream', { json: stream }, 0]);
          if (streamOptions !== undefined) members.push(['stream_options', streamOptions, 0]);
          const shift = turn % members.length;
          const before = write({ members: [...members.slice(shift), ...members.slice(0, shift)] }, gaps(list));
          const wanted = JSON.parse(before);
          wanted.model = alias;
          const given = wanted.stream_options;
          if (stream === true && (given === undefined || given === null))
            wanted.stream_options = { include_usage: true };
          else if (stream === true && typeof given === 'object' && !Array.isArray(given)) given.include_usage ||= true;
          const scan = scanJson(bytes(before));
          if (scan.model === undefined) throw new Error('no model');
          const after = apply(bytes(before), joinEdits(usageEdits(scan, CHAT), [modelNameEdit(scan.model, alias)]), at);
          expect(JSON.parse(after)).toEqual(wanted);
          // Still one of each member: a scan of the result finds no duplicates.
          expect(scanJson(bytes(after)).model?.value).toBe(alias);
        },
      ),
      { numRuns: 1000 },
    );
  });
});

const editList = fc
  .array(
    fc.record({ skip: fc.nat(6), remove: fc.nat(4), insert: fc.string({ maxLength: 5, unit: 'grapheme-ascii' }) }),
    {
      maxLength: 6,
    },
  )
  .map((steps) => {
    let free = 0;
    return steps.map(({ skip, remove, insert }): Edit => {
      const at = free + skip;
      free = at + remove;
      return { at, remove, insert: bytes(insert) };
    });
  });

describe('a body that streams through its edits', () => {
  it('comes out as if edited in one piece, wherever it is cut', () => {
    fc.assert(
      fc.property(editList, fc.nat(10), cuts, (edits, tail, at) => {
        const last = edits.at(-1);
        const length = (last === undefined ? 0 : last.at + last.remove) + tail;
        const whole = Uint8Array.from({ length }, (_, i) => 0x41 + (i % 26));
        let wanted = text(whole);
        for (const { at, remove, insert } of edits.toReversed()) {
          wanted = wanted.slice(0, at) + text(insert) + wanted.slice(at + remove);
        }
        expect(apply(whole, edits, at)).toBe(wanted);
      }),
      { numRuns: 2000 },
    );
  });

  it('is not copied: parts without edits are views of the input', () => {
    const chunk = bytes('{"stream":true}');
    const body = new EditedBody([{ at: 14, remove: 0, insert: bytes('x') }]);
    const out = body.push(chunk);
    expect(out.map((piece) => piece.buffer === chunk.buffer)).toEqual([true, false, true]);
    expect(new EditedBody([]).push(chunk)[0]).toBe(chunk);
  });

  it('does not hold bytes back: what has come has gone out', () => {
    const body = new EditedBody([{ at: 50, remove: 2, insert: bytes('x') }]);
    expect(text(body.push(bytes('a'.repeat(50))))).toBe('a'.repeat(50));
    expect(text(body.push(bytes('b')))).toBe('x');
    expect(text(body.push(bytes('b')))).toBe('');
    expect(text(body.push(bytes('c')))).toBe('c');
    expect(body.end()).toEqual([]);
  });

  it.each([
    ['begins', { at: 4, remove: 0 }],
    ['ends', { at: 2, remove: 2 }],
  ])('is an error where an edit %s beyond its end', (_, range) => {
    const body = new EditedBody([{ ...range, insert: bytes('x') }]);
    body.push(bytes('abc'));
    expect(() => body.end()).toThrow(RangeError);
    expect(() => body.lengthAfter(3)).toThrow(RangeError);
  });

  it.each([
    [
      'out of order',
      [
        { at: 5, remove: 0 },
        { at: 4, remove: 0 },
      ],
    ],
    [
      'overlapping',
      [
        { at: 1, remove: 4 },
        { at: 4, remove: 0 },
      ],
    ],
    ['negative', [{ at: -1, remove: 0 }]],
    ['removing less than nothing', [{ at: 1, remove: -1 }]],
    ['no number', [{ at: Number.NaN, remove: 0 }]],
    ['no integer', [{ at: 0.5, remove: 0 }]],
    ['beyond what offsets can be', [{ at: 2 ** 53, remove: 0 }]],
    ['too many', Array.from({ length: 17 }, (_, at) => ({ at, remove: 0 }))],
  ])('refuses edits that are %s', (_, ranges) => {
    const edits = ranges.map((range) => ({ ...range, insert: bytes('x') }));
    expect(() => new EditedBody(edits)).toThrow(RangeError);
  });

  it('cannot be given overlapping edits by joining lists', () => {
    const one: Edit = { at: 1, remove: 3, insert: bytes('') };
    expect(() => joinEdits([one], [{ ...one, at: 2 }])).toThrow(RangeError);
    expect(joinEdits([{ ...one, at: 9 }], [one]).map(({ at }) => at)).toEqual([1, 9]);
  });
});
