/** The files of a weights source at one revision: names, sizes and keys. Their bytes are stored as blobs. */
import * as z from 'zod';

/** Maximum number of files. Kimi K2 has 62 files of weights, and the largest known repositories have about 300. */
export const FILES_MAX = 4096;
export const MANIFEST_MAX_BYTES = 2 * 1024 * 1024;
export const BLOB_MAX_BYTES = 2 ** 44;

export const digestSchema = z.string().regex(/^[0-9a-f]{64}$/, 'not a SHA-256 in hex');

/**
 * Maximum depth of a file's path. No known repository is as deep, and comparing thousands of deep names would take
 * seconds.
 */
const DEPTH_MAX = 32;
/** Longest file name on Linux. A longer one would fail only at the end of the pull. */
const NAME_MAX_BYTES = 255;

/**
 * Checks a file's name relative to the snapshot. Refuses names that could write outside of it (absolute paths, `..`,
 * empty parts, backslashes, control characters) or would get another name on a disk.
 */
export function isSafePath(path: string): boolean {
  if (path.length === 0 || path.length > 512 || path.startsWith('/') || path.includes('\\')) return false;
  if (!path.isWellFormed()) return false;
  for (let i = 0; i < path.length; i++) if (path.charCodeAt(i) < 0x20 || path.charCodeAt(i) === 0x7f) return false;
  const parts = path.split('/');
  return parts.length <= DEPTH_MAX && parts.every(isName);
}

function isName(part: string): boolean {
  return part !== '' && part !== '.' && part !== '..' && new TextEncoder().encode(part).length <= NAME_MAX_BYTES;
}

const fileSchema = z.strictObject({
  path: z.string().refine(isSafePath, 'a path that points out of the snapshot'),
  size: z.number().int().nonnegative().max(BLOB_MAX_BYTES),
  /** Nodes request a blob by its key. Equal keys mean equal bytes. */
  key: digestSchema,
  /**
   * True if the key is the SHA-256 of the file's content. False if the source provides no such digest; then the key is
   * a digest of the file's name, size and modification time.
   */
  exact: z.boolean(),
  /**
   * The file's name among the blobs of a Hugging Face cache, if it differs from the key: the hub names small files by
   * git's
   * SHA-1.
   */
  etag: z
    .string()
    .regex(/^[0-9a-f]{40}$/)
    .optional(),
});
export type ManifestFile = z.infer<typeof fileSchema>;

export const weightsManifestSchema = z
  .strictObject({
    v: z.literal(1),
    /** The source as formatted by `sourceText`. */
    source: z.string().max(1024),
    /** The commit at the hub. For other sources, a digest of the list of files. */
    revision: z.string().regex(/^[A-Za-z0-9][\w.-]{0,127}$/),
    /** True if the source is public. Then its blobs are also sent to nodes of other providers in the cluster. */
    public: z.boolean(),
    files: z.array(fileSchema).min(1).max(FILES_MAX),
  })
  .refine(({ files }) => !clash(files.map(({ path }) => path)), 'a path that occurs twice, or is below a file');
export type WeightsManifest = z.infer<typeof weightsManifestSchema>;

/**
 * True if a name occurs twice, or is also the name of a folder. In both cases, writing one file would follow the
 * other's symlink.
 */
function clash(paths: readonly string[]): boolean {
  const all = new Set(paths);
  if (all.size < paths.length) return true;
  /** Folders that were already checked. Without this set, thousands of files in one deep folder took seconds. */
  const folders = new Set<string>();
  for (const path of paths)
    for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
      const folder = path.slice(0, end);
      if (folders.has(folder)) break;
      if (all.has(folder)) return true;
      folders.add(folder);
    }
  return false;
}

/** Returns each blob once, even if several files have the same content. */
export function blobsOf(manifest: Pick<WeightsManifest, 'files'>): ManifestFile[] {
  return [...new Map(manifest.files.map((file) => [file.key, file])).values()];
}

/** Total bytes of all blobs. */
export function manifestBytes(manifest: Pick<WeightsManifest, 'files'>): number {
  return blobsOf(manifest).reduce((sum, { size }) => sum + size, 0);
}
