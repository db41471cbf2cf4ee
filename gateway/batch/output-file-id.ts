import { createHash } from 'node:crypto';

/** The id of a file that a call of a batch wrote. The same content has one id, so that a call that runs again stores it once. */
export function outputFileId(batch: string, sha256: string): string {
  return `file-${createHash('sha256').update(`${batch}/call/${sha256}`).digest('hex').slice(0, 24)}`;
}
