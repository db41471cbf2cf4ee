import { type Calibration, efficiencyOf } from '../catalogue/calibration.ts';
import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { GpuType } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import { allReduceSeconds, gemmSeconds } from '../roofline/kernel-times.ts';
import { decodeAttentionWork, type Gemm, gemmWork, layerGemms, type Work } from '../roofline/operators.ts';
import { half, mean, median, type ReportSection } from './accuracy-checks.ts';
import { measuredAllReduces, measuredGemms, numberIn, readCsv } from './measured-data.ts';
import { minimise } from './nelder-mead.ts';
import { percent, signed } from './text-table.ts';

const GPU_OF: Record<string, string> = { a100: 'A100-80-SXM', h100: 'H100-SXM', a40: 'A40' };
const MODEL_OF: Record<string, string> = { 'CodeLlama-34b-Instruct-hf': 'CodeLlama-34b-hf' };

interface GemmPoint {
  model: string;
  tp: number;
  tokens: number;
  name: string;
  work: Work;
  ms: number;
  half: 0 | 1;
}

function gemmPoints(catalogue: HardwareCatalogue, gpu: string): GemmPoint[] {
  return measuredGemms()
    .filter((row) => row.gpu === gpu)
    .flatMap((row, index) => {
      const model = findModel(catalogue, MODEL_OF[row.model] ?? row.model);
      const gemm = gemmNamed(model, row.tp, row.name);
      return gemm ? [{ ...row, work: gemmWork(gemm, row.tokens), half: half(index) }] : [];
    });
}

/** Finds a matrix product of a layer by its name. The profiled models have only one kind of layer. */
export function gemmNamed(model: Model, tp: number, name: string): Gemm | undefined {
  const [layer] = model.layers;
  return layer && layerGemms(layer, { model, weights: 'bf16', tp }).find((gemm) => gemm.name === name);
}

/**
 * Fits four parameters per GPU to one half of vidur's products, and reports errors on the other half. The GPUs were
 * cool, so `sustained` is 1.
 */
export function gemmSection(catalogue: HardwareCatalogue): ReportSection {
  const section: ReportSection = {
    title: 'Matrix products, vidur (fit on one half, error on the other)',
    header: [
      'GPU',
      'points',
      'compute',
      'memory',
      'p',
      'launch µs',
      'MAPE fitted half',
      'MAPE other half',
      'MAPE as shipped',
      'sharp roofline',
    ],
    rows: [],
    checks: [],
  };
  for (const [name, id] of Object.entries(GPU_OF)) {
    const gpu = findGpu(catalogue, id);
    const shipped = { ...efficiencyOf(catalogue.calibration, gpu), sustained: 1 };
    const points = gemmPoints(catalogue, name);
    const mape = (part: readonly GemmPoint[], efficiency: typeof shipped) =>
      mean(part.map(({ work, ms }) => Math.abs((gemmSeconds(work, gpu, efficiency, 'bf16') * 1e3) / ms - 1)));
    const fitted = points.filter((point) => point.half === 0);
    const other = points.filter((point) => point.half === 1);
    const make = ([compute = 0, memory = 0, p = 0, launch_us = 0]: readonly number[]) => ({
      ...shipped,
      compute,
      memory,
      p,
      launch_us,
    });
    const x = minimise((values) => mape(fitted, make(values)), [0.74, 0.85, 1.45, 5], 250);
    const found = mape(other, make(x));
    const sharp = mape(other, { ...shipped, compute: 0.72, memory: 0.78, p: 20, launch_us: 0 });
    section.rows.push([
      id,
      points.length,
      ...x.map((value) => value.toFixed(3)),
      percent(mape(fitted, make(x))),
      percent(found),
      percent(mape(other, shipped)),
      percent(sharp),
    ]);
    section.checks.push({
      name: `per-GEMM MAPE, ${id}`,
      limit: 0.12,
      found,
      note: `${other.length} points not fitted`,
    });
  }
  return section;
}

