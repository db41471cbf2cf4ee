import { describe, expect, it } from 'vitest';
import { engineValues, templateAllows } from '../../scheduler/controller/engine-arguments.ts';
import { choose } from '../../scheduler/live/offers.ts';
import type { Parallelism } from '../../scheduler/roofline/parallelism.ts';
import { parameterSpecsSchema } from '../../shared/deployment/parameters.ts';

const PAIR: Parallelism = { tp: 4, prefill: { tp: 2 } };

describe('a job template', () => {
  it.each<[Parallelism, string, string]>([
    [{ tp: 2 }, '--tensor-parallel-size 2', '--tp-size 2'],
    [{ tp: 2, pp: 4 }, '--tensor-parallel-size 2 --pipeline-parallel-size 4', '--tp-size 2 --pp-size 4'],
    [
      { tp: 1, dp: 8, ep: true },
      '--tensor-parallel-size 1 --data-parallel-size 8 --enable-expert-parallel',
      '--tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8',
    ],
    [{ tp: 8, ep: true }, '--tensor-parallel-size 8 --enable-expert-parallel', '--tp-size 8 --ep-size 8'],
    [{ tp: 1, sp: 4 }, '--tensor-parallel-size 1 --ulysses-sequence-parallel-size 4', '--tp-size 1'],
    [PAIR, '--tensor-parallel-size 4', '--tp-size 4'],
  ])('gets %j as flags of vLLM and SGLang', (spread, vllm, sglang) => {
    expect(engineValues(spread)).toMatchObject({ vllm_parallelism: vllm, sglang_parallelism: sglang });
  });

  it('gets both sides of a pair, and the GPUs of both', () => {
    expect(engineValues(PAIR)).toMatchObject({
      gpus: '6',
      prefill_tp: '2',
      prefill_vllm_parallelism: '--tensor-parallel-size 2',
      prefill_sglang_parallelism: '--tp-size 2',
    });
  });

  it.each<[string, Parallelism, boolean]>([
    ['vllm serve --tensor-parallel-size {{tp}}', { tp: 4 }, true],
    ['{{gpus}} vllm serve --tensor-parallel-size {{tp}}', { tp: 2, pp: 2 }, false],
    ['{{tp}} vllm serve {{vllm_parallelism}}', { tp: 2, pp: 2 }, false],
    ['{{gpus}} vllm serve {{vllm_parallelism}}', { tp: 2, pp: 2 }, true],
    ['{{gpus}} vllm serve {{vllm_parallelism}}', { tp: 1, sp: 4 }, true],
    ['{{gpus}} sglang {{sglang_parallelism}}', { tp: 1, dp: 4, ep: true }, true],
    ['{{gpus}} sglang {{sglang_parallelism}}', { tp: 1, sp: 4 }, false],
    ['{{gpus}} x {{tp}} {{ pp }}', { tp: 2, pp: 2 }, true],
    ['{{gpus}} x {{tp}} {{pp}}', { tp: 2, ep: true }, false],
    ['{{gpus}} vllm serve {{vllm_parallelism}}', PAIR, false],
    ['{{gpus}} {{prefill_vllm_parallelism}} {{vllm_parallelism}}', PAIR, true],
    ['{{gpus}} {{prefill_tp}} {{tp}}', PAIR, true],
  ])('%j can start %j: %s', (template, spread, allowed) => {
    expect(templateAllows(template, spread)).toBe(allowed);
  });
});

describe('a template of an agent', () => {
  const specs = (more: Record<string, unknown>) => [
    { template: 't', parameters: parameterSpecsSchema.parse({ model: { type: 'string', allow: ['*'] }, ...more }) },
  ];
  const number = { type: 'integer', min: 1, max: 8 };
  const chosen = (more: Record<string, unknown>, spread: Parallelism) =>
    choose(specs(more), 'm', spread, 8)?.parameters;

  it('is told what it has a parameter for, and is not chosen for what it cannot say', () => {
    expect(chosen({ tp: number }, { tp: 2 })).toEqual({ model: 'm', tp: 2 });
    expect(chosen({ tp: number }, { tp: 2, pp: 2 })).toBeUndefined();
    expect(chosen({ tp: number, pp: number }, { tp: 2, pp: 2 })).toEqual({ model: 'm', tp: 2, pp: 2 });
    expect(chosen({ tp: number, pp: number }, { tp: 2, ep: true })).toBeUndefined();
    expect(chosen({}, { tp: 8 })).toEqual({ model: 'm' });
    expect(chosen({}, { tp: 4 })).toBeUndefined();
    expect(chosen({ tp: number }, PAIR)).toBeUndefined();
    expect(chosen({ tp: number, prefill_tp: number }, PAIR)).toEqual({ model: 'm', tp: 4, prefill_tp: 2 });
    expect(chosen({ tp: number, prefill_tp: number }, { tp: 4 })).toBeUndefined();
  });

  it("says expert parallelism by vLLM's switch or by SGLang's size", () => {
    const allow = ['enable-expert-parallel', 'no-enable-expert-parallel'];
    const vllm = { tp: number, dp: number, ep: { type: 'string', allow } };
    expect(chosen(vllm, { tp: 1, dp: 8, ep: true })).toEqual({
      model: 'm',
      tp: 1,
      dp: 8,
      ep: 'enable-expert-parallel',
    });
    expect(chosen(vllm, { tp: 4 })).toEqual({ model: 'm', tp: 4, dp: 1, ep: 'no-enable-expert-parallel' });
    const sglang = { tp_size: number, dp: number, ep: number };
    expect(chosen(sglang, { tp: 1, dp: 8, ep: true })).toEqual({ model: 'm', tp_size: 8, dp: 8, ep: 8 });
    expect(chosen(sglang, { tp: 4 })).toEqual({ model: 'm', tp_size: 4, dp: 1, ep: 1 });
  });
});
