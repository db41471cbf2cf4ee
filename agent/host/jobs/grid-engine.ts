/** Grid Engine and its descendants: qstat(1) with -xml. */
import type { RunTool } from '../run-tool.ts';
import { type BatchJob, type EndTime, type Env, firstLabel, type JobFate, secondsOf } from './batch-job.ts';

/** Larger values are milliseconds, which some descendants report. */
const SECONDS_MAX = 100_000_000_000;

/** The default `notify` of a queue: time from SIGUSR2 to SIGKILL if the job was submitted with -notify. */
const KILL_WAIT_MS = 60_000;

/** Needs SGE_ROOT too, because `JOB_ID` is a common name. */
export function gridEngineJob(env: Env): BatchJob | undefined {
  const { JOB_ID: id, SGE_ROOT: root, SGE_TASK_ID: task } = env;
  if (id === undefined || root === undefined || !/^\d{1,20}$/.test(id)) return undefined;
  return {
    system: 'Grid Engine',
    id: task !== undefined && /^\d{1,10}$/.test(task) ? `${id}.${task}` : id,
    node: firstLabel(env.HOSTNAME),
    partition: env.QUEUE?.slice(0, 64),
    ends: undefined,
    askEnd: (run) => askEnd(id, task, run),
    askFate: (run) => askFate(id, run),
    killWaitMs: async () => KILL_WAIT_MS,
  };
}

async function askEnd(id: string, task: string | undefined, run: RunTool): Promise<EndTime> {
  const answer = await run('qstat', ['-xml', '-j', id]);
  if (!answer.ok) return { kind: 'unknown', reason: answer.reason };
  const limit = /<CE_name>h_rt<\/CE_name>[\s\S]*?<CE_stringval>([^<]*)</.exec(answer.stdout)?.[1];
  if (limit === undefined) return { kind: 'known', ends: undefined };
  const tasks = [...answer.stdout.matchAll(/<(ulong_sublist|element)>[\s\S]*?<JAT_start_time>(\d+)<[\s\S]*?<\/\1>/g)];
  const own = tasks.find(([text]) => text.includes(`<JAT_task_number>${task ?? ''}<`)) ?? tasks[0];
  const seconds = secondsOf(limit);
  const told = Number(own?.[2] ?? 0);
  if (told <= 0 || seconds === undefined)
    return { kind: 'unknown', reason: `qstat shows no start time or no h_rt of job ${id}` };
  return { kind: 'known', ends: new Date((told > SECONDS_MAX ? told : told * 1000) + seconds * 1000) };
}

/** qstat(1): a job in state `d` is being deleted. */
async function askFate(id: string, run: RunTool): Promise<JobFate | undefined> {
  const answer = await run('qstat', ['-xml', '-s', 'r']);
  if (!answer.ok) return undefined;
  const job = [...answer.stdout.matchAll(/<job_list[ >][\s\S]*?<\/job_list>/g)].find(([text]) =>
    text.includes(`<JB_job_number>${id}<`),
  );
  return /<state>[^<]*d[^<]*</.test(job?.[0] ?? '') ? 'cancelled' : undefined;
}
