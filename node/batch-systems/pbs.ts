/**
 * PBS Professional and OpenPBS 20 and later: qsub(1B), qstat(1B) with -F json, qdel(1B). Written from the output in
 * their reference guide; not tested with PBS.
 */
import * as z from 'zod';
import {
  type AskTool,
  type BatchJob,
  type EndTime,
  type Env,
  firstLabel,
  type JobFate,
  secondsOf,
} from './batch-job.ts';
import {
  type BatchSystem,
  type Capacity,
  type JobCluster,
  type JobSubmission,
  type ListedJob,
  withLogRedirect,
} from './batch-system.ts';
import { wallTime } from './time-limit.ts';

// biome-ignore lint/suspicious/noTemplateCurlyInString: the shell's braces
const JOB_ID = '${PBS_JOBID}';

/**
 * Lists only the factory's own jobs, because on a typical site a list of all users' jobs, which includes their
 * environments, exceeds 8 MiB. -x adds ended jobs, for the time that the server keeps them.
 */
const LIST_OWN =
  'ids=$(qselect -x -u "$(id -un)") || exit; [ -z "$ids" ] && echo "{}" || exec qstat -x -f -F json $ids';

function flags({ name, pool, gpus }: JobSubmission): string[] {
  const chunk = [
    'select=1',
    `ngpus=${gpus}`,
    ...(pool.cpus === undefined ? [] : [`ncpus=${pool.cpus}`]),
    ...(pool.memory === undefined ? [] : [`mem=${pool.memory}`]),
    ...(pool.constraint === undefined ? [] : [pool.constraint]),
  ];
  return [
    '-N',
    name,
    '-q',
    pool.name,
    '-l',
    chunk.join(':'),
    '-l',
    `walltime=${wallTime(pool.time)}`,
    ...(pool.account === undefined ? [] : ['-A', pool.account]),
    '-j',
    'oe',
    '-o',
    '/dev/null',
    '-r',
    'n',
    ...pool.options.flatMap((one) => ['-l', one]),
  ];
}

export function pbs(): BatchSystem {
  return {
    kind: 'pbs',
    seen: 'recorded',
    jobId: JOB_ID,
    away: /cannot connect to server|connection refused|no permission to connect|communication failure|timed? ?out/i,
    submit: (submission) => ({
      file: 'qsub',
      args: flags(submission),
      input: `#!/bin/bash\n${withLogRedirect(submission, JOB_ID)}`,
    }),
    idIn: (out) => /^\d+\.[\w.-]+$/m.exec(out.trim())?.[0],
    list: { file: 'sh', args: ['-c', LIST_OWN] },
    parse: parseJobs,
    capacity: { file: 'pbsnodes', args: ['-a', '-F', 'json'], parse: parseNodes },
    cancel: { file: 'qdel', args: (ids) => [...ids], gone: /has finished|unknown job id/i },
    check: ({ pool }) => ({ file: 'qstat', args: ['-Q', pool.name] }),
  };
}

const jobsSchema = z.object({ Jobs: z.record(z.string(), z.unknown()).optional() });
const jobSchema = z.object({
  // OpenPBS prints a job name that has only digits as a number.
  Job_Name: z.coerce.string(),
  job_state: z.string(),
  comment: z.string().optional(),
  Exit_status: z.coerce.number().optional(),
});
/** An exit code above this means that a signal ended the job: the reference guide, "Job Exit Status Codes". */
const BY_SIGNAL = 256;

function parseJobs(out: string): ListedJob[] {
  return Object.entries(jobsSchema.parse(readJson(out)).Jobs ?? {}).flatMap(([id, value]) => {
    const { data } = jobSchema.safeParse(value);
    return data === undefined ? [] : [listed(id, data)];
  });
}

