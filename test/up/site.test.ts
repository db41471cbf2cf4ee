/** What a login node prints, and what follows from it. */
import { spawnSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { checkScript } from '../../up/site/check-script.ts';
import { choosePool, type PoolWish } from '../../up/site/choose-pool.ts';
import { parseSite } from '../../up/site/site.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';

afterAll(endAll);

const WISH: PoolWish = { partition: undefined, gpu: undefined, gpus: 1, time: undefined };
const GPUS = `node=cpu*|infinite|(null)|idle|c1
node=gpu|1-00:00:00|gpu:a100:4(S:0-1)|alloc|10.0.0.7
node=gpu|1-00:00:00|gpu:a100:4(S:0-1)|mixed|10.0.0.8
node=big|02:00:00|gpu:h100:8|alloc|10.0.0.9
node=slices|02:00:00|gpu:1g.10gb:7|idle|10.0.0.10`;

function site(lines: string, system = 'Linux x86_64') {
  return parseSite(
    'me@login',
    `Welcome!\notela-site 1\nsystem=${system}\nhost=login1\nhome=/home/me\nuser=me\nfree_kib=1000\n${lines}\n`,
  );
}

it('what a login shell prints first is ignored; GPUs, accounts and programs are found', () => {
  expect(site(`${GPUS}\nprogram=vllm\nprogram=sbatch\naccount=ml\naccount=chem\nagent=0123`)).toMatchObject({
    platform: 'linux-x64',
    host: 'login1',
    home: '/home/me',
    freeKib: 1_000,
    programs: new Set(['sbatch', 'vllm']),
    accounts: ['ml', 'chem'],
    agents: ['0123'],
    partitions: ['cpu', 'gpu', 'big', 'slices'],
    pools: [
      { partition: 'gpu', gpu: 'a100', gpusPerNode: 4, openNodes: 1, longestMs: 86_400_000, address: '10.0.0.8' },
      { partition: 'big', gpu: 'h100', gpusPerNode: 8, openNodes: 0, longestMs: 7_200_000, address: '10.0.0.9' },
    ],
  });
});

it('a machine for which there is no agent, and a shell that ends early, are told', () => {
  expect(() => site('', 'Linux ppc64le')).toThrow(/ppc64le: there is no agent/);
  expect(() => parseSite('me@login', 'Welcome!\n')).toThrow(/its answer is missing.\n.*bashrc/);
});

it('a partition that starts jobs now is preferred, and its limit bounds the time', () => {
  const found = site(GPUS);
  expect(choosePool(found, WISH)).toMatchObject({ pool: { partition: 'gpu' }, time: '240' });
  expect(choosePool(found, { ...WISH, gpus: 8 })).toMatchObject({ pool: { partition: 'big' }, time: '120' });
  expect(choosePool(found, { ...WISH, gpu: 'H100', time: '01:00:00' })).toMatchObject({ time: '01:00:00' });
});

it.each<[Partial<PoolWish>, string, RegExp]>([
  [{ partition: 'gpus' }, GPUS, /has no partition gpus.\nIts partitions are cpu, gpu, big, slices/],
  [
    { partition: 'cpu' },
    GPUS,
    /cpu has no GPUs that Slurm shows.\nPartitions with GPUs are gpu, big: give one with --partition/,
  ],
  [{}, 'node=cpu*|infinite|(null)|idle|c1', /No partition of login1 has GPUs.*\n.*login node with --host/],
  [{ gpu: 'b200' }, GPUS, /no b200 there.\nIts GPUs are a100, h100/],
  [{ gpus: 16 }, GPUS, /No node of login1 has 16 such GPUs.\nThe largest has 8/],
  [{ partition: 'big', time: '03:00:00' }, GPUS, /at most 120 minutes.\n.*--time/],
  [{ time: 'soon' }, GPUS, /not a time limit/],
])('the wish %j is refused with a way on', (wish, lines, words) => {
  expect(() => choosePool(site(lines), { ...WISH, ...wish })).toThrow(words);
});

/** Runs the check in a home directory with these programs and files; `module` is a function of the login shell. */
async function checked(files: Readonly<Record<string, string>>, path = '/usr/bin:/bin') {
  const home = await temporaryDirectory('otela-site');
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(home, name, '..'), { recursive: true });
    await writeFile(join(home, name), text, { mode: 0o755 });
  }
  const env = { HOME: home, PATH: `${join(home, 'programs')}:${path}`, SCRATCH: home };
  const done = spawnSync('bash', ['-c', checkScript([])], { encoding: 'utf8', env, timeout: 60_000 });
  return { home, site: parseSite('me@login', done.stdout) };
}

/** Lmod's answer, which it prints to stderr. */
const MODULES = `module() { printf '/apps/modules:\\nml/vllm/\\nml/vllm/0.9.2\\nml/vllm/0.11.0\\nllama.cpp/b6000\\nvllmx y\\n' >&2; }\n`;

it('engines are found in environments, modules and images if none is on the PATH', async () => {
  const files = {
    '.bash_profile': `${MODULES}export PATH="$HOME/programs:$PATH"\n`,
    'venv/bin/vllm': '#!/bin/sh\n',
    '.conda/envs/my env/bin/sglang': '#!/bin/sh\n',
    'images/vLLM-0.11.sif': '',
    'images/other.sif': '',
  };
  const { home, site: found } = await checked(files);
  expect(found.engines).toEqual([
    { engine: 'vllm', kind: 'environment', at: join(home, 'venv/bin') },
    { engine: 'sglang', kind: 'environment', at: join(home, '.conda/envs/my env/bin') },
    { engine: 'llama-server', kind: 'module', at: 'llama.cpp/b6000' },
    { engine: 'vllm', kind: 'module', at: 'ml/vllm/0.11.0' },
    { engine: 'vllm', kind: 'module', at: 'ml/vllm/0.9.2' },
    { engine: 'vllm', kind: 'image', at: join(home, 'images/vLLM-0.11.sif') },
  ]);
  expect(found).toMatchObject({ scratch: home, hasCache: false });
  const none = await checked({ ...files, 'programs/lmdeploy': '#!/bin/sh\n', '.cache/huggingface/x': '' });
  expect(none.site).toMatchObject({ engines: [], hasCache: true });
  expect(none.site.programs).toContain('lmdeploy');
});

it('a quota below the free space counts, and one of another file system does not', async () => {
  const quota = (device: string) => `#!/bin/sh
echo 'Disk quotas for user me (uid 1000):'
echo '     Filesystem  blocks   quota   limit   grace'
echo '     ${device}  900000*  950000 1000000     6days'
`;
  const df = '#!/bin/sh\necho Filesystem\necho "nfs:/home 90000000 900 80000000 1% /home"\n';
  const { site: low } = await checked({ 'programs/quota': quota('nfs:/home'), 'programs/df': df });
  expect(low.freeKib).toBe(100_000);
  const { site: other } = await checked({ 'programs/quota': quota('nfs:/data'), 'programs/df': df });
  expect(other.freeKib).toBe(80_000_000);
});
