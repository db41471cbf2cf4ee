import { expect, test } from 'vitest';
import { parseRequirements, RequirementError, satisfies } from '../../../shared/routing/requirements.ts';
import { entry } from './support.ts';

const NOW = Date.parse('2026-01-01T00:00:00Z');
const gh200 = { class: 'GH200', name: 'NVIDIA GH200 480GB', vram_mib: 97_871 };
const a100 = { class: 'A100', name: 'NVIDIA A100-SXM4-80GB', vram_mib: 81_920 };
const node = entry('s', {
  region: 'eu-central',
  hardware: { gpus: [gh200, gh200], cpus: 1, memory_mib: 1 },
  job: { id: '1', ends_at: '2026-01-01T02:00:00Z' },
  models: [
    { id: 'm', state: 'ready', context_length: 32_768, quantization: 'fp8', engine: 'vLLM 0.21.0' },
    { id: 'n', state: 'ready', context_length: 131_072, quantization: 'awq', engine: 'sglang' },
  ],
});

function meets(text: string, ...[model = 'm', of = node]: [model?: string, of?: typeof node]): boolean {
  return satisfies(of, parseRequirements(text), model, NOW);
}

function oneMeets(text: string): boolean {
  return satisfies(node, parseRequirements(text), undefined, NOW);
}

test.each([
  '',
  ' ; ;',
  'gpu=GH200',
  'gpu=a100, gh200-96GB',
  'GPU = gh200',
  'vram>=96',
  'vram=96',
  'quantization>=8',
  'quantization=fp8',
  'quantization=16,8',
  'context>=32768',
  'engine=vllm',
  'tier=volatile',
  'region=EU-central, us-east',
  'time_left>=2h',
  'time_left>=1h59m; vram>=90; gpu=GH200',
])('the node meets "%s"', (text) => expect(meets(text)).toBe(true));

test.each([
  'gpu=H100',
  'gpu=H200',
  'vram>=97',
  'quantization>=16',
  'quantization=awq',
  'context>=32769',
  'engine=sglang',
  'tier=stable',
  'region=us-east',
  'time_left>=2h1s',
  'gpu=GH200; vram>=200',
])('the node does not meet "%s"', (text) => expect(meets(text)).toBe(false));

test('what a node does not publish does not satisfy', () => {
  const silent = entry('s', { models: [{ id: 'm', state: 'ready', quantization: 'exotic' }] });
  for (const text of [
    'gpu=GH200',
    'vram>=0',
    'quantization>=1',
    'context>=1',
    'engine=vllm',
    'region=eu',
    'time_left>=1s',
  ])
    expect(meets(text, 'm', silent), text).toBe(false);
});

test('a stable node outside any job has time for everything', () => {
  expect(meets('time_left>=365d', 'm', entry('s', { tier: 'stable' }))).toBe(true);
  expect(meets('time_left>=1s', 'm', entry('s', { tier: 'stable', job: { id: '1' } }))).toBe(false);
});

test('a mixed node has only what all of its devices have, because it is unknown which one serves', () => {
  const mixed = entry('s', { hardware: { gpus: [gh200, a100], cpus: 1, memory_mib: 1 } });
  expect(meets('gpu=GH200', 'm', mixed)).toBe(false);
  expect(meets('gpu=GH200,A100', 'm', mixed)).toBe(true);
  expect(meets('vram>=96', 'm', mixed)).toBe(false);
  expect(meets('vram>=80', 'm', mixed)).toBe(true);
});

test('facts of two models are not put together', () => {
  expect(oneMeets('quantization>=8; context>=131072')).toBe(false);
  expect(oneMeets('quantization=4; context>=131072')).toBe(true);
  expect(meets('quantization=4', 'm')).toBe(false);
  expect(meets('gpu=GH200', 'absent')).toBe(false);
});

test.each([
  ['bf16', 16],
  ['bfloat16', 16],
  ['fp16', 16],
  ['float16', 16],
  ['int8', 8],
  ['w8a8', 8],
  ['int4', 4],
  ['GPTQ', 4],
  ['awq_marlin', 4],
  ['mxfp4', 4],
  ['nvfp4', 4],
  ['w4a16', 4],
  ['Q5_K_M', 5],
  ['fp32', 32],
])('a weight of %s has %i bits', (quantization, bits) => {
  const served = entry('s', { models: [{ id: 'm', state: 'ready', quantization }] });
  expect(meets(`quantization=${bits}`, 'm', served)).toBe(true);
});

test.each([
  ['gpus=GH200', 'gpus'],
  ['__proto__=1', '__proto__'],
  ['constructor=1', 'constructor'],
  ['gpu', 'key=value'],
  ['gpu>=GH200', 'compared with ='],
  ['gpu>GH200', 'key=value'],
  ['vram>=', 'not a valid value'],
  ['vram>=lots', 'lots'],
  ['vram>=-1', '-1'],
  ['vram>=1e9', '1e9'],
  ['vram>=80,90', 'one number'],
  ['quantization=nonsense', 'nonsense'],
  ['time_left>=30', '"30"'],
  ['time_left>=30x', '30x'],
  ['gpu=GH200,', 'not a valid value'],
  [Array(17).fill('vram>=1').join(';'), '16'],
  ['x'.repeat(3000), '2048'],
])('"%.20s" is refused and says why', (text, said) => {
  expect(() => parseRequirements(text)).toThrow(RequirementError);
  expect(() => parseRequirements(text)).toThrow(said);
});
