/** What a source holds at one revision: names, sizes and digests. The bytes themselves are blobs. */
import * as z from 'zod';
import { ID_PATTERN } from '../lattice/node.ts';
import { PIECE_BYTES } from './pieces.ts';

/** Kimi K2 has 62 files of weights, the largest repositories some 300. */
export const FILES_MAX = 4096;
export const MANIFEST_MAX_BYTES = 2 * 1024 * 1024;
const BLOB_MAX_BYTES = 2 ** 44;

export const digestSchema = z.string().regex(/^[0-9a-f]{64}$/, 'no SHA-256 in hex');

/**
 * A file's name below the snapshot. Refuses what could write elsewhere: absolute paths, `..`, empty parts, backslashes and control
 * characters.
 */
export function isSafePath(path: string): boolean {
  if (path.length === 0 || path.length > 512 || path.startsWith('/') || path.includes('\\')) return false;
  for (let i = 0; i < path.length; i++) if (path.charCodeAt(i) < 0x20 || path.charCodeAt(i) === 0x7f) return false;
  return path.split('/').every((part) => part !== '' && part !== '.' && part !== '..');
}

const fileSchema = z.strictObject({
  path: z.string().refine(isSafePath, 'a path that leaves the snapshot'),
  size: z.number().int().nonnegative().max(BLOB_MAX_BYTES),
  sha256: digestSchema,
  /** Its name among the blobs of a Hugging Face cache, where that is not the SHA-256: the hub names small files by git's SHA-1. */
  etag: z
    .string()
    .regex(/^[0-9a-f]{40}$/)
    .optional(),
});
export type ManifestFile = z.infer<typeof fileSchema>;

export const manifestSchema = z
  .strictObject({
    v: z.literal(1),
    source: z.string().max(1024),
    /** The hub's commit; elsewhere a digest of the list of files. */
    revision: z.string().regex(/^[A-Za-z0-9][\w.-]{0,127}$/),
    /** Read with credentials: passed on only to nodes that may serve it. */
    private: z.boolean(),
    pieceBytes: z
      .number()
      .int()
      .min(1024)
      .max(4 * PIECE_BYTES),
    files: z.array(fileSchema).min(1).max(FILES_MAX),
    /** Whose node made it; of lists that are private. */
    provider: z.string().regex(ID_PATTERN).optional(),
  })
  .refine(({ files }) => !clash(files.map(({ path }) => path)), 'a path that stands twice, or below a file');
export type Manifest = z.infer<typeof manifestSchema>;

/** True where one name stands twice, or one is a folder of another: a symlink would be followed on the way. */
function clash(paths: readonly string[]): boolean {
  const all = new Set(paths);
  if (all.size < paths.length) return true;
  return paths.some((path) => {
    const parts = path.split('/');
    return parts.some((_, i) => i > 0 && all.has(parts.slice(0, i).join('/')));
  });
}

/** Each blob once, however many files are the same. */
export function blobsOf(manifest: Manifest): ManifestFile[] {
  return [...new Map(manifest.files.map((file) => [file.sha256, file])).values()];
}
