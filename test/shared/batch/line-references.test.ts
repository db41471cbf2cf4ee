/** Lines that need results of other batches. */
import { expect, test } from 'vitest';
import { InputCheck } from '../../../shared/batch/batch-input-check.ts';
import { isReady, type LineReference, readReferences, withResults } from '../../../shared/batch/line-references.ts';

const ENDPOINT = '/v1/otela/functions';
const lineOf = (id: string, input: unknown, more: object = {}) =>
  JSON.stringify({ custom_id: id, method: 'POST', url: ENDPOINT, body: { model: 'function:file-1', input }, ...more });
const ref = (batch: number, line: number) => ({ $result: [batch, line] });

function checked(after: number, ...lines: string[]) {
  const check = new InputCheck({ endpoint: ENDPOINT, after });
  check.push(new TextEncoder().encode(lines.join('\n')));
  return check.end();
}

test('a line names results in its input, and waits for others without getting them; each counts once', () => {
  const line = lineOf('a', { args: [ref(0, 7), [ref(1, 0)], ref(0, 7)] }, { after: [[1, 5]] });
  const { waiting, chunks, errors } = checked(2, lineOf('before', 1), line, lineOf('behind', 2));
  expect(errors).toEqual([]);
  expect(waiting).toEqual([
    {
      line: 1,
      offset: lineOf('before', 1).length + 1,
      bytes: line.length,
      demands: 0,
      needs: [
        [0, 7],
        [1, 0],
        [1, 5],
      ],
    },
  ]);
  // The lines around it are not in one chunk with it.
  expect(chunks.map(({ first, lines }) => [first, lines])).toEqual([
    [0, 1],
    [2, 1],
  ]);
});

test('in a batch that names no others, the same text is a value', () => {
  expect(checked(0, lineOf('a', ref(0, 7), { after: 'noon' }))).not.toHaveProperty('waiting');
  expect(checked(0, lineOf('a', ref(0, 7), { after: 'noon' })).errors).toEqual([]);
});

test.each([
  ['a batch that it did not name', { args: [ref(1, 0)] }, {}],
  ['a batch that it did not name, without getting the result', 1, { after: [[1, 0]] }],
  ['a text in place of a list', 1, { after: '0,0' }],
  ['a line before the first', 1, { after: [[0, -1]] }],
  ['half a line', 1, { after: [[0, 1.5]] }],
  ['three numbers', 1, { after: [[0, 1, 2]] }],
  ['more results than a line may need', 1, { after: Array.from({ length: 10_001 }, (_, i) => [0, i]) }],
])('a line that needs %s fails its batch', (_, input, more) => {
  expect(checked(1, lineOf('a', input, more)).errors).toMatchObject([{ param: 'after', line: 1 }]);
});

test('all lines of a batch together need at most 200,000 results', () => {
  const after = Array.from({ length: 10_000 }, (_, i) => [0, i]);
  const lines = Array.from({ length: 21 }, (_, i) => lineOf(`${i}`, 1, { after }));
  expect(checked(1, ...lines.slice(1)).errors).toEqual([]);
  expect(checked(1, ...lines).errors).toMatchObject([{ line: 21 }]);
});

test('a text that looks like a reference is a text, and a result that looks like one is not replaced again', () => {
  const text = JSON.stringify({ a: '{"$result":[0,1]}', b: ref(0, 1), c: '\\{"$result":[0,1]}' });
  expect(readReferences(text, undefined, 1)).toEqual([[0, 1]]);
  const made = withResults(text, () => JSON.stringify(ref(0, 1)));
  expect(JSON.parse(made)).toEqual({ a: '{"$result":[0,1]}', b: ref(0, 1), c: '\\{"$result":[0,1]}' });
  expect(withResults('{"$result":[0,1]}', () => '"$& $1 $$"')).toBe('"$& $1 $$"');
});

test('a line is ready when each result is there, or never will be', () => {
  const line = (...needs: LineReference[]) => ({ line: 0, offset: 0, bytes: 1, demands: 0, needs });
  const running = { ended: false, done: new Uint8Array([0b10]) };
  expect(isReady(line([0, 1]), [running])).toBe(true);
  expect(isReady(line([0, 1], [0, 0]), [running])).toBe(false);
  expect(isReady(line([0, 5_000]), [running])).toBe(false);
  expect(isReady(line([0, 1], [1, 3]), [running, { ended: true, done: new Uint8Array() }])).toBe(true);
  expect(isReady(line([0, 1], [1, 3]), [running, null])).toBe(true);
});
