/** The results that a running batch already has, for readers that do not wait for its files. */
import type { ChunkState } from '../../shared/batch/lease-ledger.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import type { FileStore } from '../files/file-store.ts';
import type { Arrival } from './batch-rows.ts';
import { lineNumber } from './dependencies/line-values.ts';
import { lineId, readCustomIds, written } from './output-lines.ts';

/** Maximum commits of one page. */
const COMMITS_MAX = 256;
/** A page ends when it has this many bytes of responses. */
const PAGE_BYTES = 1024 * 1024;
/** A page ends when the chunks of its lines have this many bytes of input, because they are read for `custom_id`. */
const INPUT_BYTES = 8 * 1024 * 1024;

interface ArrivedCommit {
  number: number;
  /** Place of the chunk in the input file. */
  chunk: Pick<ChunkState, 'id' | 'offset' | 'bytes' | 'first' | 'resolved'>;
  results: LineResult[];
}

export interface ArrivedPage {
  commits: ArrivedCommit[];
  /** True if the batch has further results. */
  hasMore: boolean;
}

interface ArrivedSource {
  arrivals(most: number): Arrival[];
  resultsOf(chunk: number, seq: number): LineResult[];
  chunk(id: number): ChunkState | undefined;
}

/** Returns at least one commit, if there is one. */
export function arrivedPage({ arrivals, resultsOf, chunk }: ArrivedSource): ArrivedPage {
  const commits: ArrivedCommit[] = [];
  const read = new Set<number>();
  let [room, inputRoom] = [PAGE_BYTES, INPUT_BYTES];
  const found = arrivals(COMMITS_MAX);
  for (const { number, chunk: of, seq } of found) {
    const place = chunk(of);
    if (place === undefined) continue;
    const results = resultsOf(of, seq);
    room -= results.reduce((sum, { body }) => sum + body.length, 0);
    if (!read.has(of)) inputRoom -= place.bytes;
    if (commits.length > 0 && (room < 0 || inputRoom < 0)) return { commits, hasMore: true };
    read.add(of);
    const { id, offset, bytes, first, resolved } = place;
    commits.push({ number, chunk: { id, offset, bytes, first, ...(resolved && { resolved }) }, results });
  }
  return { commits, hasMore: found.length === COMMITS_MAX };
}

interface LinesOptions {
  batch: string;
  input: string;
  store: FileStore;
  commits: readonly ArrivedCommit[];
}

/** Returns the lines as the result files will have them, without line ends. @throws FileStoreError */
export async function arrivedLines({ batch, input, store, commits }: LinesOptions): Promise<string[]> {
  const ids = new Map<number, string[]>();
  const lines: string[] = [];
  for (const { chunk, results } of commits) {
    const known = ids.get(chunk.id) ?? chunk.resolved?.ids ?? (await readCustomIds({ store, input }, [chunk]));
    ids.set(chunk.id, known);
    for (const result of results) {
      const id = lineId(batch, lineNumber(chunk, result.line));
      lines.push(written(id, known[result.line] ?? null, result, { unexecuted: 'engine_failed' }).trimEnd());
    }
  }
  return lines;
}
