/** Links uploaded files and batch results. A file gets its name when it is complete, and then never changes. */
import { copyFile, link, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { BACKUP_PATH_PATTERN } from './manifest.ts';

const DIRECTORY = 'files';
/**
 * Errors after which the file is copied instead: `to` is on another file system, the file system has no hard links, or
 * this user may not create them.
 */
const NO_LINK: readonly unknown[] = ['EXDEV', 'EPERM', 'ENOTSUP', 'EMLINK'];

/**
 * Links every uploaded file and batch result of `data` into `to`. The link stays if a user deletes the file. Resolves
 * to the paths of the files of `data` that are in `to` now.
 */
export async function linkFiles(data: string, to: string): Promise<string[]> {
  const names = await readdir(join(data, DIRECTORY)).catch(unless('ENOENT', [] as string[]));
  // Incomplete uploads have names of another form, so they are skipped.
  const paths = names.map((name) => `${DIRECTORY}/${name}`).filter((path) => BACKUP_PATH_PATTERN.test(path));
  if (paths.length > 0) await mkdir(join(to, DIRECTORY), { recursive: true, mode: 0o700 });
  const linked = await Promise.all(paths.map((path) => linkOne(join(data, path), join(to, path))));
  return paths.filter((_, at) => linked[at]);
}

/** Returns false if the file was deleted meanwhile. */
async function linkOne(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT') return false;
    if (code === 'EEXIST') return true;
    if (!NO_LINK.includes(code)) throw error;
    return copyFile(from, to).then(() => true, unless('ENOENT', false));
  }
  return true;
}

function unless<T>(code: string, instead: T): (error: unknown) => T {
  return (error) => {
    if (codeOf(error) === code) return instead;
    throw error;
  };
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}
