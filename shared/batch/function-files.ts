/** Files of the Files API that calls of functions read. Lines name them in `body.files`. */

const FILE_ID = /^file-[A-Za-z0-9_-]{1,64}$/;
/** Maximum files of one line, and of all lines of a batch together. */
export const LINE_FILES_MAX = 64;
export const BATCH_FILES_MAX = 1_000;

/** The files that a line names; undefined: its `files` is not a list of their ids. */
export function readLineFiles(files: unknown): string[] | undefined {
  if (files === undefined || files === null) return [];
  if (!Array.isArray(files) || files.length > LINE_FILES_MAX) return undefined;
  return files.every((id): id is string => typeof id === 'string' && FILE_ID.test(id)) ? files : undefined;
}
