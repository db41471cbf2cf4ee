/**
 * One blob on this node's disk, complete or growing: its verified pieces in order, and the readers that wait for the
 * next piece.
 */
import { type FileHandle, open, rename } from 'node:fs/promises';
import { pieceCount, pieceSpan } from '../../shared/weights/blob-pieces.ts';
import type { Sha256Thread } from './sha256-thread.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

export const BLOB_DIGEST_BYTES = 32;

export interface BlobLocation {
  /** Path of the complete blob. */
  path: string;
  /** Path of the blob while it grows. */
  partPath: string;
  /** Path of the SHA-256 of each verified piece, 32 bytes each. */
  digestsPath: string;
}

export class Blob {
  readonly key: string;
  readonly size: number;
  readonly pieceBytes: number;
  readonly #place: BlobLocation;
  /** SHA-256 of each verified piece. */
  #digests: Buffer[] = [];
  #file: FileHandle;
  #digestFile: FileHandle;
  #complete: boolean;
  #closed = false;
  #users = 1;
  /**
   * Called when a piece was verified, when the blob is complete, and when it is closed. Each upload adds one watcher,
   * so the maximum number of uploads bounds this set.
   */
  readonly #watchers = new Set<() => void>();

  private constructor(
    key: string,
    cut: { size: number; pieceBytes: number },
    place: BlobLocation,
    files: { file: FileHandle; digestFile: FileHandle; complete: boolean },
  ) {
    this.key = key;
    this.size = cut.size;
    this.pieceBytes = cut.pieceBytes;
    this.#place = place;
    this.#file = files.file;
    this.#digestFile = files.digestFile;
    this.#complete = files.complete;
  }

  /**
   * Opens a complete blob.
   * @throws Error ENOENT if its file or its digests are missing, WeightsError `wrong` if digests are missing
   */
  static async whole(key: string, cut: { size: number; pieceBytes: number }, place: BlobLocation): Promise<Blob> {
    const file = await open(place.path, 'r');
    const digestFile = await open(place.digestsPath, 'r').catch(async (error: unknown) => {
      await file.close();
      throw error;
    });
    const blob = new Blob(key, cut, place, { file, digestFile, complete: true });
    const digests = await digestFile.readFile();
    blob.#digests = split(digests).slice(0, pieceCount(cut));
    if (blob.#digests.length < pieceCount(cut)) {
      await blob.#closeFiles();
      throw new WeightsError('wrong', `${place.digestsPath} lacks the digests of some pieces`);
    }
    return blob;
  }

  /**
   * Opens a blob to fill. Pieces of a previous process are read again, and kept as far as they are valid.
   * @param whole id of the running digest of the whole blob in `hasher`; 0: no such digest
   */
  static async partial(
    key: string,
    cut: { size: number; pieceBytes: number },
    place: BlobLocation,
    hashing: { hasher: Sha256Thread; whole: number },
  ): Promise<Blob> {
    const file = await open(place.partPath, 'a+', 0o600).then(async (made) => {
      await made.close();
      return open(place.partPath, 'r+');
    });
    const digestFile = await open(place.digestsPath, 'a+', 0o600).then(async (made) => {
      await made.close();
      return open(place.digestsPath, 'r+');
    });
    const blob = new Blob(key, cut, place, { file, digestFile, complete: false });
    await blob.#recover(hashing);
    return blob;
  }

  async #recover({ hasher, whole }: { hasher: Sha256Thread; whole: number }): Promise<void> {
    const claimed = split(await this.#digestFile.readFile());
    const memory = new SharedArrayBuffer(Math.min(this.pieceBytes, Math.max(this.size, 1)));
    for (let index = 0; index < Math.min(claimed.length, this.pieces); index++) {
      const { offset, length } = pieceSpan(this, index);
      const { bytesRead } = await this.#file.read(new Uint8Array(memory, 0, length), 0, length, offset);
      const digest = claimed[index];
      if (bytesRead < length || digest === undefined) break;
      const wanted = digest.toString('hex');
      if ((await hasher.piece(memory, length, whole, wanted)) !== wanted) break;
      this.#digests.push(digest);
    }
    await this.#file.truncate(Math.min(this.size, this.have * this.pieceBytes));
    await this.#digestFile.truncate(this.have * BLOB_DIGEST_BYTES);
  }

  get pieces(): number {
    return pieceCount(this);
  }

  /** Number of verified pieces. */
  get have(): number {
    return this.#digests.length;
  }

  get bytes(): number {
    return Math.min(this.size, this.have * this.pieceBytes);
  }

  get complete(): boolean {
    return this.#complete;
  }

  digest(index: number): Buffer | undefined {
    return this.#digests[index];
  }

  /** Reads up to `length` bytes of a verified piece. */
  async read(target: Uint8Array, offset: number): Promise<number> {
    const { bytesRead } = await this.#file.read(target, 0, target.length, offset);
    return bytesRead;
  }

  /** Appends the next verified piece. @throws WeightsError `full` */
  async append(bytes: Uint8Array, digest: Buffer): Promise<void> {
    try {
      await writeAll(this.#file, bytes, this.have * this.pieceBytes);
      await writeAll(this.#digestFile, digest, this.have * BLOB_DIGEST_BYTES);
    } catch (error) {
      throw asWeightsError(error);
    }
    this.#digests.push(digest);
    this.#report();
  }

  /** Call when all pieces are on disk and the whole blob is verified. */
  async finish(): Promise<void> {
    await this.#file.sync();
    // Sync the digests: if a power failure loses them, the blob cannot be sent to other nodes.
    await this.#digestFile.sync();
    await rename(this.#place.partPath, this.#place.path);
    this.#complete = true;
    this.#report();
  }

  /** Call if the whole blob is invalid. Starts again with the first piece. */
  async restart(): Promise<void> {
    this.#digests = [];
    await this.#file.truncate(0);
    await this.#digestFile.truncate(0);
    this.#report();
  }

  /**
   * Resolves when the piece is on disk, or after `ms`. True if it is there.
   * @throws WeightsError `unavailable` if it will not arrive
   */
  async piece(index: number, ms: number): Promise<boolean> {
    const late = performance.now() + ms;
    while (this.have <= index) {
      if (this.#closed) throw new WeightsError('unavailable', 'this node stopped pulling the blob');
      const left = late - performance.now();
      if (left <= 0) return false;
      await new Promise<void>((resolve) => {
        const done = () => {
          clearTimeout(timer);
          this.#watchers.delete(done);
          resolve();
        };
        const timer = setTimeout(done, left);
        this.#watchers.add(done);
      });
    }
    return true;
  }

  #report(): void {
    for (const watcher of [...this.#watchers]) watcher();
  }

  /** Counts one more user, until `close`. */
  use(): this {
    this.#users++;
    return this;
  }

  async close(): Promise<void> {
    if (--this.#users > 0) return;
    await this.#closeFiles();
  }

  /** Call if no further piece will arrive. The existing pieces stay for the next process. */
  giveUp(): void {
    this.#closed = true;
    this.#report();
  }

  async #closeFiles(): Promise<void> {
    this.giveUp();
    await this.#file.close();
    await this.#digestFile.close();
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}

function split(digests: Buffer): Buffer[] {
  const count = Math.floor(digests.length / BLOB_DIGEST_BYTES);
  return Array.from({ length: count }, (_, i) => digests.subarray(i * BLOB_DIGEST_BYTES, (i + 1) * BLOB_DIGEST_BYTES));
}
