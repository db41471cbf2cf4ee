/**
 * Flux 0.60 and later: flux-submit(1), flux-jobs(1), flux-cancel(1), flux-job(1). Tested by hand with 0.88, without
 * GPUs, because the scheduler that is built into Flux does not assign them.
 */
import * as z from 'zod';
import { type AskTool, type BatchJob, type EndTime, type Env, firstLabel, type JobFate } from './batch-job.ts';
import { type BatchSystem, type JobSubmission, type ListedJob, withLogRedirect } from './batch-system.ts';
import { minutesOf } from './time-limit.ts';

/** A shell expression for the job's id, in characters that are allowed in file names and labels. */
const JOB_ID = '$(flux job id --to=f58plain "$FLUX_JOB_ID")';

function flags({ name, pool, gpus }: JobSubmission): string[] {
  return [
    `--job-name=${name}`,
    `--queue=${pool.name}`,
    '--nodes=1',
    '--ntasks=1',
    `--gpus-per-task=${gpus}`,
    ...(pool.cpus === undefined ? [] : [`--cores-per-task=${pool.cpus}`]),
    `--time-limit=${minutesOf(pool.time)}m`,
    ...(pool.account === undefined ? [] : [`--bank=${pool.account}`]),
    '--output=/dev/null',
    ...pool.options.map((one) => (one.startsWith('-') ? one : `--${one}`)),
  ];
}

export function flux(): BatchSystem {
  return {
    kind: 'flux',
    seen: 'recorded',
    jobId: JOB_ID,
    away: /unable to connect|no such file or directory.*socket|host is unreachable|broker.*(offline|lost)|connection refused/i,
    // The whole script is an argument of the job, which other users can see. It names files of secrets but contains no
    // secret.
    submit: (submission) => ({
      file: 'flux',
      args: ['submit', ...flags(submission), 'bash', '-c', withLogRedirect(submission, JOB_ID)],
      input: '',
    }),
    idIn: (out) => /^(?:ƒ|f)?([1-9A-HJ-NP-Za-km-z]+)$/m.exec(out.trim())?.[0].replace(/^ƒ/, 'f'),
    list: {
      file: 'flux',
      args: ['jobs', '-a', '--no-header', '--format={id.f58plain}|{name}|{state}|{result}|{exception.note}'],
    },
    parse: parseJobs,
    cancel: { file: 'flux', args: (ids) => ['cancel', ...ids], gone: /inactive|unknown job/i },
    check: (submission) => ({ file: 'flux', args: ['submit', '--dry-run', ...flags(submission), 'true'] }),
  };
}

function parseJobs(out: string): ListedJob[] {
  return out.split('\n').flatMap((line): ListedJob[] => {
    const [id = '', name = '', state = '', result = '', ...note] = line.trim().split('|');
    if (id === '' || name === '') return [];
    switch (state) {
      case 'RUN':
      case 'CLEANUP':
        return [{ id, name, state: 'running' }];
      case 'INACTIVE': {
        const ended = { COMPLETED: 'done', CANCELED: 'cancelled', TIMEOUT: 'time' }[result];
        return [
          {
            id,
            name,
            state: 'ended',
            reason: note.join('|') || result,
            ended: ended === 'done' || ended === 'cancelled' || ended === 'time' ? ended : 'failed',
          },
        ];
      }
      default:
        return [{ id, name, state: 'pending', reason: state }];
    }
  });
}

/**
 * Flux reports the remaining time, from which the job's end is computed. Computed ends that differ by at most this much
 * are the same end; a larger difference means that the limit was changed.
 */
const STEP_MS = 5_000;

/** Flux's default of `kill-timeout`, the time between SIGTERM and SIGKILL. */
const KILL_WAIT_MS = 5_000;

/** Seconds that flux reports as left for a job without a limit: the greatest 32-bit number. */
const NO_LIMIT_S = 2 ** 32 - 1;

export function fluxJob(env: Env): BatchJob | undefined {
  const id = env.FLUX_JOB_ID;
  if (id === undefined || !/^[ƒf]?[1-9A-HJ-NP-Za-km-z]{1,40}$/.test(id)) return undefined;
  let known: number | undefined;
  return {
    system: 'Flux',
    id,
    node: firstLabel(env.HOSTNAME),
    partition: undefined,
    ends: undefined,
    askEnd: async (run): Promise<EndTime> => {
      const answer = await run('flux', ['job', 'timeleft']);
      if (!answer.ok) return { kind: 'unknown', reason: answer.reason };
      const said = answer.stdout.trim();
      if (/^(inf|infinity)$/i.test(said)) return { kind: 'known', ends: undefined };
      if (!/^\d{1,10}(\.\d+)?$/.test(said)) return { kind: 'unknown', reason: `flux printed "${said.slice(0, 40)}"` };
      if (Number(said) >= NO_LIMIT_S) return { kind: 'known', ends: undefined };
      const ends = Date.now() + Number(said) * 1000;
      if (known === undefined || Math.abs(ends - known) > STEP_MS) known = ends;
      return { kind: 'known', ends: new Date(known) };
    },
    askFate: (run) => askFate(id, run),
    killWaitMs: async () => KILL_WAIT_MS,
  };
}

/** RFC 21: an exception of severity 0 ends a job, and its type is the reason. */
const exceptionSchema = z.object({
  name: z.literal('exception'),
  context: z.object({ type: z.string(), severity: z.literal(0), note: z.string().default('') }),
});

/** Reads the cause from the job's own events, because `flux jobs` reports an exception only after the job has ended. */
async function askFate(id: string, run: AskTool): Promise<JobFate | undefined> {
  const answer = await run('flux', ['job', 'eventlog', '--format=json', id]);
  if (!answer.ok) return undefined;
  const [first] = answer.stdout.split('\n').flatMap((line) => exceptionOf(line) ?? []);
  if (first === undefined) return undefined;
  const { type, note } = first;
  if (/preempt/i.test(`${type} ${note}`)) return 'preempted';
  if (type === 'timeout') return 'time-limit';
  if (type === 'node-failure') return 'node-failure';
  return type === 'cancel' ? 'cancelled' : undefined;
}

function exceptionOf(line: string): { type: string; note: string } | undefined {
  try {
    return exceptionSchema.safeParse(JSON.parse(line)).data?.context;
  } catch {
    return undefined;
  }
}
