import type { ParseArgsOptionsConfig } from 'node:util';
import { dataPath, readCalibration } from '../catalogue/catalogue.ts';
import { validate, validationText } from '../validate/report.ts';
import { sustainedText } from '../validate/sustained.ts';
import { EXIT_DONE } from './exit.ts';
import { CATALOGUE_FLAGS, catalogueFrom, readFlags } from './flags.ts';
import { type Io, json } from './io.ts';

export const FLAGS = {
  ...CATALOGUE_FLAGS,
  json: { type: 'boolean' },
  strict: { type: 'boolean' },
  fit: { type: 'boolean' },
} as const satisfies ParseArgsOptionsConfig;

/** `otela-plan validate`: how far the simulator is from what was measured. */
export function validateCommand(argv: readonly string[], io: Io): number {
  const flags = readFlags(argv, FLAGS);
  if (flags.fit === true) {
    const calibration = readCalibration(dataPath('calibration-opentela.json'));
    io.out(sustainedText({ ...catalogueFrom(flags), calibration }));
    return EXIT_DONE;
  }
  const validation = validate(catalogueFrom(flags));
  io.out(flags.json === true ? json(validation) : validationText(validation));
  return flags.strict === true && validation.missed > 0 ? 1 : EXIT_DONE;
}
