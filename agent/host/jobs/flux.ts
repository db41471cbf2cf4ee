/**
 * Flux 0.60 and later: `flux job timeleft` and `flux job eventlog`, flux-job(1). Its answers were recorded with 0.88.
 */
import * as z from 'zod';
import type { RunTool } from '../run-tool.ts';
import { type BatchJob, type EndTime, type Env, firstLabel, type JobFate } from './batch-job.ts';

/** Seconds pass between two answers; a changed limit differs by more than this. */
const STEP_MS = 5_000;

/** The default kill-timeout of the job manager. */
const KILL_WAIT_MS = 5_000;

/** The time left of a job without a limit: the greatest 32-bit number. */
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

/** From the job's own events, because `flux jobs` does not report an exception before the job has ended. */
async function askFate(id: string, run: RunTool): Promise<JobFate | undefined> {
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
