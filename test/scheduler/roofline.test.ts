import { describe, expect, it } from 'vitest';
import { dataPath, findGpu, findModel, readCalibration } from '../../scheduler/catalogue/catalogue.ts';
import type { GpuType } from '../../scheduler/catalogue/gpu.ts';
import { layerCount, parameters } from '../../scheduler/catalogue/model.ts';
import { allReduceSeconds, peakFlops, pNorm } from '../../scheduler/roofline/kernel-times.ts';
import { gemmWork, layerGemms } from '../../scheduler/roofline/operators.ts';
import { tpProblem } from '../../scheduler/roofline/parallelism.ts';
import { IDLE_STEP, StepModel } from '../../scheduler/roofline/step-model.ts';
import { validate } from '../../scheduler/validate/report.ts';
import { catalogue, stepModel } from './support/small.ts';

const layerWork = (name: string, tp: number, tokens: number) => {
  const model = findModel(catalogue, name);
  const [layer] = model.layers;
  if (layer?.feedForward === undefined) throw new Error('a model without layers');
  const works = layerGemms(layer, { model, weights: 'bf16', tp }).map((gemm) => gemmWork(gemm, tokens));
  return {
    model,
    ffn: layer.feedForward.width,
    flops: works.reduce((sum, { flops }) => sum + flops, 0),
    bytes: works.reduce((sum, { bytes }) => sum + bytes, 0),
  };
};

describe('work of a layer', () => {
  it('is two operations per weight and token, shared evenly by tensor parallelism', () => {
    const { model, flops } = layerWork('Llama-2-13b-hf', 1, 7);
    const weights = (parameters(model) - 2 * model.hidden * model.vocab) / layerCount(model);
    expect(flops).toBeCloseTo(2 * 7 * weights, -3);
    expect(layerWork('Llama-2-13b-hf', 4, 7).flops).toBeCloseTo(flops / 4, -3);
  });

  it('a token passes few experts, but a batch reads nearly all of them', () => {
    const { model, ffn, bytes } = layerWork('Mixtral-8x7B-Instruct-v0.1', 1, 1);
    const expert = 3 * model.hidden * ffn * 2;
    expect(bytes).toBeGreaterThan(2 * expert);
    expect(bytes).toBeLessThan(2.5 * expert);
    expect(layerWork('Mixtral-8x7B-Instruct-v0.1', 1, 64).bytes).toBeGreaterThan(7.9 * expert);
  });
});

describe('time', () => {
  it('lies between the sharp roofline and the sum of both bounds', () => {
    expect(pNorm(3, 4, 1)).toBeCloseTo(7);
    expect(pNorm(3, 4, 2)).toBeCloseTo(5);
    expect(pNorm(3, 4, 100)).toBeCloseTo(4);
    expect(pNorm(0, 0, 1.4)).toBe(0);
  });

  it('8-bit weights compute no faster where the silicon has no unit for them', () => {
    const [a100, h100] = [findGpu(catalogue, 'A100-80-SXM'), findGpu(catalogue, 'H100-SXM')];
    expect(peakFlops(a100, 'fp8')).toBe(a100.bf16);
    expect(peakFlops(h100, 'fp8')).toBeGreaterThan(1.9 * h100.bf16);
    expect(peakFlops(h100, 'int4')).toBe(h100.bf16);
  });

  it('GPUs that bridges do not join talk over PCIe', () => {
    const pcie = findGpu(catalogue, 'A100-80-PCIe');
    const { links } = catalogue.calibration;
    expect(allReduceSeconds(64e6, 4, pcie, links)).toBeGreaterThan(5 * allReduceSeconds(64e6, 2, pcie, links));
    expect(allReduceSeconds(64e6, 1, pcie, links)).toBe(0);
  });

  it('a step takes longer with more sequences, context or prompt, and less on more GPUs', () => {
    const step = stepModel('Llama-3.3-70B-Instruct', 'H100-SXM', 4);
    const idle = IDLE_STEP;
    const base = step.seconds({ ...idle, decodes: 8, context: 8000 });
    expect(step.seconds({ ...idle, decodes: 16, context: 8000 })).toBeGreaterThan(base);
    expect(step.seconds({ ...idle, decodes: 8, context: 80_000 })).toBeGreaterThan(base);
    expect(
      step.seconds({
        ...idle,
        decodes: 8,
        context: 8000,
        prefillTokens: 512,
        prefillPairs: 131_328,
        prefillKeys: 512,
        prefillEnds: 1,
      }),
    ).toBeGreaterThan(base);
    expect(
      stepModel('Llama-3.3-70B-Instruct', 'H100-SXM', 8).seconds({ ...idle, decodes: 8, context: 8000 }),
    ).toBeLessThan(base);
  });
});

