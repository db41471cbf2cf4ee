/** What a login node prints, and what follows from it. */
import { expect, it } from 'vitest';
import { choosePool, type PoolWish } from '../../up/site/choose-pool.ts';
import { parseSite } from '../../up/site/site.ts';

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
