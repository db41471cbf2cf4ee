/** Where blobs are first read in a cluster. */
import type { ManifestFile, WeightsManifest } from '../../../shared/weights/weights-manifest.ts';

export interface ReadFrom {
  revision: string;
  offset: number;
}

export interface BlobSource {
  /** The source's current list of files. @throws WeightsError */
  list(signal: AbortSignal): Promise<WeightsManifest>;
  /**
   * A file's bytes from `offset`, as in the list of that revision. @throws WeightsError changed: it is another file now
   */
  read(file: ManifestFile, from: ReadFrom, signal: AbortSignal): AsyncIterable<Uint8Array>;
}
