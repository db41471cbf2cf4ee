/** A run of tests as pieces of about equal time: what is started first, and what may run side by side. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { WORKER_FILES } from '../conformance/worker-files.ts';
import { ROOT } from './where.ts';

/** A piece of a part: one run of vitest. */
export interface Job {
  /** The part, as `npm test -- PART` names it. */
  part: string;
  /** The part, and which of its pieces where it has several. */
  title: string;
  /** vitest's project; another than the part for `worker`. */
  project: string;
  /** Paths from the root. */
  files: string[];
  env: NodeJS.ProcessEnv;
  /** As measured once; an order is all that it decides. */
  seconds: number;
}

/** Files of a part are divided among runs of at most so long, unless one file takes longer. */
const PIECE_SECONDS = 200;
/** Of a file that the table does not have. */
const OTHER_FILE_SECONDS = 5;
/** Parts that are one run: files of `netns` and `slurm` share addresses and daemons of the machine, those of the others a runtime or loaded modules. */
const WHOLE: ReadonlySet<string> = new Set([
  'netns',
  'slurm',
  'gateway',
  'shared',
  'sim',
  'scheduler',
  'factory',
  'research',
  'worker',
]);
/** `wrangler dev` takes so many times as long for the same files. */
const WORKER_SLOWER = 4;

/** The part `worker` is some files of another project, on another host. */
export function environmentOf(part: string): { project: string; env: NodeJS.ProcessEnv } {
  return part === 'worker'
    ? { project: 'conformance', env: { OTELA_TEST_HOST: 'worker' } }
    : { project: part, env: {} };
}

/** All test files of a part. */
export function filesOf(part: string): string[] {
  if (part === 'worker') return WORKER_FILES.map((file) => `test/conformance/${file}.test.ts`);
  return globSync(`test/${part}/**/*.test.ts`, { cwd: ROOT }).toSorted();
}

/** Seconds by test file, of those that take long. `npm test` prints the slowest at its end. */
function fileTimes(): Record<string, number> {
  return z
    .record(z.string(), z.number().positive())
    .parse(JSON.parse(readFileSync(join(ROOT, 'test/file-times.json'), 'utf8')));
}

/** Each file goes, the longest first, to the piece that has the least so far. */
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
  const seconds = (file: string) => times[file] ?? OTHER_FILE_SECONDS;
  const jobs = [...files].flatMap(([part, all]): Job[] => {
    const divided = WHOLE.has(part) ? [[...all]] : pieces(all, seconds, PIECE_SECONDS);
    const slower = part === 'worker' ? WORKER_SLOWER : 1;
    return divided.map((piece, index) => ({
      part,
      title: divided.length === 1 ? part : `${part} ${index + 1}/${divided.length}`,
      ...environmentOf(part),
      files: piece,
      seconds: slower * piece.reduce((sum, file) => sum + seconds(file), 0),
    }));
  });
  return jobs.toSorted((a, b) => b.seconds - a.seconds);
}
