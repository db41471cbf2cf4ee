import { randomInt } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { type ProbedEngine, servedEngineName, servedModel } from '../calibrate/completion-probe.ts';
import { fitCalibration } from '../calibrate/fit-calibration.ts';
import { observeLoad } from '../calibrate/load-observation.ts';
import { findGpu, findModel } from '../catalogue/catalogue.ts';
import { PRECISIONS } from '../catalogue/precision.ts';
import { SchedulerError } from '../errors.ts';
import { deploymentProblem, type ModelDeployment } from '../roofline/model-deployment.ts';
import { seededRandom } from '../simulator/random.ts';
import { percent, signed, table } from '../validate/text-table.ts';
import { CATALOGUE_FLAGS, catalogueFrom, numberFlag, requiredFlag, textFlag } from './flags.ts';

export const CALIBRATE_FLAGS = {
  ...CATALOGUE_FLAGS,
  url: { value: 'URL', help: 'URL of an idle engine' },
  model: { value: 'M', help: 'the model, as in `otela-plan catalogue`; default: the served name' },
  served: { value: 'NAME', help: 'name under which the engine serves it; default: the first in /v1/models' },
  gpu: { value: 'G', help: 'GPU of the engine' },
  tp: { value: 'N', otherwise: '1', help: 'tensor parallelism' },
  weights: { value: PRECISIONS.join('|'), takes: PRECISIONS, help: 'precision of the weights' },
  'max-sequences': { value: 'N', otherwise: '128', help: 'maximum concurrent requests' },
  minutes: { value: 'N', otherwise: '10', help: 'minutes of load' },
  'key-file': { value: 'FILE', takes: 'file', help: 'file with the API key of the engine' },
  out: { value: 'FILE', takes: 'file', help: 'file to write the calibration to' },
} as const satisfies Flags;

/**
 * `otela-plan calibrate`: runs a short load on the engine's port, and fits a calibration to this GPU and engine
 * version.
 */
export async function calibrateCommand(argv: readonly string[], io: Io): Promise<number> {
  const flags = parseLine(argv, CALIBRATE_FLAGS).values;
  const catalogue = catalogueFrom(flags);
  const url = requiredFlag(flags, 'url').replace(/\/+(v1\/?)?$/, '');
  if (!/^https?:\/\//.test(url)) throw new UsageError(`--url must be http:// or https://, not ${url.slice(0, 120)}`);
  const gpu = findGpu(catalogue, requiredFlag(flags, 'gpu'));
  const port = { url, now: () => performance.now(), fetch, headers: headersFrom(textFlag(flags, 'key-file')) };
  const served = textFlag(flags, 'served') ?? (await servedModel(port));
  const model = findModel(catalogue, textFlag(flags, 'model') ?? served);
  const weights = PRECISIONS.find((one) => one === (textFlag(flags, 'weights') ?? model.storage.weights));
  if (weights === undefined) throw new UsageError(`--weights must be one of ${PRECISIONS.join(', ')}`);
  const tp = Math.round(numberFlag(flags, 'tp', 1, { min: 1, max: 72 }));
  const deployment: ModelDeployment = { model, gpu, tp, weights, kv: model.storage.kv };
  const problem = deploymentProblem(deployment);
  if (problem !== undefined) throw new SchedulerError('infeasible', problem);
  const engine: ProbedEngine = { ...port, model: served };
  const name = await servedEngineName(engine);
  io.log(`${name} serves ${served} on ${tp} × ${gpu.id}; it should serve no other requests now`);
  const observations = await observeLoad({
    engine,
    random: seededRandom(randomInt(2 ** 31)),
    contextTokens: model.context,
    maxSequences: Math.round(numberFlag(flags, 'max-sequences', 128, { min: 1, max: 4096 })),
    limitMs: numberFlag(flags, 'minutes', 10, { min: 0.1, max: 120 }) * 60_000,
    log: (line) => io.log(line),
  });
  const fit = fitCalibration(
    catalogue.calibration,
    deployment,
    observations,
    name,
    new Date().toISOString().slice(0, 10),
  );
  const rows = fit.points.map(({ observation: one, ms, before }) => [
    one.kind,
    one.sequences,
    one.prompt,
    one.ms.toFixed(2),
    signed(before / one.ms - 1),
    signed(ms / one.ms - 1),
  ]);
  io.log(table(['', 'concurrent', 'prompt', 'measured ms', 'as shipped', 'fitted'], rows));
  io.log(`mean error ${percent(fit.before)} as shipped, ${percent(fit.after)} fitted`);
  write(fit.calibration, textFlag(flags, 'out'), io);
  return EXIT_DONE;
}

function headersFrom(keyFile: string | undefined): Record<string, string> {
  if (keyFile === undefined) return {};
  try {
    return { authorization: `Bearer ${readFileSync(keyFile, 'utf8').trim()}` };
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot read ${keyFile}`, { cause });
  }
}

function write(calibration: object, path: string | undefined, io: Io): void {
  const file = `${JSON.stringify(calibration, null, 2)}\n`;
  if (path === undefined) return io.out(file.trimEnd());
  try {
    writeFileSync(path, file);
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot write ${path}: ${errorText(cause)}`, { cause });
  }
  io.log(`written to ${path}; use it with --calibration ${path}`);
}
