/**
 * PBS Professional and OpenPBS 20 and later, according to the output in their reference guide: qstat(1B) with -F json.
 * Not run.
 */
import * as z from 'zod';
import type { RunTool } from '../run-tool.ts';
import { type BatchJob, type EndTime, type Env, firstLabel, type JobFate, secondsOf } from './batch-job.ts';

const jobsSchema = z.object({
  Jobs: z.record(
    z.string(),
    z.object({
      job_state: z.string(),
      stime: z.string().optional(),
      comment: z.string().optional(),
      Resource_List: z.object({ walltime: z.string().optional() }).optional(),
    }),
  ),
});
type Told = z.infer<typeof jobsSchema>['Jobs'][string];

/** The default kill_delay of a queue. */
const KILL_WAIT_MS = 10_000;

export function pbsJob(env: Env): BatchJob | undefined {
  const id = env.PBS_JOBID;
  if (id === undefined || !/^\d+(\[\d+\])?\.[\w.-]{1,80}$/.test(id)) return undefined;
  return {
    system: 'PBS',
    id: id.slice(0, 64),
    node: firstLabel(env.HOSTNAME ?? env.HOST),
    partition: env.PBS_QUEUE?.slice(0, 64),
    ends: undefined,
    askEnd: async (run) => {
      const told = await ask(id, run);
      return typeof told === 'string' ? { kind: 'unknown', reason: told } : endOf(told);
    },
    askFate: async (run) => {
      const told = await ask(id, run);
      return typeof told === 'string' ? undefined : fateOf(told);
    },
    killWaitMs: async () => KILL_WAIT_MS,
  };
}

/** The output of qstat, or the reason for a failure. qstat prints local time, so the time zone is set to UTC. */
async function ask(id: string, run: RunTool): Promise<Told | string> {
  const answer = await run('qstat', ['-x', '-f', '-F', 'json', id], { TZ: 'UTC' });
  if (!answer.ok) return answer.reason;
  try {
    const [told] = Object.values(jobsSchema.parse(JSON.parse(answer.stdout)).Jobs);
    return told ?? `qstat shows no job ${id}`;
  } catch {
    return 'the output of qstat has an unknown format';
  }
}

function endOf({ stime, Resource_List: asked }: Told): EndTime {
  if (asked?.walltime === undefined) return { kind: 'known', ends: undefined };
  const [started, seconds] = [Date.parse(`${stime ?? ''} UTC`), secondsOf(asked.walltime)];
  if (Number.isNaN(started) || seconds === undefined)
    return { kind: 'unknown', reason: 'qstat shows no start time or no walltime' };
  return { kind: 'known', ends: new Date(started + seconds * 1000) };
}

/** E: exiting, F: finished. The reason is in the comment, if the server writes one. */
function fateOf({ job_state: state, comment = '' }: Told): JobFate | undefined {
  if (/preempt/i.test(comment)) return 'preempted';
  if (/walltime/i.test(comment)) return 'time-limit';
  return state === 'E' || state === 'F' ? 'cancelled' : undefined;
}
