import { EXIT_DONE, type Flags, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { dataPath, readCalibration } from '../catalogue/catalogue.ts';
import { withDatasheetMemory } from '../catalogue/datasheet-memory.ts';
import { sustainedText } from '../validate/fit-sustained-clock.ts';
import { validate, validationText } from '../validate/report.ts';
import { CATALOGUE_FLAGS, catalogueFrom } from './flags.ts';
import { prettyJson } from './pretty-json.ts';

export const VALIDATE_FLAGS = {
  ...CATALOGUE_FLAGS,
  ...JSON_FLAG,
  strict: { help: 'exit with 1 if a result is outside its tolerance' },
  fit: { help: 'only fit the shares for sustained load and asynchronous scheduling again' },
} as const satisfies Flags;

/** `otela-plan validate`: how far the simulator is from measurements. */
export function validateCommand(argv: readonly string[], io: Io): number {
  const flags = parseLine(argv, VALIDATE_FLAGS).values;
  if (flags.fit === true) {
    const calibration = readCalibration(dataPath('calibration-opentela.json'));
    io.out(sustainedText({ ...withDatasheetMemory(catalogueFrom(flags)), calibration }));
    return EXIT_DONE;
  }
  const validation = validate(catalogueFrom(flags));
  io.out(flags.json === true ? prettyJson(validation) : validationText(validation));
  return flags.strict === true && validation.missed > 0 ? 1 : EXIT_DONE;
}
