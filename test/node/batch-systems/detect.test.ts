/**
 * Jobs of six batch systems: how the agent recognizes each, when it ends, and what ends it. The outputs follow the
 * format of each system's manual.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AskTool } from '../../../node/batch-systems/batch-job.ts';
import { detectBatchJob } from '../../../node/batch-systems/detect.ts';
import { scratch } from '../../agent/support/harness.ts';

/** A host with tools that print the table's texts; the first word of a key is the tool. */
function tools(answers: Readonly<Record<string, string>>, asked: string[] = []): AskTool {
  return async (file, args) => {
    asked.push([file, ...args].join(' '));
    const stdout = answers[file];
    return stdout === undefined ? { ok: false, reason: `no ${file} here` } : { ok: true, stdout };
  };
}

const END = { kind: 'known', ends: new Date('2026-11-25T11:30:16Z') };
const xml = (state: string) =>
  `<job_info><job_list state="running"><JB_job_number>42</JB_job_number><state>${state}</state></job_list></job_info>`;
const STARTED = Date.parse('2026-11-25T09:30:16Z') / 1000;
const gridEngine = (
  start: number,
) => `<detailed_job_info><JB_hard_resource_list><qstat_l_requests><CE_name>h_rt</CE_name>
<CE_valtype>3</CE_valtype><CE_stringval>7200</CE_stringval></qstat_l_requests></JB_hard_resource_list><JB_ja_tasks><ulong_sublist>
<JAT_start_time>${start}</JAT_start_time><JAT_task_number>1</JAT_task_number></ulong_sublist></JB_ja_tasks></detailed_job_info>`;

const PBS = { PBS_JOBID: '77.pbs01', PBS_QUEUE: 'gpu', HOSTNAME: 'n7.site.org' };
const pbs = (more: object) =>
  JSON.stringify({
    Jobs: {
      '77.pbs01': {
        Job_Name: 'x',
        job_state: 'R',
        stime: 'Wed Nov 25 09:30:16 2026',
        Resource_List: { walltime: '02:00:00' },
        ...more,
      },
    },
  });
/** Format of version 0.88, with some events left out. */
const FLUX_BEGUN = `{"timestamp":1795631530.9,"name":"submit","context":{"userid":1001,"urgency":16,"flags":0,"version":1}}
{"timestamp":1795631531.0,"name":"start"}
`;
const flux = (type: string, note = '') =>
  `${FLUX_BEGUN}{"timestamp":1795631534.0556371,"name":"exception","context":{"type":"${type}","severity":0,"note":"${note}","userid":1001}}\n`;
const LSF = { LSB_JOBID: '91', LSB_QUEUE: 'gpu' };
const lsf = (more: object) => JSON.stringify({ COMMAND: 'bjobs', JOBS: 1, RECORDS: [{ STAT: 'RUN', ...more }] });
const GE = { JOB_ID: '42', SGE_ROOT: '/opt/sge', SGE_TASK_ID: 'undefined', QUEUE: 'gpu.q' };

describe('a job is recognised by its own environment', () => {
  it.each([
    [{ SLURM_JOB_ID: '7' }, 'Slurm', '7'],
    [PBS, 'PBS', '77.pbs01'],
    [{ ...LSF, LSB_JOBINDEX: '3' }, 'LSF', '91[3]'],
    [{ FLUX_JOB_ID: 'ƒ2ArSnKYF', SLURM_JOB_ID: '7' }, 'Flux', 'ƒ2ArSnKYF'],
    [GE, 'Grid Engine', '42'],
  ])('%o', (env, system, id) => expect(detectBatchJob(env)).toMatchObject({ system, id }));

  it.each([{}, { JOB_ID: '42' }, { PBS_JOBID: '$(rm -rf ~)' }, { LSB_JOBID: '-1' }, { _CONDOR_JOB_AD: '/no/such/ad' }])(
    'and not by %o',
    (env) => expect(detectBatchJob(env)).toBeUndefined(),
  );

  it('PBS names its queue, and the machine without its domain', () =>
    expect(detectBatchJob(PBS)).toMatchObject({ partition: 'gpu', node: 'n7' }));
});

