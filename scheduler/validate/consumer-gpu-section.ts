import type { Calibration } from '../catalogue/calibration.ts';
import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import { IDLE_STEP, StepModel } from '../roofline/step-model.ts';
import { type ReportSection, worst } from './accuracy-checks.ts';
import { signed } from './text-table.ts';

/** Cases as [prompt tokens, response tokens, batch size]. */
const CASES = [
  [1024, 1024, 1],
  [2048, 512, 4],
  [512, 2048, 8],
] as const;

/** Ratio of the times; OpenTela's paper prints 3.2 to 3.4 for all three cases. */
const MEASURED = 3.3;
const LIMIT = 0.06;

/**
 * Seconds of a case on one GPU. The section below compares an RTX 3090 with an H100. The authors' notebook (OpenTela,
 * contrib/plots/plot_simulator.ipynb at e059134) has the facts that the paper omits: the model is Llama-2-7B, the H100
 * is an NVL, and a time is the time of the prompt plus the number of response tokens times the time per token. So no
 * request waits for memory.
 */
function seconds(
  catalogue: HardwareCatalogue,
  gpu: string,
  calibration: Calibration,
  [input, output, batch]: (typeof CASES)[number],
): number {
  const model = findModel(catalogue, 'Llama-2-7b-hf');
  const step = new StepModel({ model, gpu: findGpu(catalogue, gpu), tp: 1, weights: 'bf16', kv: 'bf16' }, calibration);
  const tokens = batch * input;
  const pairs = (tokens * (input + 1)) / 2;
  const work = { ...IDLE_STEP, prefillTokens: tokens, prefillPairs: pairs, prefillKeys: tokens, prefillEnds: batch };
  const token = step.decodeBase(batch) + batch * (input + output / 2) * step.secondsPerContextToken;
  return step.host.request_ms * 1e-3 + step.seconds(work) + output * token;
}

/**
 * Shows which parameters of the RTX 3090 cause the ratio. The first row uses typical values. The next rows replace them
 * by the known arithmetic of its chip, and then also by its memory.
 */
export function consumerRatioSection(catalogue: HardwareCatalogue): ReportSection {
  const { calibration } = catalogue;
  const { RTX3090: shipped = {}, ...others } = calibration.gpus;
  const without = { ...calibration, gpus: others };
  const arithmetic = {
    ...calibration,
    gpus: { ...others, RTX3090: { compute: shipped.compute, sustained: shipped.sustained } },
  };
  const experiments: [string, string, Calibration][] = [
    ['typical values for the 3090', 'H100-NVL', without],
    ['with the rate of its half-rate units', 'H100-NVL', arithmetic],
    ['also with 93 % of its memory bandwidth (as shipped)', 'H100-NVL', calibration],
    ['as shipped, if the H100 were an SXM', 'H100-SXM', calibration],
    ['as shipped, if the H100 were a PCIe card', 'H100-PCIe', calibration],
  ];
  const ratios = experiments.map(([, h100, with3090]) =>
    CASES.map((one) => seconds(catalogue, 'RTX-3090', with3090, one) / seconds(catalogue, h100, with3090, one)),
  );
  const errors = ratios.map((three) => worst(three.map((ratio) => ratio / MEASURED - 1)));
  return {
    title: 'RTX 3090 against H100, Llama-2-7B: prompt and answer on each (prompt, answer, batch); measured 3.2 to 3.4',
    header: ['', ...CASES.map((one) => `(${one.join(', ')})`), 'largest error against 3.3'],
    rows: experiments.map(([name], i) => [
      name,
      ...(ratios[i] ?? []).map((ratio) => ratio.toFixed(2)),
      signed(errors[i] ?? Number.NaN),
    ]),
    checks: [
      {
        name: 'RTX 3090 against H100 NVL, against 3.3',
        limit: LIMIT,
        found: errors[2] ?? Number.NaN,
        note: 'one number, the share of its memory, fitted on these three',
      },
    ],
  };
}
