import { expect, it } from 'vitest';
import { freeGpus, gpuGres, gpuRequest, isGpuSlice } from '../../../shared/slurm/gpu-gres.ts';
import { takesJobs } from '../../../shared/slurm/node-state.ts';
import { seeded } from '../../support/random.ts';

// Columns as sites' sinfo and scontrol print them, from 17.11 to 25.05.
it.each<[string, [string | undefined, number][]]>([
  ['gpu:8', [[undefined, 8]]],
  ['gpu:8(S:0-1)', [[undefined, 8]]],
  ['gpu:(null):8(IDX:0-7)', [[undefined, 8]]],
  ['gpu:(null):0(IDX:N/A)', [[undefined, 0]]],
  ['gpu:a100:4(S:0-1)', [['a100', 4]]],
  ['gpu:2080ti:8(S:0-1)', [['2080ti', 8]]],
  ['gpu:3090:8', [['3090', 8]]],
  ['gpu:4090d:8', [['4090d', 8]]],
  ['gpu:a100:2(IDX:1,3)', [['a100', 2]]],
  ['gpu:nvidia_a100-sxm4-80gb:8(S:4-7),tmp:28000G', [['nvidia_a100-sxm4-80gb', 8]]],
  ['gpu:V100-PCIE-32GB:2(S:0-1),shard:V100-PCIE-32GB:40(S:0-1)', [['V100-PCIE-32GB', 2]]],
  [
    'gpu:A30:4(IDX:0-3),gpu:Q6K:4(IDX:0-3)',
    [
      ['A30', 4],
      ['Q6K', 4],
    ],
  ],
  [
    'gpu:modelA:6(S:0-1),gpu:1g.10gb:28(S:0-1)',
    [
      ['modelA', 6],
      ['1g.10gb', 28],
    ],
  ],
  ['gpu:brand_model-pcie.10:2(S:0-1)', [['brand_model-pcie.10', 2]]],
  ['shard:a100:7(3/10,4/10),gpu:a100:1(IDX:0)', [['a100', 1]]],
  ['gpu:V100S:1(S:0),lsc', [['V100S', 1]]],
  ['gpu:0,tpu:0', [[undefined, 0]]],
  ['gpu:2K(S:0-2023)', [[undefined, 2048]]],
  [
    'gpu:tesla:2,gpu:kepler:2,mps:400,bandwidth:lustre:no_consume:4G',
    [
      ['tesla', 2],
      ['kepler', 2],
    ],
  ],
  ['gpu:a100:no_consume:4', [['a100', 4]]],
  ['gpu', [[undefined, 1]]],
  ['craynetwork:4', []],
  ['vgpu:4,gpus:4', []],
  ['(null)', []],
  ['N/A', []],
  ['', []],
  ['gpu:', []],
  ['gpu:a100:', []],
  ['gpu:a:b:c:4', []],
  ['gpu:a100:-4', []],
  ['gpu:a100:99999999999999999999', []],
])('reads %s', (list, wanted) => {
  expect(gpuGres(list).map(({ type, count }) => [type, count])).toEqual(wanted);
});

it.each<[string, string, Record<string, number>]>([
  ['gpu:a100:4(S:0-1)', 'gpu:a100:1(IDX:0)', { a100: 3 }],
  ['gpu:8(S:0-1)', 'gpu:(null):3(IDX:0-2)', { undefined: 5 }],
  ['gpu:a100:44', 'gpu:42', { a100: 2 }],
  ['gpu:a100:8', 'gpu:(null):8(IDX:0-7)', { a100: 0 }],
  ['gpu:8', 'gpu:a100:3', { undefined: 5 }],
  ['gpu:a100:4,gpu:v100:4', 'gpu:a100:4(IDX:0-3),gpu:v100:0(IDX:N/A)', { a100: 0, v100: 4 }],
  ['gpu:a100:4,gpu:v100:2', 'gpu:(null):3(IDX:0-2)', { a100: 1, v100: 0 }],
  ['gpu:a100:4,gpu:a100:4', 'gpu:a100:5', { a100: 3 }],
  ['gpu:a100:4', 'gpu:a100:9', { a100: 0 }],
  ['gpu:a100:4', '', { a100: 4 }],
])('of %s with %s in use there are free: %o', (configured, used, wanted) => {
  expect(Object.fromEntries([...freeGpus(configured, used)].map(([type, free]) => [String(type), free]))).toEqual(
    wanted,
  );
});

