/** Divides a run of tests into pieces of similar duration, and orders them. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { POSTGRES_FILES } from '../conformance/postgres-files.ts';
import { WORKER_FILES } from '../conformance/worker-files.ts';
import { isShort } from '../tiers.ts';
import { ROOT } from './where.ts';

/** A piece of a part: one run of vitest. */
export interface Job {
  /** The part, as `npm test -- PART` names it. */
  part: string;
  /** The part, and the number of the piece if it has several. */
  title: string;
  /** vitest's project; differs from the part for `worker`. */
  project: string;
  /** Paths from the root. */
  files: string[];
  env: NodeJS.ProcessEnv;
  /** Duration in earlier runs. It affects only the order. */
  seconds: number;
  /** Duration of one of its files in earlier runs. */
  secondsOf: (file: string) => number;
}

/** Files of a part are divided into runs of at most this duration, unless one file takes longer. */
const PIECE_SECONDS = 200;
/** Assumed durations of files that are not in the table: of the short form, and of the long one. */
const SHORT_FILE_SECONDS = 2;
const LONG_FILE_SECONDS = 30;
/**
 * Parts that are one run: files of `netns` and `slurm` share the machine's addresses and daemons; the others share a
 * runtime or loaded modules.
 */
const WHOLE: ReadonlySet<string> = new Set([
  'netns',
  'slurm',
  'gateway',
  'shared',
  'node',
  'sim',
  'scheduler',
  'factory',
  'research',
  'up',
  'worker',
  'postgresql',
]);
/** How many times longer `wrangler dev` takes for the same files. */
const WORKER_SLOWER = 3;

/** Parts that run some files of the project `conformance` on another host, by the host's name. */
const OTHER_HOSTS: Readonly<Record<string, readonly string[]>> = { worker: WORKER_FILES, postgresql: POSTGRES_FILES };

export function environmentOf(part: string): { project: string; env: NodeJS.ProcessEnv } {
  return part in OTHER_HOSTS ? { project: 'conformance', env: { OTELA_TEST_HOST: part } } : { project: part, env: {} };
}

/** All test files of a part. */
export function filesOf(part: string): string[] {
  const others = OTHER_HOSTS[part];
  if (others !== undefined) return others.map((file) => `test/conformance/${file}.test.ts`);
  return globSync(`test/${part}/**/*.test.ts`, { cwd: ROOT }).toSorted();
}

/** Seconds by test file, for slow files. `npm test` prints the slowest at its end. */
function fileTimes(): Record<string, number> {
  return z
    .record(z.string(), z.number().positive())
    .parse(JSON.parse(readFileSync(join(ROOT, 'test/file-times.json'), 'utf8')));
}

/** Assigns each file, the longest first, to the piece with the least time so far. */
export function pieces(files: readonly string[], seconds: (file: string) => number, limit: number): string[][] {
  const total = files.reduce((sum, file) => sum + seconds(file), 0);
  const made = Array.from({ length: Math.max(1, Math.ceil(total / limit)) }, () => ({
    files: [] as string[],
    seconds: 0,
  }));
  for (const file of files.toSorted((a, b) => seconds(b) - seconds(a) || a.localeCompare(b))) {
    const least = made.reduce((best, piece) => (piece.seconds < best.seconds ? piece : best));
    least.files.push(file);
    least.seconds += seconds(file);
  }
  return made.map((piece) => piece.files).filter((piece) => piece.length > 0);
}

/** The pieces of these files by part, the longest first. */
export function jobsOf(files: ReadonlyMap<string, readonly string[]>): Job[] {
  const times = fileTimes();
  const jobs = [...files].flatMap(([part, all]): Job[] => {
    const slower = part === 'worker' ? WORKER_SLOWER : 1;
    const seconds = (file: string) =>
      slower * (times[file] ?? (isShort(part, file) ? SHORT_FILE_SECONDS : LONG_FILE_SECONDS));
    const divided = WHOLE.has(part) ? [[...all]] : pieces(all, seconds, PIECE_SECONDS);
    return divided.map((piece, index) => ({
      part,
      title: divided.length === 1 ? part : `${part} ${index + 1}/${divided.length}`,
      ...environmentOf(part),
      files: piece,
      seconds: piece.reduce((sum, file) => sum + seconds(file), 0),
      secondsOf: seconds,
    }));
  });
  return jobs.toSorted((a, b) => b.seconds - a.seconds);
}
