/** What a source holds at one revision: names, sizes and keys. The bytes themselves are blobs. */
import * as z from 'zod';

/** Kimi K2 has 62 files of weights, the largest repositories some 300. */
export const FILES_MAX = 4096;
export const MANIFEST_MAX_BYTES = 2 * 1024 * 1024;
export const BLOB_MAX_BYTES = 2 ** 44;

export const digestSchema = z.string().regex(/^[0-9a-f]{64}$/, 'not a SHA-256 in hex');

/** No repository is so deep; thousands of names that are would take seconds to compare. */
const DEPTH_MAX = 32;
/** Linux has no longer name; the pull would fail at its end. */
const NAME_MAX_BYTES = 255;

/**
 * A file's name below the snapshot. Refuses what could write elsewhere: absolute paths, `..`, empty parts, backslashes and control
 * characters; and what would be another name on a disk.
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
  path: z.string().refine(isSafePath, 'a path that leaves the snapshot'),
  size: z.number().int().nonnegative().max(BLOB_MAX_BYTES),
  /** Nodes ask each other for a blob by its key. Equal keys are equal bytes. */
  key: digestSchema,
  /** The key is the content's SHA-256. Else the source did not say one, and the key is a digest of the file's name, size and time of change. */
  exact: z.boolean(),
  /** Its name among the blobs of a Hugging Face cache, where that is not the key: the hub names small files by git's SHA-1. */
  etag: z
    .string()
    .regex(/^[0-9a-f]{40}$/)
    .optional(),
});
export type ManifestFile = z.infer<typeof fileSchema>;

export const manifestSchema = z
  .strictObject({
    v: z.literal(1),
    /** The source's name, written by `sourceText`. */
    source: z.string().max(1024),
    /** The hub's commit; elsewhere a digest of the list of files. */
    revision: z.string().regex(/^[A-Za-z0-9][\w.-]{0,127}$/),
    /** Anyone may read the source: its blobs go to nodes of other providers of the cluster, too. */
    public: z.boolean(),
    files: z.array(fileSchema).min(1).max(FILES_MAX),
  })
  .refine(({ files }) => !clash(files.map(({ path }) => path)), 'a path that stands twice, or below a file');
export type Manifest = z.infer<typeof manifestSchema>;

/** True where one name stands twice, or one is a folder of another: a symlink would be followed on the way. */
function clash(paths: readonly string[]): boolean {
  const all = new Set(paths);
  if (all.size < paths.length) return true;
  /** Those that were looked at: thousands of files in one deep folder took seconds. */
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

/** Each blob once, however many files are the same. */
export function blobsOf(manifest: Pick<Manifest, 'files'>): ManifestFile[] {
  return [...new Map(manifest.files.map((file) => [file.key, file])).values()];
}

/** Bytes of all blobs. */
export function sizeOf(manifest: Pick<Manifest, 'files'>): number {
  return blobsOf(manifest).reduce((sum, { size }) => sum + size, 0);
}
