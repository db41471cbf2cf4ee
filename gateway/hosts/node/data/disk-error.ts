/** Turns disk errors at the start into messages for the operator. */

import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';

/**
 * Error codes of the disk: no space, quota exceeded, read-only, no permission, device error; and SQLite's codes for the
 * same.
 */
const DISK_CODES: readonly unknown[] = ['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM', 'EIO'];
const SQLITE_CODES: readonly unknown[] = [8, 10, 13, 14];
const PRIMARY_CODE = 0xff;

/**
 * Rethrows an error. The message of a disk error names the directory and is printed in one line, without a stack trace.
 * @throws CommandError, or `error`
 */
export function rethrowDiskError(directory: string, error: unknown): never {
  if (error instanceof CommandError || !isOfDisk(error)) throw error;
  const reason = errorText(error);
  throw new CommandError(
    `${directory} cannot be written: ${reason}. Free some space, or fix the error, and start again.`,
    {
      cause: error,
    },
  );
}

function isOfDisk(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if ('errcode' in error) return SQLITE_CODES.includes(Number(error.errcode) & PRIMARY_CODE);
  return 'code' in error && DISK_CODES.includes(error.code);
}
