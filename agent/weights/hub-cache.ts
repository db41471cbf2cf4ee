/** The layout of a Hugging Face cache. https://huggingface.co/docs/huggingface_hub/guides/manage-cache */
import { randomUUID } from 'node:crypto';
import { link, mkdir, readlink, rename, rm, rmdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import type { WeightsManifest } from '../../shared/weights/weights-manifest.ts';
import { asWeightsError } from './weights-error.ts';

interface SnapshotOptions {
  /** The model's folder in the cache: `models--org--name`. */
  folder: string;
  /** `main`, a tag or a commit: the name that engines use. */
  revision: string;
  manifest: WeightsManifest;
  blobPath(key: string): string;
}

/**
 * Creates `snapshots/<revision>/<path>` → `blobs/<etag>`, and the ref. Symlinks are created last, so an existing name
 * is complete. Returns the snapshot's path.
 */
export async function linkSnapshot({ folder, revision, manifest, blobPath }: SnapshotOptions): Promise<string> {
  const snapshot = join(folder, 'snapshots', manifest.revision);
  const ref = join(folder, 'refs', revision);
  const written = `${ref}.${randomUUID()}`; // A random name, because process ids are the same in each container.
  try {
    await mkdir(join(folder, 'blobs'), { recursive: true, mode: 0o700 });
    for (const { path, key, etag } of manifest.files) {
      const blob = join(folder, 'blobs', etag ?? key);
      await link(blobPath(key), blob).catch(ignoring('EEXIST'));
      const name = join(snapshot, path);
      await mkdir(dirname(name), { recursive: true, mode: 0o700 });
      const target = relative(dirname(name), blob);
      if ((await readlink(name).catch(() => undefined)) === target) continue;
      await rm(name, { force: true });
      await symlink(target, name);
    }
    await mkdir(dirname(ref), { recursive: true, mode: 0o700 });
    await writeFile(written, manifest.revision);
    await rename(written, ref);
  } catch (error) {
    await rm(written, { force: true }).catch(() => {});
    throw asWeightsError(error);
  }
  return snapshot;
}

interface Linked {
  manifest: WeightsManifest;
  revision: string;
}

/**
 * Undoes `linkSnapshot`. Keeps three kinds of files in the folder: those of the models in `others`, those of other
 * revisions, from which engines may run, and those of other programs.
 */
export async function unlinkSnapshot(folder: string, { manifest, revision }: Linked, others: Linked[]): Promise<void> {
  const gone: string[] = [];
  const same = others.filter((one) => one.manifest.revision === manifest.revision);
  const stays = new Set(same.flatMap((one) => one.manifest.files.map(({ path }) => path)));
  const paths = manifest.files.map(({ path }) => path).filter((path) => !stays.has(path));
  gone.push(...paths.map((path) => join('snapshots', manifest.revision, path)));
  if (!others.some((one) => one.revision === revision)) gone.push(join('refs', revision));
  const kept = new Set(others.flatMap((one) => one.manifest.files.map(blobName)));
  gone.push(...manifest.files.filter((file) => !kept.has(blobName(file))).map((file) => join('blobs', blobName(file))));
  for (const path of gone) await rm(join(folder, path), { force: true });
  // An error is ignored: the folder contains more files, or never existed.
  for (const empty of foldersOf(gone)) await rmdir(join(folder, empty)).catch(() => {});
}

/** All parent folders of the paths, deepest first, `.` last. */
function foldersOf(paths: readonly string[]): string[] {
  const folders = new Set<string>(['.']);
  for (const path of paths)
    for (let folder = dirname(path); !folders.has(folder); folder = dirname(folder)) folders.add(folder);
  const depth = (folder: string) => (folder === '.' ? 0 : folder.split('/').length);
  return [...folders].sort((a, b) => depth(b) - depth(a));
}

const blobName = ({ key, etag }: WeightsManifest['files'][number]) => etag ?? key;

function ignoring(code: string) {
  return (error: unknown) => {
    if (!(error instanceof Error && 'code' in error && error.code === code)) throw error;
  };
}