describe('accuracy against what was measured', () => {
  it('is as the documentation says: all figures that have a limit keep it', () => {
    const { sections } = validate(catalogue);
    const checks = sections.flatMap((section) => section.checks);
    const missed = checks
      .filter(({ limit, found }) => limit !== undefined && !(found <= limit))
      .map(({ name }) => name);
    expect(checks.length).toBeGreaterThan(20);
    expect(missed).toEqual([]);
  });
});

describe('GPUs of one generation', () => {
  it.each(['calibration.json', 'calibration-opentela.json'])(
    'a card on a bridge is never faster than one on a switched board (%s)',
    (file) => {
      const calibration = readCalibration(dataPath(file));
      for (const model of catalogue.models.filter((one) => tpProblem(one, 2) === undefined)) {
        const at = (gpu: string, tokens: number) =>
          new StepModel(
            { model, gpu: findGpu(catalogue, gpu), tp: 2, weights: 'bf16', kv: 'bf16' },
            calibration,
          ).linear(tokens);
        for (const tokens of [1, 64, 8192]) expect(at('A100-80-SXM', tokens)).toBeLessThan(at('A100-80-PCIe', tokens));
      }
    },
  );
});

describe('boards and engines that differ', () => {
  it('a calibration names its engine', () => {
    expect(catalogue.calibration.engine).toMatch(/vLLM 0\.\d+ to 0\.\d+/);
  });

  const reduce = (gpu: GpuType, tp: number) => allReduceSeconds(64e6, tp, gpu, catalogue.calibration.links);

  it('without a switch a pair has a third of its links, and all four together have all', () => {
    const mesh = findGpu(catalogue, 'GH200-96');
    const switched = { ...mesh, linkMesh: 0 };
    const wire = (gpu: GpuType, tp: number) => reduce(gpu, tp) - catalogue.calibration.links.nvlink.latency_us * 1e-6;
    expect(wire(mesh, 2) / wire(switched, 2)).toBeCloseTo(3);
    expect(wire(mesh, 4) / wire(switched, 4)).toBeCloseTo(1);
    // The driver's name does not identify the board, so the usual one is assumed.
    expect(findGpu(catalogue, 'NVIDIA A100-SXM4-80GB', 81_920).id).toBe('A100-80-SXM');
  });

  it('asynchronous scheduling hides host time behind the GPU’s, never more of it than the GPU takes', () => {
    const deployment = { model: findModel(catalogue, 'Llama-2-13b-hf'), tp: 1, weights: 'bf16', kv: 'bf16' } as const;
    for (const name of ['H100-SXM', 'B200', 'T4']) {
      const gpu = findGpu(catalogue, name);
      const plain = new StepModel({ ...deployment, gpu }, catalogue.calibration);
      const hiding = new StepModel({ ...deployment, gpu }, catalogue.calibration, { asyncScheduling: true });
      for (const sequences of [1, 64, 1000]) {
        const host = (plain.host.step_ms + plain.host.sequence_ms * sequences) * 1e-3;
        expect(hiding.decodeBase(sequences)).toBeLessThan(plain.decodeBase(sequences));
        expect(hiding.decodeBase(sequences)).toBeGreaterThanOrEqual(plain.decodeBase(sequences) - host * 0.83 - 1e-12);
        expect(hiding.decodeBase(sequences)).toBeGreaterThanOrEqual(host - 1e-12);
      }
    }
  });
});