/** Parses JSON in which OpenPBS left the quotes of some values out, such as 005 or .123. */
function readJson(out: string): unknown {
  try {
    return JSON.parse(out);
  } catch {
    return JSON.parse(out.replace(/(":\s*)([^\s"{}[\],][^\s,}]*)(?=\s*[,}])/g, (_, name, word) => `${name}"${word}"`));
  }
}

function listed(id: string, job: z.infer<typeof jobSchema>): ListedJob {
  const named = { id, name: job.Job_Name };
  switch (job.job_state) {
    case 'R':
    case 'E':
    case 'S':
    case 'U':
      return { ...named, state: 'running' };
    case 'F':
    case 'X': {
      const status = job.Exit_status ?? 0;
      const ended = status === 0 ? 'done' : status > BY_SIGNAL || status < 0 ? 'cancelled' : 'failed';
      return {
        ...named,
        state: 'ended',
        ended: /walltime/.test(job.comment ?? '') ? 'time' : ended,
        reason: job.comment ?? `exit status ${status}`,
      };
    }
    default:
      return { ...named, state: 'pending', reason: job.comment ?? job.job_state };
  }
}

const nodesSchema = z.object({
  nodes: z.record(
    z.string(),
    z.object({
      state: z.string(),
      queue: z.string().optional(),
      resources_available: z.object({ ngpus: z.number().optional() }).optional(),
      resources_assigned: z.object({ ngpus: z.number().optional() }).optional(),
    }),
  ),
});

/**
 * Sums idle GPUs. Nodes that are not assigned to a queue belong to every queue, so their GPUs count only for the first
 * pool.
 */
function parseNodes(out: string, { pools }: JobCluster): Capacity[] {
  const idle = new Map(pools.map(({ name }) => [name, 0]));
  for (const node of Object.values(nodesSchema.parse(JSON.parse(out)).nodes)) {
    if (!/^(free|job-busy)$/.test(node.state)) continue;
    const name = node.queue ?? pools[0]?.name ?? '';
    const free = (node.resources_available?.ngpus ?? 0) - (node.resources_assigned?.ngpus ?? 0);
    if (idle.has(name)) idle.set(name, (idle.get(name) ?? 0) + Math.max(0, free));
  }
  return [...idle].map(([pool, count]) => ({ pool, idle: count }));
}

const ownJobSchema = z.object({
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
type OwnJob = z.infer<typeof ownJobSchema>['Jobs'][string];

/** PBS's default of a queue's kill_delay, the time between SIGTERM and SIGKILL. */
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

/**
 * Asks qstat about the job. Returns what it prints, or the reason for a failure. qstat prints local time, so the time
 * zone is set to UTC.
 */
async function ask(id: string, run: AskTool): Promise<OwnJob | string> {
  const answer = await run('qstat', ['-x', '-f', '-F', 'json', id], { TZ: 'UTC' });
  if (!answer.ok) return answer.reason;
  try {
    const [told] = Object.values(ownJobSchema.parse(JSON.parse(answer.stdout)).Jobs);
    return told ?? `qstat shows no job ${id}`;
  } catch {
    return 'the output of qstat has an unknown format';
  }
}

function endOf({ stime, Resource_List: asked }: OwnJob): EndTime {
  if (asked?.walltime === undefined) return { kind: 'known', ends: undefined };
  const [started, seconds] = [Date.parse(`${stime ?? ''} UTC`), secondsOf(asked.walltime)];
  if (Number.isNaN(started) || seconds === undefined)
    return { kind: 'unknown', reason: 'qstat shows no start time or no walltime' };
  return { kind: 'known', ends: new Date(started + seconds * 1000) };
}

/**
 * A job in state E is exiting, and in state F it has finished. The cause is in the job's comment, if the server writes
 * one.
 */
function fateOf({ job_state: state, comment = '' }: OwnJob): JobFate | undefined {
  if (/preempt/i.test(comment)) return 'preempted';
  if (/walltime/i.test(comment)) return 'time-limit';
  return state === 'E' || state === 'F' ? 'cancelled' : undefined;
}
