/**
 * Grid Engine and its descendants: qsub(1), qstat(1), qhost(1), qdel(1). Tested with 8.1.9 from Debian. Altair Grid
 * Engine and Open Cluster Scheduler accept the same options.
 */
import { dirname } from 'node:path';
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

/** Name of the resource (complex) that counts GPUs, if a pool does not name one. */
const GPU_COMPLEX = 'gpu';

function flags({ name, pool, gpus, log }: JobSubmission): string[] {
  return [
    '-N',
    name,
    '-q',
    pool.name,
    '-l',
    [
      `${pool.gres ?? GPU_COMPLEX}=${gpus}`,
      `h_rt=${wallTime(pool.time)}`,
      ...(pool.memory === undefined ? [] : [`h_vmem=${pool.memory}`]),
    ].join(','),
    ...(pool.account === undefined ? [] : ['-P', pool.account]),
    '-S',
    '/bin/bash',
    // The directory of the log, because it exists on every node. At some sites, the home directory does not exist on
    // the nodes, and a job that cannot change to its working directory stays in the queue in state Eqw.
    '-wd',
    dirname(log),
    '-j',
    'y',
    '-o',
    '/dev/null',
    '-r',
    'n',
    // Asks for USR1 before the time limit and for TERM before KILL. They are sent only if the queue's `notify` is set.
    '-notify',
    ...pool.options.map((one) => (one.startsWith('-') ? one : `-${one}`)),
  ];
}

const JOB_ID = '$JOB_ID';

export function gridEngine(cluster: JobCluster): BatchSystem {
  return {
    kind: 'grid-engine',
    seen: 'real',
    jobId: JOB_ID,
    away: /unable to contact qmaster|commlib error|can't connect|error: gdi|got select error/i,
    submit: (submission) => ({
      file: 'qsub',
      args: ['-terse', ...flags(submission)],
      input: `#!/bin/bash\n${withLogRedirect(submission, JOB_ID)}`,
    }),
    idIn: (out) => /^(\d+)/m.exec(out.trim())?.[1],
    // qstat does not list ended jobs, so a job that has been missing for some time counts as ended.
    list: { file: 'qstat', args: ['-xml', '-r'] },
    parse: parseJobs,
    capacity: {
      file: 'qstat',
      args: ['-f', '-F', [...new Set(cluster.pools.map(({ gres }) => gres ?? GPU_COMPLEX))].join(','), '-xml'],
      parse: parseQueues,
    },
    cancel: { file: 'qdel', args: (ids) => [...ids], gone: /does not exist/ },
    check: (submission) => ({
      file: 'qsub',
      args: ['-w', 'v', ...flags(submission)],
      input: `#!/bin/bash\n${submission.body}`,
    }),
  };
}

/** Parses the output of `-xml -r`: one element per line, with complete names in `full_job_name`. */
function parseJobs(out: string): ListedJob[] {
  if (!out.includes('<job_info')) throw new Error('the output has no job_info');
  return elements(out, 'job_list').flatMap((text): ListedJob[] => {
    const [id, name, state] = [
      inside(text, 'JB_job_number'),
      inside(text, 'full_job_name') ?? inside(text, 'JB_name'),
      inside(text, 'state'),
    ];
    if (id === undefined || name === undefined || state === undefined) return [];
    // States by qstat(1): r running, t transferring, s and S suspended, R restarted, d being deleted; qw waiting, h
    // held, E error.
    if (/[rtsSTR]/.test(state.replace('E', ''))) return [{ id, name, state: 'running' }];
    return [
      { id, name, state: 'pending', reason: state.includes('E') ? `${state}: qstat -j ${id} shows the reason` : state },
    ];
  });
}

function parseQueues(out: string, cluster: JobCluster): Capacity[] {
  return cluster.pools.map((pool) => {
    const queues = elements(out, 'Queue-List').filter((text) => inside(text, 'name')?.split('@')[0] === pool.name);
    const idle = queues.reduce((sum, text) => {
      // No job can start on a queue instance in one of these states: d disabled, u unreachable, E error, s, S and C
      // suspended.
      if (/[duEsSC]/.test(inside(text, 'state') ?? '')) return sum;
      const [, count = '0'] =
        new RegExp(`<resource name="${pool.gres ?? GPU_COMPLEX}" type="h?[a-z]+">([\\d.]+)<`).exec(text) ?? [];
      return sum + Math.floor(Number(count));
    }, 0);
    return { pool: pool.name, idle };
  });
}

const elements = (out: string, name: string) =>
  [...out.matchAll(new RegExp(`<${name}[ >][^]*?</${name}>`, 'g'))].map(([text]) => text);

function inside(text: string, name: string): string | undefined {
  // Takes the first match, because the queue's own elements precede those of its jobs.
  const [, value] = new RegExp(`<${name}>([^<]*)</${name}>`).exec(text) ?? [];
  return value?.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');
}

/** Times above this are milliseconds, which some descendants of Grid Engine report instead of seconds. */
const SECONDS_MAX = 100_000_000_000;

/**
 * Grid Engine's default of a queue's `notify`: the time from SIGUSR2 to SIGKILL, if the job was submitted with -notify.
 */
const KILL_WAIT_MS = 60_000;

/** SGE_ROOT must also be set, because `JOB_ID` is a common name. */
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

async function askEnd(id: string, task: string | undefined, run: AskTool): Promise<EndTime> {
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

/** By qstat(1), a job in state `d` is being deleted. */
async function askFate(id: string, run: AskTool): Promise<JobFate | undefined> {
  const answer = await run('qstat', ['-xml', '-s', 'r']);
  if (!answer.ok) return undefined;
  const job = elements(answer.stdout, 'job_list').find((text) => inside(text, 'JB_job_number') === id);
  return inside(job ?? '', 'state')?.includes('d') === true ? 'cancelled' : undefined;
}
