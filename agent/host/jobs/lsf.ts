/** LSF 10.1, according to the output in IBM's command reference: bjobs(1) with -json. Not run. */
import * as z from 'zod';
import type { RunTool } from '../run-tool.ts';
import { type BatchJob, type EndTime, type Env, firstLabel, type JobFate } from './batch-job.ts';

const recordsSchema = z.object({
  RECORDS: z.tuple([
    z.object({ STAT: z.string(), TIME_LEFT: z.string().optional(), EXIT_REASON: z.string().optional() }),
  ]),
});
type Told = z.infer<typeof recordsSchema>['RECORDS'][0];

/** bjobs reports whole minutes; ends that differ by less than this are the same. */
const STEP_MS = 90_000;

/** The default JOB_TERMINATE_INTERVAL, between SIGINT, SIGTERM and SIGKILL. */
const KILL_WAIT_MS = 10_000;

export function lsfJob(env: Env): BatchJob | undefined {
  const number = env.LSB_JOBID;
  if (number === undefined || !/^\d{1,20}$/.test(number)) return undefined;
  const index = env.LSB_JOBINDEX;
  const id = index !== undefined && /^[1-9]\d{0,9}$/.test(index) ? `${number}[${index}]` : number;
  let known: number | undefined;
  return {
    system: 'LSF',
    id,
    node: firstLabel(env.HOSTNAME),
    partition: env.LSB_QUEUE?.slice(0, 64),
    ends: undefined,
    askEnd: async (run): Promise<EndTime> => {
      const told = await ask(id, run);
      if (typeof told === 'string') return { kind: 'unknown', reason: told };
      const [, hours, minutes] = /^(\d+):(\d+) L$/.exec(told.TIME_LEFT?.trim() ?? '') ?? [];
      // `-`, and `E` for an estimate, mean no limit.
      if (hours === undefined || minutes === undefined) return { kind: 'known', ends: undefined };
      const ends = Date.now() + (Number(hours) * 60 + Number(minutes)) * 60_000;
      if (known === undefined || Math.abs(ends - known) > STEP_MS) known = ends;
      return { kind: 'known', ends: new Date(known) };
    },
    askFate: async (run) => {
      const told = await ask(id, run);
      return typeof told === 'string' ? undefined : fateOf(told);
    },
    killWaitMs: async () => KILL_WAIT_MS,
  };
}

/** The output of bjobs, or the reason for a failure. */
async function ask(id: string, run: RunTool): Promise<Told | string> {
  const answer = await run('bjobs', ['-a', '-json', '-o', 'stat time_left exit_reason', id]);
  if (!answer.ok) return answer.reason;
  try {
    return recordsSchema.parse(JSON.parse(answer.stdout)).RECORDS[0];
  } catch {
    return 'the output of bjobs has an unknown format';
  }
}

/** lsb.acct(5), "Termination reasons". */
function fateOf({ STAT, EXIT_REASON: reason = '' }: Told): JobFate | undefined {
  if (/TERM_PREEMPT/.test(reason)) return 'preempted';
  if (/TERM_RUNLIMIT|TERM_DEADLINE|TERM_WINDOW/.test(reason)) return 'time-limit';
  if (/TERM_MEMLIMIT|TERM_SWAP/.test(reason)) return 'out-of-memory';
  return STAT === 'EXIT' || STAT === 'ZOMBI' || /TERM_(OWNER|ADMIN|FORCE)/.test(reason) ? 'cancelled' : undefined;
}
