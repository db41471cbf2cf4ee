import { EXIT_DONE, type Flags, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { efficiencyOf } from '../catalogue/calibration.ts';
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { activeParameters, expertsOf, headsOf, layerCount, type Model, parameters } from '../catalogue/model.ts';
import { kvBytesPerToken, weightBytes } from '../roofline/model-deployment.ts';
import { table } from '../validate/text-table.ts';
import { CATALOGUE_FLAGS, catalogueFrom } from './flags.ts';
import { prettyJson } from './pretty-json.ts';

export const CATALOGUE_COMMAND_FLAGS = { ...CATALOGUE_FLAGS, ...JSON_FLAG } as const satisfies Flags;

/** `otela-plan catalogue`: lists all GPUs and models, with sources. */
export function catalogueCommand(argv: readonly string[], io: Io): number {
  const flags = parseLine(argv, CATALOGUE_COMMAND_FLAGS).values;
  const catalogue = catalogueFrom(flags);
  if (flags.json === true) {
    const models = catalogue.models.map((model) => ({
      ...model,
      parameters: Math.round(parameters(model)),
      active_parameters: Math.round(activeParameters(model)),
    }));
    io.out(prettyJson({ gpus: catalogue.gpus, models, calibration: catalogue.calibration }));
    return EXIT_DONE;
  }
  io.out(gpuTable(catalogue));
  io.out('');
  io.out(modelTable(catalogue.models));
  return EXIT_DONE;
}

function gpuTable(catalogue: HardwareCatalogue): string {
  return table(
    ['GPU', 'TFLOP/s 16 bit', 'fp8', 'GB/s', 'GB', 'link GB/s', 'W', 'USD/h', 'per node', 'calibration', 'source'],
    catalogue.gpus.map((gpu) => [
      gpu.id,
      gpu.bf16 / 1e12,
      gpu.fp8 === undefined ? '-' : gpu.fp8 / 1e12,
      gpu.bandwidth / 1e9,
      gpu.memoryBytes / 1e9,
      `${gpu.linkBandwidth / 1e9} ${gpu.link}`,
      gpu.watts,
      gpu.usdPerHour === 0 ? '-' : gpu.usdPerHour,
      gpu.gpusPerNode,
      efficiencyOf(catalogue.calibration, gpu).fitted.split(':')[0] ?? '',
      gpu.source,
    ]),
  );
}

function modelTable(models: readonly Model[]): string {
  return table(
    [
      'model',
      'parameters',
      'active',
      'layers',
      'hidden',
      'heads',
      'KV heads',
      'experts',
      'bf16 GB',
      'fp8 GB',
      'int4 GB',
      'KV MB/token',
      'source',
    ],
    models.map((model) => [
      model.id,
      `${(parameters(model) / 1e9).toFixed(1)} B`,
      `${(activeParameters(model) / 1e9).toFixed(1)} B`,
      layerCount(model),
      model.hidden,
      headsOf(model).heads,
      headsOf(model).kvHeads,
      expertsText(model),
      ...(['bf16', 'fp8', 'int4'] as const).map((weights) => (weightBytes({ model, tp: 1, weights }) / 1e9).toFixed(1)),
      (kvBytesPerToken({ model, tp: 1, kv: 'bf16' }) / 1e6).toFixed(3),
      model.source,
    ]),
  );
}

function expertsText(model: Model): string {
  const { experts, active } = expertsOf(model);
  return experts > 1 ? `${active} of ${experts}` : '-';
}
