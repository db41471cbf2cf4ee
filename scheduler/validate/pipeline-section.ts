import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import { parameters } from '../catalogue/model.ts';
import { bytesPerElement } from '../catalogue/precision.ts';
import { kvBytesPerToken, kvCapacityTokens, type ModelDeployment } from '../roofline/model-deployment.ts';
import { gpusOf } from '../roofline/parallelism.ts';
import { StepModel } from '../roofline/step-model.ts';
import { DEFAULT_LIMITS, type SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import { SimulatedEngine } from '../simulator/simulated-engine.ts';
import { median, type ReportSection } from './accuracy-checks.ts';
import { type PublishedPipeline, publishedPipelines } from './measured-data.ts';
import { percent, signed } from './text-table.ts';

/** Largest allowed median error of the throughput, over all runs with a pipeline. */
const LIMIT = 0.1;
/** Share of a GPU's memory that the runs used. */
const MEMORY_FRACTION = 0.95;

/** Compares pipelines with published runs. None of them was used for fitting. */
export function pipelineSection(catalogue: HardwareCatalogue): ReportSection {
  const runs = publishedPipelines();
  const ours = runs.map((run) => tokensPerS(catalogue, run));
  const alone = (run: PublishedPipeline) =>
    runs.findIndex((one) => one.pp === 1 && one.input === run.input && one.output === run.output);
  const rows = runs.map((run, i) => {
    const [found = 0, base = 0] = [ours[i], ours[alone(run)]];
    const measuredBase = runs[alone(run)]?.tokensPerS ?? Number.NaN;
    return {
      run,
      ours: found,
      error: found / run.tokensPerS - 1,
      gains: [run.tokensPerS / measuredBase, found / base],
    };
  });
  const pipelines = rows.filter(({ run }) => run.pp > 1);
  return {
    title: 'Published runs with pipelines (TensorRT-LLM 1.0, Llama-3.3-70B in NVFP4): output tokens/s of a backlog',
    header: ['GPU', 'stages', 'input', 'output', 'measured', 'ours', 'error', 'over one GPU', 'ours'],
    rows: rows.map(({ run, ours: found, error, gains: [measuredGain = 0, gain = 0] }) => [
      run.gpu,
      run.pp,
      run.input,
      run.output,
      run.tokensPerS,
      Math.round(found),
      signed(error, 0),
      measuredGain.toFixed(2),
      gain.toFixed(2),
    ]),
    checks: [
      {
        name: 'pipelines, throughput, median error',
        limit: LIMIT,
        found: median(pipelines.map(({ error }) => Math.abs(error))),
        note: `${pipelines.length} runs with 2 to 8 stages, none fitted; largest ${percent(Math.max(...pipelines.map(({ error }) => Math.abs(error))), 0)}`,
      },
      {
        name: 'pipelines, gain over one GPU, median error',
        limit: LIMIT,
        found: median(pipelines.map(({ gains: [measured = 1, found = 1] }) => Math.abs(found / measured - 1))),
        note: 'the same runs, each over the run of one GPU with the same lengths',
      },
    ],
  };
}

function tokensPerS(catalogue: HardwareCatalogue, run: PublishedPipeline): number {
  const { weights, kv, tp, pp, input, output, requests } = run;
  const model = findModel(catalogue, run.model);
  const deployment: ModelDeployment = { model, gpu: findGpu(catalogue, run.gpu), tp, pp, weights, kv };
  const limits = limitsOf(deployment, input, output);
  let last = 0;
  const engine = new SimulatedEngine(
    new StepModel(deployment, catalogue.calibration, limits),
    limits,
    (_, first, end) => {
      if (first !== undefined) last = Math.max(last, end);
    },
  );
  for (let i = 0; i < requests; i++) engine.push(i, 0, input, output);
  engine.run(Number.POSITIVE_INFINITY);
  return (requests * output) / last;
}

/**
 * The settings that `trtllm-bench` derives from the memory (tensorrt_llm/bench/build/tuning.py): sequences and tokens of
 * a micro-batch. It cuts no prompt, and admits a request only if there is memory for its whole response.
 */
function limitsOf(deployment: ModelDeployment, input: number, output: number): SimulatedEngineLimits {
  const { model, weights, pp = 1, gpu } = deployment;
  const free = gpu.memoryBytes * gpusOf(deployment) - parameters(model) * bytesPerElement(weights);
  const fitting = (free * MEMORY_FRACTION) / (kvBytesPerToken(deployment) * (input + output));
  const sequences = Math.min(fitting, 4096) / pp;
  const up = (value: number, step: number) => step * Math.ceil(value / step);
  const maxSequences = sequences < 256 ? Math.max(64, up(sequences, 32)) : up(sequences, sequences < 1024 ? 128 : 256);
  const tokens = Math.min(sequences * (1 + input / output), 32_768);
  const tokenBudget = tokens < 4096 ? Math.max(2048, up(tokens, 256)) : up(tokens, tokens < 8192 ? 512 : 1024);
  const whole = Math.floor(kvCapacityTokens(deployment, MEMORY_FRACTION) / (input + output));
  return {
    ...DEFAULT_LIMITS,
    maxSequences: Math.max(1, Math.min(maxSequences * pp, whole)),
    tokenBudget: Math.max(tokenBudget, input),
    memoryFraction: MEMORY_FRACTION,
    chunkedPrefill: false,
    asyncScheduling: true,
  };
}
