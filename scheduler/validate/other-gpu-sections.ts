import { type Calibration, efficiencyOf } from '../catalogue/calibration.ts';
import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import { gemmSeconds } from '../roofline/kernel-times.ts';
import { gemmWork } from '../roofline/operators.ts';
import { StepModel } from '../roofline/step-model.ts';
import { mean, type ReportSection, worst } from './accuracy-checks.ts';
import { gemmNamed } from './kernel-sections.ts';
import { measuredGemms, numberIn, readCsv } from './measured-data.ts';
import { percent, signed } from './text-table.ts';

/** Shows the error on GPUs for which nothing was fitted. Helix measured one layer, without the output head. */
export function helixSection(catalogue: HardwareCatalogue): ReportSection {
  const gpus: Record<string, string> = { a100: 'A100-40-SXM', v100: 'V100-16-SXM', l4: 'L4', t4: 'T4' };
  const models: Record<string, string> = { llama1_30b: 'llama-30b', llama2_70b: 'Llama-2-70b-hf' };
  const kernels: Calibration = {
    ...catalogue.calibration,
    host: { step_ms: 0, sequence_ms: 0, request_ms: 0, hidden: 0, fitted: '' },
  };
  const errors = new Map<string, number[]>();
  for (const row of readCsv('helix-layers.csv')) {
    const [gpu, model] = [gpus[row.machine ?? ''], models[row.model ?? '']];
    const [size, ms] = [numberIn(row, 'tokens_or_batch'), numberIn(row, 'layer_ms')];
    const decode = row.phase === 'decode';
    // The context of the decode runs is unpublished, so only small batches count: for them the context is negligible.
    // Of the prompts, only those of 500 to 2,000 tokens count.
    if (!gpu || !model || ms <= 0 || size < 2 || (decode ? size > 16 : size < 500 || size > 2000)) continue;
    const whole = findModel(catalogue, model);
    const one = { ...whole, layers: whole.layers.map((layer) => ({ ...layer, count: 1 })) };
    const step = new StepModel(
      { model: one, gpu: findGpu(catalogue, gpu), tp: 1, weights: 'bf16', kv: 'bf16' },
      kernels,
    );
    const pairs = decode ? 0 : (size * (size + 1)) / 2;
    const layer = step.layerSeconds(size, decode ? size * 256 : 0, pairs);
    const key = `${gpu},${decode ? 'decode, batch 2-16' : 'prompt, 500-2000 tokens'}`;
    errors.set(key, [...(errors.get(key) ?? []), (layer * 1e3) / ms - 1]);
  }
  const rows = [...errors].map(([key, list]) => [
    ...key.split(','),
    list.length,
    signed(mean(list)),
    percent(worst(list)),
  ]);
  return {
    title: 'GPUs that were not fitted: one layer of LLaMA-30B and Llama-2-70B (Helix)',
    header: ['GPU', 'phase', 'case', 'points', 'mean error', 'largest'],
    rows,
    checks: [],
  };
}

/** Compares the same layer on two GPUs, because the ratio decides a placement. */
export function relativeSection(catalogue: HardwareCatalogue): ReportSection {
  const rows: (string | number)[][] = [];
  const checks: ReportSection['checks'] = [];
  const all = measuredGemms();
  for (const [fast, slow] of [
    ['h100', 'a100'],
    ['a100', 'a40'],
    ['h100', 'a40'],
  ] as const) {
    const layers = new Map<string, { fast: number; slow: number; fastOurs: number; slowOurs: number; parts: number }>();
    for (const row of all) {
      if (row.gpu !== fast && row.gpu !== slow) continue;
      const key = `${row.model},${row.tp},${row.tokens}`;
      const sum = layers.get(key) ?? { fast: 0, slow: 0, fastOurs: 0, slowOurs: 0, parts: 0 };
      const ours = predicted(catalogue, row);
      if (row.gpu === fast)
        layers.set(key, { ...sum, fast: sum.fast + row.ms, fastOurs: sum.fastOurs + ours, parts: sum.parts + 1 });
      else layers.set(key, { ...sum, slow: sum.slow + row.ms, slowOurs: sum.slowOurs + ours, parts: sum.parts + 1 });
    }
    const errors = [...layers.values()]
      .filter(({ parts }) => parts === 8)
      .map((one) => Math.abs(one.slowOurs / one.fastOurs / (one.slow / one.fast) - 1))
      .sort((a, b) => a - b);
    const [middle, high] = [
      errors[errors.length >> 1] ?? Number.NaN,
      errors[Math.floor(errors.length * 0.9)] ?? Number.NaN,
    ];
    rows.push([`${slow} / ${fast}`, errors.length, percent(mean(errors)), percent(middle), percent(high)]);
    checks.push({
      name: `layer times, ${slow} against ${fast}, median error`,
      limit: 0.06,
      found: middle,
      note: `${errors.length} layers measured on both`,
    });
  }
  return {
    title: 'Relative between two GPU types: products of one layer (vidur, calibration as shipped)',
    header: ['ratio', 'layers', 'mean error', 'median', '90th percentile'],
    rows,
    checks,
  };
}

function predicted(catalogue: HardwareCatalogue, row: ReturnType<typeof measuredGemms>[number]): number {
  const ids: Record<string, string> = { a100: 'A100-80-SXM', h100: 'H100-SXM', a40: 'A40' };
  const gpu = findGpu(catalogue, ids[row.gpu] ?? row.gpu);
  const model = findModel(catalogue, row.model.replace('-34b-Instruct-hf', '-34b-hf'));
  const gemm = gemmNamed(model, row.tp, row.name);
  const efficiency = { ...efficiencyOf(catalogue.calibration, gpu), sustained: 1 };
  return gemm ? gemmSeconds(gemmWork(gemm, row.tokens), gpu, efficiency, 'bf16') * 1e3 : Number.NaN;
}
