/**
 * Outputs of batch systems. Slurm's and Grid Engine's were recorded from real runs; the others are the examples of
 * their manuals, with our names.
 */

import { expect, it } from 'vitest';
import type { ClusterConfig } from '../../../factory/config/schema.ts';
import { LauncherError } from '../../../factory/launchers/launcher.ts';
import type { ListedJob } from '../../../node/batch-systems/batch-system.ts';
import { done, launcherWith, NAME, PREFIX, submission } from '../../support/factory/scripted-launcher.ts';

interface Recorded {
  kind: ClusterConfig['launcher'];
  submitted: string;
  id: string;
  listed: string;
  jobs: ListedJob[];
  nothing: string;
  away: string;
  refused: string;
}

const RECORDED: Recorded[] = [
  {
    kind: 'slurm',
    submitted: '4711\n',
    id: '4711',
    listed: `CLUSTER: alps
1|${NAME}|PENDING||Priority
2_0|${NAME}|RUNNING|nid001|None
3|${NAME}|FAILED|nid002|NonZeroExitCode
4|${NAME}|PREEMPTED|nid002|None
5|${NAME}|CANCELLED by 0||None
6|${NAME}|OUT_OF_MEMORY|nid003|OutOfMemory
7|somebody-else|RUNNING|nid001|None
8|${NAME}|PENDING||Reason|with a bar
`,
    jobs: [
      { id: '1', name: NAME, state: 'pending', reason: 'Priority' },
      { id: '2_0', name: NAME, state: 'running', host: 'nid001' },
      { id: '3', name: NAME, state: 'ended', ended: 'failed', reason: 'FAILED', host: 'nid002' },
      { id: '4', name: NAME, state: 'ended', ended: 'preempted', reason: 'PREEMPTED', host: 'nid002' },
      { id: '5', name: NAME, state: 'ended', ended: 'cancelled', reason: 'CANCELLED by 0' },
      { id: '6', name: NAME, state: 'ended', ended: 'failed', reason: 'OUT_OF_MEMORY', host: 'nid003' },
      { id: '8', name: NAME, state: 'pending', reason: 'Reason|with a bar' },
    ],
    nothing: '',
    away: 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)',
    refused: 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified',
  },
  {
    kind: 'grid-engine',
    submitted: '6\n',
    id: '6',
    // qstat -xml -r of Grid Engine 8.1.9.
    listed: `<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>6</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>${NAME}</JB_name>
      <JB_owner>nobody</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-25T01:24:37</JAT_start_time>
      <queue_name>gpu.q@localhost</queue_name>
      <slots>1</slots>
      <full_job_name>${NAME}</full_job_name>
      <hard_req_queue>gpu.q</hard_req_queue>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>1</JB_job_number>
      <JB_name>${NAME}</JB_name>
      <state>Eqw</state>
      <queue_name></queue_name>
      <full_job_name>${NAME}</full_job_name>
    </job_list>
  </job_info>
</job_info>
`,
    jobs: [
      { id: '6', name: NAME, state: 'running' },
      { id: '1', name: NAME, state: 'pending', reason: 'Eqw: qstat -j 1 shows the reason' },
    ],
    nothing:
      '<?xml version=\'1.0\'?>\n<job_info  xmlns:xsd="x">\n  <queue_info>\n  </queue_info>\n  <job_info>\n  </job_info>\n</job_info>\n',
    away: 'error: commlib error: access denied\nerror: unable to contact qmaster using port 16444 on host "localhost"',
    refused: 'Unable to run job: Job was rejected because job requests unknown queue "no.q".\nExiting.',
  },
  {
    kind: 'pbs',
    submitted: '1234.pbs01\n',
    id: '1234.pbs01',
    listed: JSON.stringify({
      timestamp: 1,
      pbs_version: '22.05.11',
      Jobs: {
        '1234.pbs01': {
          Job_Name: NAME,
          job_state: 'Q',
          comment: 'Not Running: Insufficient amount of resource: ngpus',
        },
        '1235.pbs01': { Job_Name: NAME, job_state: 'R' },
        '1236.pbs01': { Job_Name: NAME, job_state: 'F', Exit_status: 70 },
        '1237.pbs01': { Job_Name: NAME, job_state: 'F', Exit_status: 271 },
        '1238.pbs01': { Job_Name: 'STDIN', job_state: 'R' },
      },
    }),
    jobs: [
      { id: '1234.pbs01', name: NAME, state: 'pending', reason: 'Not Running: Insufficient amount of resource: ngpus' },
      { id: '1235.pbs01', name: NAME, state: 'running' },
      { id: '1236.pbs01', name: NAME, state: 'ended', ended: 'failed', reason: 'exit status 70' },
      { id: '1237.pbs01', name: NAME, state: 'ended', ended: 'cancelled', reason: 'exit status 271' },
    ],
    nothing: JSON.stringify({ timestamp: 1, pbs_version: '22.05.11', pbs_server: 'pbs01' }),
    away: 'Connection refused\nqstat: cannot connect to server pbs01 (errno=15010)',
    refused: 'qsub: Invalid allocation',
  },
  {
    kind: 'lsf',
    submitted: 'Job <3421> is submitted to queue <normal>.\n',
    id: '3421',
    listed: JSON.stringify({
      COMMAND: 'bjobs',
      JOBS: 3,
      RECORDS: [
        {
          JOBID: '3421',
          JOB_NAME: NAME,
          STAT: 'PEND',
          EXIT_REASON: '',
          PEND_REASON: 'New job is waiting for scheduling;',
        },
        { JOBID: '3422', JOB_NAME: NAME, STAT: 'RUN', EXIT_REASON: '', PEND_REASON: '' },
        {
          JOBID: '3423',
          JOB_NAME: NAME,
          STAT: 'EXIT',
          EXIT_REASON: 'TERM_RUNLIMIT: job killed after reaching LSF run time limit',
          PEND_REASON: '',
        },
      ],
    }),
    jobs: [
      { id: '3421', name: NAME, state: 'pending', reason: 'New job is waiting for scheduling;' },
      { id: '3422', name: NAME, state: 'running' },
      {
        id: '3423',
        name: NAME,
        state: 'ended',
        ended: 'time',
        reason: 'TERM_RUNLIMIT: job killed after reaching LSF run time limit',
      },
    ],
    nothing: 'No job found\n',
    away: 'LSF is down. Please wait ...',
    refused: 'User cannot use the queue. Job not submitted.',
  },
  {
    kind: 'flux',
    submitted: 'ƒ2oLkTLb\n',
    id: 'f2oLkTLb',
    listed: `f2oLkTLb|${NAME}|SCHED||\nf2oLkTLc|${NAME}|RUN||\nf2oLkTLd|${NAME}|INACTIVE|TIMEOUT|resource allocation expired\nf2oLkTLe|sleep|RUN||\n`,
    jobs: [
      { id: 'f2oLkTLb', name: NAME, state: 'pending', reason: 'SCHED' },
      { id: 'f2oLkTLc', name: NAME, state: 'running' },
      { id: 'f2oLkTLd', name: NAME, state: 'ended', ended: 'time', reason: 'resource allocation expired' },
    ],
    nothing: '',
    away: 'flux-jobs: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found',
    refused: 'flux-submit: ERROR: [Errno 22] Invalid queue specified: normal',
  },
  {
    kind: 'htcondor',
    submitted: '42.0 - 42.0\n',
    id: '42.0',
    listed: JSON.stringify([
      { ClusterId: 42, ProcId: 0, JobBatchName: NAME, JobStatus: 1 },
      { ClusterId: 43, ProcId: 0, JobBatchName: NAME, JobStatus: 2 },
      { ClusterId: 44, ProcId: 0, JobBatchName: NAME, JobStatus: 5, HoldReason: 'Job has gone over memory limit' },
      { ClusterId: 45, ProcId: 0, JobStatus: 2 },
      {
        ClusterId: 46,
        ProcId: 0,
        JobBatchName: NAME,
        JobStatus: 5,
        HoldReasonCode: 47,
        HoldReason: 'The job exceeded allowed execute duration of 0+01:00:00',
      },
    ]),
    jobs: [
      { id: '42.0', name: NAME, state: 'pending', reason: 'idle' },
      { id: '43.0', name: NAME, state: 'running' },
      { id: '44.0', name: NAME, state: 'pending', reason: 'Job has gone over memory limit' },
      {
        id: '46.0',
        name: NAME,
        state: 'ended',
        ended: 'time',
        reason: 'The job exceeded allowed execute duration of 0+01:00:00',
      },
    ],
    nothing: '',
    away: '-- Failed to fetch ads from: <127.0.0.1:9618> : schedd',
    refused: 'ERROR: Failed to parse command file (line 3).',
  },
];