describe('when it ends', () => {
  it('PBS: start and walltime', async () =>
    expect(await detectBatchJob(PBS)?.askEnd?.(tools({ qstat: pbs({}) }))).toEqual(END));
  it('PBS without a walltime has no end', async () =>
    expect(await detectBatchJob(PBS)?.askEnd?.(tools({ qstat: pbs({ Resource_List: {} }) }))).toMatchObject({
      ends: undefined,
    }));
  it('Grid Engine: start and h_rt, in seconds or milliseconds', async () => {
    expect(await detectBatchJob(GE)?.askEnd?.(tools({ qstat: gridEngine(STARTED) }))).toEqual(END);
    expect(await detectBatchJob(GE)?.askEnd?.(tools({ qstat: gridEngine(STARTED * 1000) }))).toEqual(END);
  });
  it('LSF: whole minutes, which do not make the end jump', async () => {
    const job = detectBatchJob(LSF);
    const first = await job?.askEnd?.(tools({ bjobs: lsf({ TIME_LEFT: '2:00 L' }) }));
    const again = await job?.askEnd?.(tools({ bjobs: lsf({ TIME_LEFT: '1:59 L' }) }));
    expect(first).toMatchObject({ kind: 'known', ends: expect.any(Date) });
    expect(again).toEqual(first);
    const raised = await job?.askEnd?.(tools({ bjobs: lsf({ TIME_LEFT: '9:59 L' }) }));
    expect(raised).not.toEqual(first);
  });
  it('LSF without a limit: an estimate is not an end time', async () =>
    expect(await detectBatchJob(LSF)?.askEnd?.(tools({ bjobs: lsf({ TIME_LEFT: '0:10 E' }) }))).toMatchObject({
      ends: undefined,
    }));
  it('Flux: seconds, or infinity', async () => {
    const job = detectBatchJob({ FLUX_JOB_ID: 'f12' });
    const end = await job?.askEnd?.(tools({ flux: '7200\n' }));
    expect(end?.kind === 'known' && (end.ends?.getTime() ?? 0) - Date.now()).toBeGreaterThan(7_100_000);
    // Version 0.88 prints 4294967295 for a job without a limit.
    for (const flux of ['infinity\n', '4294967295\n'])
      expect(await detectBatchJob({ FLUX_JOB_ID: 'f12' })?.askEnd?.(tools({ flux }))).toMatchObject({
        ends: undefined,
      });
  });
  it('HTCondor: the sooner limit of its ad', () => {
    const path = join(scratch(), '.job.ad');
    const ad = (lines: string) => {
      writeFileSync(path, `ClusterId = 12\nProcId = 3\n${lines}\n`);
      return detectBatchJob({ _CONDOR_JOB_AD: path });
    };
    const limits = `JobCurrentStartDate = ${STARTED}\nAllowedExecuteDuration = 7200\nAllowedJobDuration = 9000`;
    expect(ad(limits)).toMatchObject({ system: 'HTCondor', id: '12.3', ends: END.ends });
    expect(ad('JobStatus = 2')).toMatchObject({ id: '12.3', ends: undefined });
  });
  it('HTCondor: a job that condor_rm ends, as 23.9 printed it, one that goes on, and one that the queue has forgotten', async () => {
    const path = join(scratch(), '.job.ad');
    writeFileSync(path, 'ClusterId = 5\nProcId = 0\n');
    const fate = (condor_q: string) => detectBatchJob({ _CONDOR_JOB_AD: path })?.askFate(tools({ condor_q }));
    expect(await fate('[\n{\n  "JobStatus": 3\n}\n]\n')).toBe('cancelled');
    expect(await fate('[\n{\n  "JobStatus": 2\n}\n]\n')).toBeUndefined();
    expect(await fate('')).toBeUndefined();
  });
  it.each([PBS, LSF, GE, { FLUX_JOB_ID: 'f12' }])(
    'is unknown, and no error, where the tool is away: %o',
    async (env) => {
      expect(await detectBatchJob(env)?.askEnd?.(tools({}))).toMatchObject({ kind: 'unknown' });
      expect(await detectBatchJob(env)?.askFate(tools({}))).toBeUndefined();
    },
  );
  it.each([PBS, LSF])('is unknown where the tool prints another form: %o', async (env) => {
    const odd = tools({ qstat: '{}', bjobs: '[]' });
    expect(await detectBatchJob(env)?.askEnd?.(odd)).toMatchObject({ kind: 'unknown' });
  });
});

