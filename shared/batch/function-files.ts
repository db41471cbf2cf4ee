/** Files of the Files API that calls of functions read and write. Lines name those that they read in `body.files`. */
import * as z from 'zod';

const FILE_ID = /^file-[A-Za-z0-9_-]{1,64}$/;
/** Maximum pieces of a function's packed environment, and maximum bytes of each. */
export const ENVIRONMENT_PIECES_MAX = 256;
export const ENVIRONMENT_PIECE_BYTES = 64 * 1024 * 1024;
/** Maximum files of one line, and of all lines of a batch together. */
export const LINE_FILES_MAX = 64;
export const BATCH_FILES_MAX = 1_000;
/** Maximum files that the calls of one batch write, and maximum bytes of each, as of a file that a client uploads. */
export const BATCH_OUTPUTS_MAX = 10_000;
export const OUTPUT_FILE_MAX_BYTES = 512_000_000;
/** A name without directories and control characters. It becomes a file's name on other machines. */
/** Header with the signed announcement of the file in the body: JSON in base64url. */
export const OUTPUT_HEADER = 'x-otela-output';
const OUTPUT_NAME = /^(?!\.{1,2}$)[^/\\\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]{1,255}$/u;

/** A file that a call wrote, as its node announces it. */
export const outputFileSchema = z.object({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.int().min(0).max(OUTPUT_FILE_MAX_BYTES),
  name: z.string().regex(OUTPUT_NAME),
});
export type OutputFile = z.infer<typeof outputFileSchema>;

export function isOutputName(name: string): boolean {
  return OUTPUT_NAME.test(name);
}

/** Ids of the files with the pieces of a function's packed environment, in their order. */
export const environmentFilesSchema = z.array(z.string().regex(FILE_ID)).min(1).max(ENVIRONMENT_PIECES_MAX);

/** The files that a line names; undefined: its `files` is not a list of their ids. */
export function readLineFiles(files: unknown): string[] | undefined {
  if (files === undefined || files === null) return [];
  if (!Array.isArray(files) || files.length > LINE_FILES_MAX) return undefined;
  return files.every((id): id is string => typeof id === 'string' && FILE_ID.test(id)) ? files : undefined;
}
