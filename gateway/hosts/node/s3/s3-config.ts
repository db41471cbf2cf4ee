/**
 * Reads a bucket's address and credentials: `--files s3://BUCKET[/PREFIX]`, and the environment variables of AWS' own
 * programs.
 */
import { readS3Account, type S3Account } from '../../../../node/s3.ts';
import { UsageError } from '../../../../shared/command-line/index.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';

export interface S3Config extends S3Account {
  bucket: string;
  /** Prefix of each object's name: empty, or ends with a slash. */
  prefix: string;
}

const ADDRESS = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9_.-]+)*)\/?$/;

export function isS3(files: string): boolean {
  return files.startsWith('s3:');
}

/**
 * @throws UsageError if the address is malformed, CommandError if credentials are missing or readable by other users
 */
export function readS3Config(address: string, env: NodeJS.ProcessEnv): S3Config {
  const [, bucket, path = ''] = ADDRESS.exec(address) ?? [];
  if (bucket === undefined) throw new UsageError(`--files ${address} is not s3://BUCKET or s3://BUCKET/PREFIX`);
  let account: S3Account;
  try {
    account = readS3Account(env);
  } catch (cause) {
    throw new CommandError(`--files ${address}: ${errorText(cause)}`, { cause });
  }
  const endpoint = new URL(account.endpoint).origin; // its path may repeat the bucket
  return { ...account, endpoint, bucket, prefix: path === '' ? '' : `${path.slice(1)}/` };
}
