/** Makes chunks of lines that waited for results of other batches. */
import { CHUNK_BYTES, CHUNK_LINES, type ChunkRange } from '../../../shared/batch/batch-input-check.ts';
import type { ChunkState, LeaseLedger } from '../../../shared/batch/lease-ledger.ts';
import type { WaitingLine } from '../../../shared/batch/line-references.ts';
import type { LineResult } from '../../../shared/batch/line-results.ts';
import type { WaitingLines } from './waiting-lines.ts';

/** A line with its results, or why it cannot have them. */
export type ResolvedLine = { of: WaitingLine } & ({ text: string; id: string; files?: string[] } | { why: string });

interface FailedChunk {
  chunk: ChunkState;
  results: LineResult[];
}

/** Adds lines to the ledger. @returns the chunks of lines that cannot run, and their results, which the caller stores */
export function appendResolved(
  ledger: LeaseLedger,
  waiting: WaitingLines,
  lines: readonly ResolvedLine[],
): FailedChunk[] {
  for (const group of groups(lines.flatMap((one) => ('text' in one ? [one] : [])))) {
    const text = new TextEncoder().encode(group.map((one) => one.text).join('\n'));
    const numbers = group.map(({ of }) => of.line);
    const resolved = { numbers, ids: group.map(({ id }) => id) };
    const demands = group[0]?.of.demands ?? 0;
    const range = { offset: 0, bytes: text.length, first: numbers[0] ?? 0, lines: group.length, prefix: 0, demands };
    waiting.addFiles(group.flatMap(({ files = [] }) => files));
    for (const chunk of ledger.append([{ ...range, resolved }])) waiting.setText(chunk.id, text);
  }
  const failed = lines.flatMap((one) => ('why' in one ? [one] : []));
  const whys = new Map(failed.map(({ of, why }) => [of.line, why]));
  waiting.remove(lines.map(({ of }) => of));
  return ledger.append(rangesOf(failed.map(({ of }) => of))).map((chunk) => {
    ledger.settle(chunk);
    return {
      chunk,
      results: Array.from({ length: chunk.lines }, (_, i) => failedResult(i, whys.get(chunk.first + i))),
    };
  });
}

/** Gives all lines that still wait to the ledger as they are in the input, because the batch ends without them. */
export function appendWaiting(ledger: LeaseLedger, waiting: WaitingLines): void {
  const { all } = waiting;
  ledger.append(rangesOf(all));
  waiting.remove(all);
}

type Text = Extract<ResolvedLine, { text: string }>;

/** Lines with the same requirements, within the bounds of a chunk. */
function groups(lines: readonly Text[]): Text[][] {
  const made: Text[][] = [];
  let [group, length]: [Text[], number] = [[], 0];
  for (const one of lines) {
    const fits = group.length < CHUNK_LINES && length + one.text.length <= CHUNK_BYTES;
    if (group.length > 0 && (!fits || group[0]?.of.demands !== one.of.demands)) {
      made.push(group);
      [group, length] = [[], 0];
    }
    group.push(one);
    length += one.text.length;
  }
  if (group.length > 0) made.push(group);
  return made;
}

/** The places of these lines in the input: lines that follow each other share a range. */
function rangesOf(lines: readonly WaitingLine[]): ChunkRange[] {
  const ranges: ChunkRange[] = [];
  for (const { line, offset, bytes, demands } of lines) {
    const last = ranges.at(-1);
    if (last !== undefined && last.first + last.lines === line && last.lines < CHUNK_LINES) {
      last.lines += 1;
      last.bytes = offset + bytes - last.offset;
    } else ranges.push({ offset, bytes, first: line, lines: 1, prefix: 0, demands });
  }
  return ranges;
}

function failedResult(line: number, why = 'It needs a line that does not exist.'): LineResult {
  return { line, status_code: 0, request_id: '', body: '', error: 'dependency_failed', why };
}
