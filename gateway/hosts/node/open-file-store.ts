/** Opens the file store of the option `--files`. */
import { resolve } from 'node:path';
import { errorText } from '../../../shared/text/error-text.ts';
import type { FileStore } from '../../files/file-store.ts';
import { DirectoryFileStore } from './directory-file-store.ts';
import { S3Client } from './s3/s3-client.ts';
import { isS3, readS3Config } from './s3/s3-config.ts';
import { S3FileStore } from './s3/s3-file-store.ts';

/**
 * @param files a directory, or `s3://BUCKET[/PREFIX]` with credentials from the environment
 * @throws UsageError, CommandError
 */
export function openFileStore(files: string, env: NodeJS.ProcessEnv): FileStore {
  if (!isS3(files)) return new DirectoryFileStore(resolve(files));
  return new S3FileStore(new S3Client(readS3Config(files, env)));
}

/**
 * Resolves to a problem of the store, or to undefined if it can be read. A gateway starts even if its file store is
 * unavailable.
 */
export async function fileStoreProblem(store: FileStore): Promise<string | undefined> {
  try {
    for await (const _ of store.list()) break;
    return undefined;
  } catch (error) {
    return errorText(error);
  }
}
