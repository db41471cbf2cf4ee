/** Flux 0.60 and later, by the output that its manual shows: flux-job(1) timeleft, flux-jobs(1). Not run. */
import type { RunTool } from '../run-tool.ts';
import { type BatchJob, type EndTime, type Env, firstLabel, type JobFate } from './batch-job.ts';

/** Seconds pass between two answers; a limit that was changed differs by more. */
const STEP_MS = 5_000;

/** kill-timeout of the job manager, its default. */
const KILL_WAIT_MS = 5_000;

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
      if (!/^\d{1,10}(\.\d+)?$/.test(said)) return { kind: 'unknown', reason: `flux says "${said.slice(0, 40)}"` };
      const ends = Date.now() + Number(said) * 1000;
      if (known === undefined || Math.abs(ends - known) > STEP_MS) known = ends;
      return { kind: 'known', ends: new Date(known) };
    },
    askFate: (run) => askFate(id, run),
    killWaitMs: async () => KILL_WAIT_MS,
  };
}

/** RFC 21: a job exception ends a job; its type says why. */
async function askFate(id: string, run: RunTool): Promise<JobFate | undefined> {
  const answer = await run('flux', ['jobs', '--no-header', '--format={exception.type}|{exception.note}', id]);
  if (!answer.ok) return undefined;
  const [type = '', note = ''] = answer.stdout.trim().split('|');
  if (/preempt/i.test(`${type} ${note}`)) return 'preempted';
  if (type === 'timeout') return 'time-limit';
  if (type === 'node-failure') return 'node-failure';
  return type === 'cancel' ? 'cancelled' : undefined;
}
