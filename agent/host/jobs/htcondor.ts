/**
 * HTCondor 10 and later: the job's ad in the file `_CONDOR_JOB_AD`, and condor_q(1). Run with 23.9:
 * test/soak/htcondor.ts.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import * as z from 'zod';
import type { RunTool } from '../run-tool.ts';
import { type BatchJob, type Env, firstLabel, type JobFate } from './batch-job.ts';

/** An ad is about ten KiB. */
const AD_MAX_BYTES = 256 * 1024;

export function htcondorJob(env: Env): BatchJob | undefined {
  const path = env._CONDOR_JOB_AD;
  const ad = path === undefined ? undefined : readAd(path);
  const [cluster, proc] = [ad?.get('clusterid'), ad?.get('procid')];
  if (ad === undefined || cluster === undefined || proc === undefined) return undefined;
  if (!/^\d{1,12}$/.test(cluster) || !/^\d{1,12}$/.test(proc)) return undefined;
  const id = `${cluster}.${proc}`;
  return {
    system: 'HTCondor',
    id,
    node: firstLabel(env.HOSTNAME),
    partition: undefined,
    ends: endOf(ad),
    askFate: (run) => askFate(id, run),
    killWaitMs: async () => {
      const seconds = Number(ad.get('jobmaxvacatetime'));
      return seconds > 0 ? seconds * 1000 : undefined;
    },
  };
}

/** Names in lower case, because HTCondor ignores case. Undefined if the file cannot be read. */
function readAd(path: string): Map<string, string> | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      const buffer = Buffer.alloc(AD_MAX_BYTES);
      const text = buffer.toString('utf8', 0, readSync(file, buffer));
      const pairs = text.split('\n').flatMap((line): [string, string][] => {
        const [, name = '', value = ''] = /^(\w+)\s*=\s*(.*)$/.exec(line.trim()) ?? [];
        return name === '' ? [] : [[name.toLowerCase(), value]];
      });
      return new Map(pairs);
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}

/** The earlier of the two limits of a submit file: allowed_execute_duration and allowed_job_duration. */
function endOf(ad: ReadonlyMap<string, string>): Date | undefined {
  const after = (since: string, duration: string) => Number(ad.get(since)) + Number(ad.get(duration));
  const ends = [
    after('jobcurrentstartexecutingdate', 'allowedexecuteduration'),
    after('jobcurrentstartdate', 'allowedexecuteduration'),
    after('jobcurrentstartdate', 'allowedjobduration'),
  ].filter((seconds) => seconds > 0);
  return ends.length === 0 ? undefined : new Date(Math.min(...ends) * 1000);
}

const jobsSchema = z.array(z.object({ JobStatus: z.number() }));
const REMOVED = 3;
/** An evicted job waits in the queue again. */
const IDLE = 1;

async function askFate(id: string, run: RunTool): Promise<JobFate | undefined> {
  const answer = await run('condor_q', [id, '-json', '-attributes', 'JobStatus']);
  if (!answer.ok || answer.stdout.trim() === '') return undefined;
  try {
    const status = jobsSchema.parse(JSON.parse(answer.stdout))[0]?.JobStatus;
    return status === REMOVED ? 'cancelled' : status === IDLE ? 'preempted' : undefined;
  } catch {
    return undefined;
  }
}