const NODES: { node: string; gpu: string; tps: number[]; links: string }[] = [
  { node: 'a100-dgx', gpu: 'A100-80-SXM', tps: [2, 4, 8], links: 'nvlink3' },
  { node: 'h100-dgx', gpu: 'H100-SXM', tps: [2, 4, 8], links: 'nvlink4' },
  { node: 'a100-pairwise', gpu: 'A100-80-PCIe', tps: [2], links: 'nvlink-bridge' },
  { node: 'a100-pairwise', gpu: 'A100-80-PCIe', tps: [4], links: 'pcie' },
  { node: 'h100-pairwise', gpu: 'H100-NVL', tps: [2], links: 'nvlink-bridge' },
  { node: 'h100-pairwise', gpu: 'H100-NVL', tps: [4], links: 'pcie' },
];

/**
 * Fits two parameters of an all-reduce for each kind of wiring: the latency, and the share of the link's bandwidth that
 * a ring reaches.
 */
export function allReduceSection(catalogue: HardwareCatalogue): ReportSection {
  const section: ReportSection = {
    title: 'All-reduce above 64 KB, vidur (fit on one half, error on the other)',
    header: [
      'node',
      'GPUs',
      'over',
      'points',
      'latency µs',
      'bandwidth',
      'median fitted half',
      'median other half',
      'mean other half',
      'median as shipped',
    ],
    rows: [],
    checks: [],
  };
  const all = measuredAllReduces().filter(({ bytes }) => bytes > 64 * 1024);
  for (const { node, gpu: id, tps, links } of NODES) {
    const gpu = findGpu(catalogue, id);
    const points = all
      .filter((row) => row.node === node && tps.includes(row.tp))
      .map((row, index) => ({ ...row, half: half(index) }));
    const errors = (part: typeof points, calibration: Calibration['links']) =>
      part.map(({ bytes, tp, ms }) => Math.abs((allReduceSeconds(bytes, tp, gpu, calibration) * 1e3) / ms - 1));
    const make = ([latency_us = 0, bandwidth = 0]: readonly number[]) => ({
      ...catalogue.calibration.links,
      [links]: { latency_us, bandwidth, fitted: '' },
    });
    const fitted = points.filter((point) => point.half === 0);
    const other = points.filter((point) => point.half === 1);
    const x = minimise((values) => mean(errors(fitted, make(values))), [30, 0.6], 200);
    const found = median(errors(other, make(x)));
    section.rows.push([
      node,
      tps.join(' '),
      links,
      points.length,
      ...x.map((value) => value.toFixed(2)),
      percent(median(errors(fitted, make(x)))),
      percent(found),
      percent(mean(errors(other, make(x)))),
      percent(median(errors(other, catalogue.calibration.links))),
    ]);
    section.checks.push({
      name: `all-reduce median error, ${node} ${links}`,
      limit: 0.25,
      found,
      note: `${other.length} points not fitted`,
    });
  }
  return section;
}

/**
 * Shows the error for attention of a decode step, for one layer of Llama-2-7B on A100. The error is only shown; it has
 * no limit.
 */
export function attentionSection(catalogue: HardwareCatalogue): ReportSection {
  const gpu: GpuType = findGpu(catalogue, 'A100-80-SXM');
  const model = findModel(catalogue, 'Llama-2-7b-hf');
  const efficiency = efficiencyOf(catalogue.calibration, gpu);
  const mixers = model.layers[0]?.mixers ?? [];
  const perToken = mixers.reduce((sum, mixer) => sum + decodeAttentionWork(mixer, { tp: 1 }, 'bf16').bytes, 0);
  const errors: number[] = [];
  const rows = readCsv('vidur-decode-attention-a100.csv').map((row) => {
    const [batch, length, ms] = [
      numberIn(row, 'batch'),
      numberIn(row, 'kv_len'),
      numberIn(row, 'decode_attn_ms_median'),
    ];
    const bytes = batch * length * perToken;
    const ours = (bytes / (gpu.bandwidth * efficiency.attention_memory)) * 1e3 + efficiency.attention_launch_us * 1e-3;
    if (length > 1000) errors.push(ours / ms - 1);
    return [batch, length, ms, ours.toFixed(3), signed(ours / ms - 1)];
  });
  return {
    title: 'Decode attention, one layer of Llama-2-7B, A100 (vidur)',
    header: ['batch', 'context', 'measured ms', 'ours ms', 'error'],
    rows,
    checks: [
      {
        name: 'decode attention, mean error above 1,000 tokens',
        limit: undefined,
        found: mean(errors.map(Math.abs)),
        note: 'shown only',
      },
    ],
  };
}