describe('what ends it', () => {
  const slurm = { SLURM_JOB_ID: '7' };
  it.each([
    [slurm, { scontrol: 'JobId=7 JobState=COMPLETING Reason=None PreemptTime=None' }, 'cancelled'],
    [slurm, { scontrol: 'JobId=7 JobState=COMPLETING Reason=TimeLimit PreemptTime=None' }, 'time-limit'],
    [slurm, { scontrol: 'JobId=7 JobState=RUNNING PreemptTime=2026-11-25T09:30:16' }, 'preempted'],
    [slurm, { scontrol: 'JobId=7 JobState=COMPLETING Reason=OutOfMemory PreemptTime=None' }, 'out-of-memory'],
    [slurm, { scontrol: 'JobId=7 JobState=RUNNING Reason=None PreemptTime=None' }, undefined],
    [PBS, { qstat: pbs({ job_state: 'E' }) }, 'cancelled'],
    [PBS, { qstat: pbs({ job_state: 'E', comment: 'job killed: walltime 7215 exceeded limit 7200' }) }, 'time-limit'],
    [PBS, { qstat: pbs({}) }, undefined],
    [LSF, { bjobs: lsf({ STAT: 'EXIT', EXIT_REASON: 'TERM_RUNLIMIT: job killed' }) }, 'time-limit'],
    [LSF, { bjobs: lsf({ STAT: 'EXIT', EXIT_REASON: 'TERM_PREEMPT: job killed' }) }, 'preempted'],
    [LSF, { bjobs: lsf({}) }, undefined],
    [{ FLUX_JOB_ID: 'f12' }, { flux: flux('timeout', 'resource allocation expired') }, 'time-limit'],
    [{ FLUX_JOB_ID: 'f12' }, { flux: flux('cancel') }, 'cancelled'],
    [{ FLUX_JOB_ID: 'f12' }, { flux: flux('preempt', 'by policy') }, 'preempted'],
    [{ FLUX_JOB_ID: 'f12' }, { flux: FLUX_BEGUN }, undefined],
    [{ FLUX_JOB_ID: 'f12' }, { flux: 'no event' }, undefined],
    [GE, { qstat: xml('dr') }, 'cancelled'],
    [GE, { qstat: xml('r') }, undefined],
  ])('%o %o → %s', async (env, answers, fate) => expect(await detectBatchJob(env)?.askFate(tools(answers))).toBe(fate));
});

describe('whether a Slurm job runs on after a SIGTERM', () => {
  const until = (scontrol?: string) =>
    detectBatchJob({ SLURM_JOB_ID: '7' })?.askRunsUntil?.(tools(scontrol === undefined ? {} : { scontrol }));
  it.each([
    ['JobId=7 JobState=RUNNING Reason=None EndTime=2026-11-25T09:30:16 PreemptTime=None', '2026-11-25T09:30:16.000Z'],
    ['JobId=7 JobState=COMPLETING Reason=None EndTime=2026-11-25T09:30:16', undefined],
    ['JobId=7 JobState=CANCELLED Reason=None EndTime=2026-11-25T09:30:16', undefined],
    ['JobId=7 JobState=RUNNING Reason=None EndTime=Unknown', undefined],
    ['garbage', undefined],
    [undefined, undefined],
  ])('%s → %s', async (scontrol, ends) => expect((await until(scontrol))?.toISOString()).toBe(ends));
});
