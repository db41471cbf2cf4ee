/** A place from which the first node of a cluster reads blobs. */
import type { ManifestFile, WeightsManifest } from '../../../shared/weights/weights-manifest.ts';

export interface ReadFrom {
  revision: string;
  offset: number;
}

export interface BlobSource {
  /** Maximum duration of `list`, in milliseconds, if it may take longer than that of other sources. */
  readonly listWithinMs?: number;
  /** Lists the source's current files. @throws WeightsError */
  list(signal: AbortSignal): Promise<WeightsManifest>;
  /**
   * A file's bytes from `offset`, as in the manifest of that revision.
   * @throws WeightsError `changed` if it is another file now
   */
  read(file: ManifestFile, from: ReadFrom, signal: AbortSignal): AsyncIterable<Uint8Array>;
}
