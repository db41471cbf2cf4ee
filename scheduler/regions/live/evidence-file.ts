/** The file with the evidence of challengers, which survives a restart of the planner. */
import { readFileSync, statSync } from 'node:fs';
import * as z from 'zod';
import { writePrivateFile } from '../../../node/private-file.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { SchedulerError } from '../../errors.ts';
import { evidenceSchema } from './betting-evidence.ts';

/** A file has some hundred bytes for each challenger. */
const FILE_BYTES_MAX = 64 << 10;
const IDENTITY_CHARS_MAX = 4_096;
const CHALLENGERS_KEPT_MAX = 16;
const COUNT_MAX = 1e9;

const challengerSchema = z.strictObject({
  /** Its plans and those of the champion: evidence on other policies does not count. */
  identity: z.string().max(IDENTITY_CHARS_MAX),
  live: z.boolean(),
  better: evidenceSchema,
  worse: evidenceSchema,
  demotions: z.number().int().min(0).max(COUNT_MAX),
  own: z.number().min(0),
  champions: z.number().min(0),
});
export type SavedChallenger = z.infer<typeof challengerSchema>;

const fileSchema = z.strictObject({
  format: z.literal('otela-regions-evidence 1'),
  challengers: z.array(challengerSchema).max(CHALLENGERS_KEPT_MAX),
});

/**
 * Empty if there is no file.
 *
 * @throws SchedulerError `bad_input` for a file with other contents: without its evidence another policy might plan
 */
export function readEvidence(path: string): SavedChallenger[] {
  if (statSync(path, { throwIfNoEntry: false }) === undefined) return [];
  try {
    if (statSync(path).size > FILE_BYTES_MAX) throw new Error(`larger than ${FILE_BYTES_MAX} bytes`);
    return fileSchema.parse(JSON.parse(readFileSync(path, 'utf8'))).challengers;
  } catch (cause) {
    throw new SchedulerError(
      'bad_input',
      `--evidence ${path} has no evidence of challengers. Delete it to begin without evidence.`,
      {
        cause,
      },
    );
  }
}

/** Writes atomically. Returns what failed, as a sentence. */
export function writeEvidence(path: string, challengers: readonly SavedChallenger[]): string | undefined {
  try {
    writePrivateFile(path, `${JSON.stringify({ format: 'otela-regions-evidence 1', challengers })}\n`);
    return undefined;
  } catch (error) {
    return `cannot write the evidence ${path}: ${errorText(error)}`;
  }
}
