import { createHash } from 'node:crypto';
import type { ManifestFile, WeightsManifest } from '../../../shared/weights/weights-manifest.ts';

const SHA256 = /^[0-9a-f]{64}$/;

/** A file as its source lists it. */
interface ListedFile {
  path: string;
  size: number;
  /** The SHA-256, if the source knows it. */
  sha256?: string | undefined;
  /** Changes with the content: an entity tag or a modification time. Identifies the file if there is no SHA-256. */
  stamp: string;
  etag?: string | undefined;
}

export function manifestFile(source: string, { path, size, sha256, stamp, etag }: ListedFile): ManifestFile {
  const exact = sha256 !== undefined && SHA256.test(sha256);
  const key = exact ? sha256 : contentDigest(JSON.stringify([source, path, size, stamp]));
  return { path, size, key, exact, ...(etag === undefined ? {} : { etag }) };
}

/** A revision for a source that has none. Equal lists have equal revisions. */
export function listingRevision(files: readonly ManifestFile[]): string {
  return contentDigest(JSON.stringify(files.map(({ path, key }) => [path, key]).sort())).slice(0, 40);
}

export function contentDigest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

export function sortedFiles(files: readonly ManifestFile[]): WeightsManifest['files'] {
  return [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
}
