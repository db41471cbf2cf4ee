/** The launcher for batch systems that are controlled by command-line programs. */
import type { ClusterConfig } from '../config/schema.ts';
import { timeLimitMs } from '../config/value-schemas.ts';
import type { CommandResult, RunCommand } from './command-runner.ts';
import {
  type Capacity,
  type CheckFinding,
  type Launcher,
  LauncherError,
  type ListedJob,
  type Submission,
} from './launcher.ts';

export interface BatchSystem {
  kind: ClusterConfig['launcher'];
  seen: Launcher['seen'];
  /** A shell expression that gives the job's id inside the job. */
  jobId: string;
  /**
   * Matches the output of the commands if the batch system's server is unavailable; then the state of jobs is unknown.
   * Any other error is a refusal.
   */
  away: RegExp;
  submit(submission: Submission): { file: string; args: readonly string[]; input: string };
  /** Returns the new job's id from the output of `submit`. */
  idIn(out: string): string | undefined;
  list: { file: string; args: readonly string[] };
  /**
   * Parses the list of jobs, with any name.
   * @throws Error if the output is malformed, so that no job is considered missing
   */
  parse(out: string): ListedJob[];
  /** Absent: the system has no cheap way to report idle GPUs. */
  capacity?: { file: string; args: readonly string[]; parse(out: string, cluster: ClusterConfig): Capacity[] };
  cancel: {
    file: string;
    args(ids: readonly string[]): readonly string[];
    /** Matches the error about a job that has already ended. */
    gone: RegExp;
  };
  /** The command that checks whether a pool would accept the job, without submitting it. */
  check(submission: Submission): { file: string; args: readonly string[]; input?: string };
}

export function batchLauncher(cluster: ClusterConfig, system: BatchSystem, run: RunCommand): Launcher {
  const ask = async (call: { file: string; args: readonly string[]; input?: string }, submits: boolean) =>
    outputOf(await run(call.file, call.args, call.input), system.away, submits);
  return {
    kind: system.kind,
    seen: system.seen,
    jobId: system.jobId,
    async submit(submission) {
      const ids: string[] = [];
      for (let n = 0; n < submission.count; n++) {
        const out = await ask(system.submit(submission), true).catch((error: unknown) => {
          // Some of several jobs were accepted; the next list finds them by their name.
          if (ids.length > 0 && error instanceof LauncherError)
            throw new LauncherError('unclear', error.message, { cause: error });
          throw error;
        });
        const id = system.idIn(out);
        if (id === undefined)
          throw new LauncherError('unclear', `${system.kind} printed "${out.slice(0, 200)}", not a job id`);
        ids.push(id);
      }
      return ids;
    },
    async list(prefix) {
      const out = await ask(system.list, false);
      try {
        return system.parse(out).filter(({ name }) => name.startsWith(prefix));
      } catch (cause) {
        throw new LauncherError('unreachable', `${system.list.file} printed unreadable output: ${out.slice(0, 120)}`, {
          cause,
        });
      }
    },
    async capacity() {
      const { capacity } = system;
      return capacity === undefined ? undefined : capacity.parse(await ask(capacity, false), cluster);
    },
    async cancel(ids) {
      const { file, args, gone } = system.cancel;
      const result = await run(file, args(ids));
      if (result.kind === 'done' && result.code !== 0 && gone.test(`${result.errors} ${result.out}`)) return;
      outputOf(result, system.away, false);
    },
    async check(submission): Promise<CheckFinding> {
      const { file, args, input } = system.check(submission);
      const result = await run(file, args, input);
      if (result.kind === 'done' && !system.away.test(result.errors))
        return { ok: result.code === 0, text: (result.errors || result.out).replace(/\s+/g, ' ').trim().slice(0, 300) };
      throw new LauncherError('unreachable', result.errors);
    },
  };
}

/** @throws LauncherError */
function outputOf(result: CommandResult, away: RegExp, submits: boolean): string {
  if (result.kind === 'missing')
    throw new LauncherError('unreachable', `${result.errors}; is this a login node of the cluster?`);
  if (result.kind === 'killed') throw new LauncherError(submits ? 'unclear' : 'unreachable', result.errors);
  if (result.code === 0) return result.out;
  const text = result.errors.replace(/\s+/g, ' ');
  if (away.test(text)) throw new LauncherError(submits ? 'unclear' : 'unreachable', text);
  throw new LauncherError('refused', text);
}

/** Adds a redirection of output to the script, for systems whose output file name cannot contain the job's id. */
export function withLogRedirect({ body, log }: Submission, jobId: string): string {
  const [before = '', after = ''] = log.split('%j');
  return `exec >>${quoted(before)}"$(printf %s "${jobId}" | tr -c 'A-Za-z0-9_.-' _)"${quoted(after)} 2>&1\n${body}`;
}

const quoted = (text: string) => (text === '' ? '' : `'${text.replaceAll("'", `'\\''`)}'`);

/** Formats a pool's time limit as `HH:MM:SS`. */
export function wallTime(time: string): string {
  const seconds = Math.floor((timeLimitMs(time) ?? 0) / 1_000);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(Math.floor(seconds / 3_600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}

export const minutesOf = (time: string): number => Math.ceil((timeLimitMs(time) ?? 0) / 60_000);