it('counts the written number, with any text beside it', () => {
  const random = seeded(7);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;
  const types = ['', '(null)', 'a100', '3090', '2080ti', 'nvidia_rtx_pro_6000', '1g.10gb', 'h100-sxm5.80', '0'];
  const tails = ['', '(S:0-1)', '(IDX:0,2-3)', '(IDX:N/A)', '(S:0,IDX:1)', '(0/10,0/10)'];
  const others = ['shard:8', 'mps:a100:400(S:0)', 'lsc', 'tmp:2900G', 'gres:gpu:9', 'tpu:v4:8(IDX:0-7)'];
  for (let round = 0; round < 500; round++) {
    const wanted: [string | undefined, number][] = [];
    const parts = Array.from({ length: Math.floor(random() * 6) }, () => {
      if (random() < 0.3) return pick(others);
      const [type, count] = [pick(types), Math.floor(random() * 17)];
      wanted.push([type === '' || type === '(null)' ? undefined : type, count]);
      return `gpu:${type === '' ? '' : `${type}:`}${count}${pick(tails)}`;
    });
    const list = parts.join(',');
    expect(
      gpuGres(list).map(({ type, count }) => [type, count]),
      list,
    ).toEqual(wanted);
  }
});

it('takes any text in linear time, and never says a number below zero', () => {
  const random = seeded(11);
  const alphabet = 'gpu:::((()),,,0192a100KG~ \0\u{1f600}null-';
  for (let round = 0; round < 2_000; round++) {
    const text = Array.from({ length: Math.floor(random() * 80) }, () =>
      alphabet.charAt(random() * alphabet.length),
    ).join('');
    for (const { count } of gpuGres(text)) expect(Number.isSafeInteger(count) && count >= 0, text).toBe(true);
    for (const free of freeGpus(text, `gpu:${text}`).values()) expect(free).toBeGreaterThanOrEqual(0);
  }
  for (const hostile of ['('.repeat(1e6), 'gpu:'.repeat(1e6), ','.repeat(1e6), `gpu:${'9'.repeat(1e6)}`])
    gpuGres(hostile);
});

it.each<[string, boolean]>([
  ['1g.10gb', true],
  ['a100_3g.20gb', true],
  ['nvidia_h100_80gb_hbm3_1g.20gb', true],
  ['a100', false],
  ['nvidia_a100-sxm4-80gb', false],
])('tells a part of a GPU: %s %s', (type, slice) => {
  expect(isGpuSlice(type)).toBe(slice);
});

it.each<[string, boolean]>([
  ['idle', true],
  ['mix', true],
  ['mixed', true],
  ['IDLE', true],
  ['idle~', true],
  ['idle#', true],
  ['mix#', true],
  ['mix-', true],
  ['idle-', true],
  ['plnd', true],
  ['planned', true],
  ['idle*', false],
  ['mix*', false],
  ['idle~*', false],
  ['idle!', false],
  ['idle%', false],
  ['idle$', false],
  ['mix@', false],
  ['idle^', false],
  ['alloc', false],
  ['alloc-', false],
  ['comp', false],
  ['drain', false],
  ['drain~', false],
  ['drng', false],
  ['down*', false],
  ['down~', false],
  ['resv', false],
  ['maint', false],
  ['inval', false],
  ['fail', false],
  ['pow_up', false],
  ['block', false],
  ['unk', false],
  ['mix+', false],
  ['', false],
])('a node that is %s takes jobs: %s', (state, takes) => {
  expect(takesJobs(state)).toBe(takes);
});

it.each(['1', '8', 'a100:4', 'nvidia_rtx_pro_6000:1', '3090:2', '2080ti:8', 'nvidia_a100-sxm4-80gb:8', '1g.10gb:1'])(
  'a request as sbatch takes it: %s',
  (text) => {
    const { type, count } = gpuRequest(text) ?? { type: undefined, count: 0 };
    expect(type === undefined ? String(count) : `${type}:${count}`).toBe(text);
  },
);

it.each(['', '0', '-1', 'a100', 'a100:', 'a100:0', ':4', 'gpu:a100:4', 'a b:1', 'a\n#SBATCH:1', '1000', '$(id):1'])(
  'no request: %j',
  (text) => expect(gpuRequest(text)).toBeUndefined(),
);
