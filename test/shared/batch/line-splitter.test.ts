import fc from 'fast-check';
import { expect, it } from 'vitest';
import { LineSplitter } from '../../../shared/batch/line-splitter.ts';

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

it('gives the same lines however a file is cut, also where the caller uses one buffer again and again', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ minLength: 1, maxLength: 40 }).filter((line) => /[^\s]/.test(line) && !/[\r\n]/.test(line))),
      fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }),
      (lines, sizes) => {
        const file = new TextEncoder().encode(lines.join('\n'));
        const found: { line: string; offset: number }[] = [];
        const splitter = new LineSplitter(
          1_000,
          ({ bytes, offset }) => found.push({ line: text(bytes), offset }),
          () => {},
        );
        const buffer = new Uint8Array(30);
        for (let at = 0, i = 0; at < file.length; i++) {
          const piece = file.subarray(at, at + (sizes[i % sizes.length] ?? 1));
          buffer.fill(0);
          buffer.set(piece);
          splitter.push(buffer.subarray(0, piece.length));
          at += piece.length;
        }
        splitter.end();
        expect(found.map(({ line }) => line)).toEqual(lines);
        for (const { line, offset } of found)
          expect(text(file.subarray(offset, offset + new TextEncoder().encode(line).length))).toBe(line);
      },
    ),
  );
});