it.each(RECORDED)(
  '$kind: submits, lists, and takes no job list for an empty one only where it is',
  async (recorded) => {
    const scripts: string[] = [];
    const ok = launcherWith(recorded.kind, (_, args, input) => {
      if (input !== '' || args.includes('-c')) scripts.push(input || (args.at(-1) ?? ''));
      return done(scripts.length > 0 && input + args.join() === '' ? '' : recorded.submitted);
    });
    expect(await ok.launcher.submit(submission(recorded.kind))).toEqual([recorded.id]);
    expect(`${ok.calls.join()} ${scripts.join()}`).toContain(NAME);
    const list = (out: string) => launcherWith(recorded.kind, () => done(out)).launcher.list(PREFIX);
    expect(await list(recorded.listed)).toEqual(recorded.jobs);
    expect(await list(recorded.nothing)).toEqual([]);
  },
);

it.each(RECORDED)(
  '$kind: a server that is away is not an empty list, and its refusals are told',
  async ({ kind, away, refused }) => {
    const codeOf = (promise: Promise<unknown>) =>
      promise.then(
        () => 'done',
        (error: unknown) => (error instanceof LauncherError ? error.code : String(error)),
      );
    const gone = launcherWith(kind, () => done('', 1, away)).launcher;
    expect(await codeOf(gone.list(PREFIX))).toBe('unreachable');
    // The submission may have been accepted.
    expect(await codeOf(gone.submit(submission(kind)))).toBe('unclear');
    const no = launcherWith(kind, () => done('', 1, refused)).launcher;
    expect(await codeOf(no.submit(submission(kind)))).toBe('refused');
    const slow = launcherWith(kind, () => ({ kind: 'killed', errors: 'late' })).launcher;
    expect([await codeOf(slow.list(PREFIX)), await codeOf(slow.submit(submission(kind)))]).toEqual([
      'unreachable',
      'unclear',
    ]);
    const missing = launcherWith(kind, () => ({ kind: 'missing', errors: 'ENOENT' })).launcher;
    expect(await codeOf(missing.list(PREFIX))).toBe('unreachable');
  },
);

