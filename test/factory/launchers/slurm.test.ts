/**
 * Only Slurm's peculiarities; recorded.test.ts has the common behavior of all launchers, and test/slurm a real Slurm.
 */
import { expect, it } from 'vitest';
import { clusterOf, done, launcherWith, NAME, PREFIX, submission } from '../../support/factory/scripted-launcher.ts';

it('Slurm: idle GPUs of a pool are those of its own kind, on nodes that take jobs', async () => {
  const out = `n1|normal*|mix|gpu:h100:4(S:0-1)|gpu:h100:1(IDX:0)
n2|normal*|idle|gpu:h100:4|gpu:h100:0
n3|normal*|drain|gpu:h100:4|gpu:h100:0
n4|normal*|idle|gpu:a100:4|gpu:a100:0
n5|old|idle|gpu:2|gpu:0
`;
  expect(await launcherWith('slurm', () => done(out)).launcher.capacity()).toEqual([
    { pool: 'normal', idle: 7 },
    { pool: 'old', idle: 2 },
  ]);
});

it('Slurm: reads types that are numbers, used GPUs without a type, and states with suffixes', async () => {
  const out = `n1|normal*|idle~|gpu:3090:8(S:0-1)|gpu:3090:0(IDX:N/A)
n2|normal*|mix-|gpu:3090:8(S:0-1)|gpu:(null):6(IDX:0-5)
n3|normal*|idle#|gpu:2080ti:8|gpu:2080ti:0
n4|normal*|idle*|gpu:3090:8|gpu:3090:0
n5|normal*|mix|gpu:3090:1,gpu:nvidia_rtx3090_1g.10gb:7|gpu:3090:0
`;
  const [first] = clusterOf('slurm').pools;
  const pools = first === undefined ? [] : [{ ...first, gpu: 'RTX3090', gres: undefined }];
  expect(await launcherWith('slurm', () => done(out), { pools }).launcher.capacity()).toEqual([
    { pool: 'normal', idle: 11 },
  ]);
});

it('Slurm: several jobs are one array, and a job is never put back by the scheduler', async () => {
  let script = '';
  const { launcher } = launcherWith('slurm', (_, __, input) => {
    script = input;
    return done('10;alps\n');
  });
  expect(await launcher.submit(submission('slurm', { count: 3 }))).toEqual(['10_0', '10_1', '10_2']);
  expect(script).toContain('#SBATCH --array=0-2\n');
  expect(script).toContain('#SBATCH --no-requeue\n');
  expect(script).toContain('alps-%A_%a.log');
  expect(script).not.toContain('--exclude');
  await launcher.submit({ ...submission('slurm'), exclude: ['nid001', 'nid002'] });
  expect(script).toContain('#SBATCH --exclude=nid001,nid002\n');
});

it('finds the job id behind the words that a site prints before it', async () => {
  const words = '2 nodes of normal are idle\n--> Verifying valid submit host...OK\n12;daint\n';
  expect(await launcherWith('slurm', () => done(words)).launcher.submit(submission('slurm'))).toEqual(['12']);
  const none = launcherWith('slurm', () => done('2 nodes of normal are idle\n')).launcher.submit(submission('slurm'));
  await expect(none).rejects.toMatchObject({ code: 'unclear' });
});

it('the clusters of a federation are named in every call, and told apart in what squeue prints', async () => {
  const answers: Record<string, string> = {
    sbatch: '12;daint\n',
    squeue: `CLUSTER: daint\n12|${NAME}|PENDING||Priority\nCLUSTER: alps\n`,
    sinfo: 'CLUSTER: daint\nn1|normal*|idle|gpu:h100:4|gpu:h100:0\nCLUSTER: alps\n',
    scancel: '',
  };
  const { launcher, calls } = launcherWith('slurm', (file) => done(answers[file] ?? ''), { clusters: 'alps,daint' });
  expect(await launcher.submit(submission('slurm'))).toEqual(['12']);
  expect(await launcher.list(PREFIX)).toEqual([{ id: '12', name: NAME, state: 'pending', reason: 'Priority' }]);
  expect(await launcher.capacity()).toContainEqual({ pool: 'normal', idle: 4 });
  await launcher.cancel(['12']);
  await launcher.check(submission('slurm'));
  expect(calls.map((call) => call.split(' ').slice(0, 2))).toEqual(
    ['sbatch', 'squeue', 'sinfo', 'scancel', 'sbatch'].map((file) => [file, '--clusters=alps,daint']),
  );
});

it.each([
  'Batch job submission failed: Invalid account or account/partition combination specified',
  "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
  'Batch job submission failed: Requested node configuration is not available',
  'invalid partition specified: gone',
])('a refusal is told in words that an operator can look up: %s', async (words) => {
  const { launcher } = launcherWith('slurm', () => done('', 1, `sbatch: error: ${words}`));
  await expect(launcher.submit(submission('slurm'))).rejects.toMatchObject({ code: 'refused', message: words });
  expect(await launcher.check(submission('slurm'))).toEqual({ ok: false, text: words });
});
