import { findGpu, findModel, type HardwareCatalogue, loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import type { Model } from '../../../scheduler/catalogue/model.ts';
import { main } from '../../../scheduler/cli/main.ts';
import type { Parallelism } from '../../../scheduler/roofline/parallelism.ts';
import { StepModel } from '../../../scheduler/roofline/step-model.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import type { Demand, PlanOptions, Pool } from '../../../scheduler/solver/planning-problem.ts';
import type { Io } from '../../../shared/terminal/command-io.ts';

export const catalogue: HardwareCatalogue = loadCatalogue();

export function stepModel(model: string, gpu: string, tp = 1): StepModel {
  return stepModelOf(findModel(catalogue, model), gpu, { tp });
}

/** A model as stored, on one replica with this parallelism. */
export function stepModelOf(model: Model, gpu: string, parallelism: Parallelism = { tp: 1 }): StepModel {
  const { weights, kv } = model.storage;
  return new StepModel({ model, gpu: findGpu(catalogue, gpu), ...parallelism, weights, kv }, catalogue.calibration);
}

export function pool(id: string, gpu: string, nodes: number, gpusPerNode: number): Pool {
  return { id, gpu: findGpu(catalogue, gpu), nodes, gpusPerNode };
}

export function demand(model: string, rate: number, input = 500, output = 100): Demand {
  const lengths = (mean: number) => ({ kind: 'lognormal', mean, sd: mean / 2 }) as const;
  return {
    model: findModel(catalogue, model),
    rate,
    cv: 1,
    input: lengths(input),
    output: lengths(output),
    weights: 'bf16',
    kv: 'bf16',
  };
}

export function planOptions(changes: Partial<PlanOptions> = {}): PlanOptions {
  return {
    objective: 'latency',
    reclaim: true,
    limits: DEFAULT_LIMITS,
    calibration: catalogue.calibration,
    measured: [],
    timeLimitS: 10,
    gap: 0.001,
    seed: 1,
    ...changes,
  };
}

/** Runs `otela-plan` in this process. */
export async function otelaPlan(...argv: string[]): Promise<{ code: number; out: string; log: string }> {
  const [out, log]: string[][] = [[], []];
  const io: Io = { out: (text) => void out?.push(text), log: (line) => void log?.push(line) };
  const code = await main(argv, io);
  return { code, out: out?.join('\n') ?? '', log: log?.join('\n') ?? '' };
}