it.each(RECORDED.filter(({ kind }) => kind !== 'slurm' && kind !== 'flux' && kind !== 'htcondor'))(
  '$kind: output that is none is no empty list',
  async ({ kind }) => {
    await expect(
      launcherWith(kind, () => done('<html>maintenance</html>')).launcher.list(PREFIX),
    ).rejects.toMatchObject({ code: 'unreachable' });
  },
);

it('Grid Engine: idle GPUs are told by the queues that are open', async () => {
  const queue = (name: string, gpus: number, state = '') =>
    `<Queue-List><name>${name}</name>${state}<resource name="gpu" type="hc">${gpus}</resource></Queue-List>`;
  const out = `<job_info>${queue('normal@a', 3)}${queue('normal@b', 2, '<state>au</state>')}${queue('other@a', 9)}</job_info>`;
  expect(await launcherWith('grid-engine', () => done(out)).launcher.capacity()).toEqual([
    { pool: 'normal', idle: 3 },
    { pool: 'old', idle: 0 },
  ]);
});

it('a job that has ended meanwhile is cancelled without complaint', async () => {
  const { launcher } = launcherWith('grid-engine', () => done('denied: job "999" does not exist', 1));
  await launcher.cancel(['999']);
});

it('PBS: a job whose name or variables are not what JSON has does not hide the others', async () => {
  const odd = `{"Jobs": {
    "1.pbs01": {"Job_Name": 123, "job_state": "R", "Variable_List": {"OMP": 005, "EPS": .123, "N": 4}},
    "2.pbs01": {"job_state": "R"},
    "3.pbs01": {"Job_Name": "${NAME}", "job_state": "Q", "comment": "Not Running: it waits, as 005"}
  }}`;
  expect(await launcherWith('pbs', () => done(odd)).launcher.list(PREFIX)).toEqual([
    { id: '3.pbs01', name: NAME, state: 'pending', reason: 'Not Running: it waits, as 005' },
  ]);
});

it('PBS: only own jobs are listed, and none is an empty list', async () => {
  const { launcher, calls } = launcherWith('pbs', () => done('{}'));
  expect(await launcher.list(PREFIX)).toEqual([]);
  expect(calls.join(' ')).toContain('qselect -x -u');
});

it('HTCondor: without a common file system the files travel with the job, and its output comes back', async () => {
  const inputs: string[] = [];
  const answer = (_file: string, _args: readonly string[], input: string) => {
    inputs.push(input);
    return done('42.0 - 42.0\n');
  };
  const log = '/state/$(HOME)/crc-%j.log';
  const files = ['/opt/otela-agent', '/etc/otela/token'];
  for (const more of [{ transfer_files: files }, {}])
    await launcherWith('htcondor', answer, more).launcher.submit(submission('htcondor', { log }));
  const scripts = inputs.map((text) =>
    Buffer.from(/HTCONDOR_SCRIPT=([^"]+)"/.exec(text)?.[1] ?? '', 'base64').toString(),
  );
  expect(inputs[0]).toContain('should_transfer_files = YES\n');
  expect(inputs[0]).toContain('transfer_input_files = /opt/otela-agent, /etc/otela/token\n');
  expect(inputs[0]).toContain('output = /state/$(DOLLAR)(HOME)/crc-$(ClusterId).$(ProcId).log\n');
  expect(scripts[0]).toBe(`exec 2>&1\n${submission('htcondor').body}`);
  expect(inputs[1]).not.toContain('transfer_input_files');
  expect(scripts[1]).toContain("exec >>'/state/$(HOME)/crc-'");
});

it('HTCondor: a machine without a running schedd is away, and has not refused', async () => {
  // The end of the text that condor_q 23.9 prints then.
  const text =
    'satisfy this request. Please make sure the Condor daemons are \nrunning and try again.\n \nExtra Info: If the condor_schedd is running';
  const { launcher } = launcherWith('htcondor', () => done('', 1, text));
  await expect(launcher.list(PREFIX)).rejects.toMatchObject({ code: 'unreachable' });
});
