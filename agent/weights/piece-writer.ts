import type { Blob } from './blob.ts';
import type { Sha256Thread } from './sha256-thread.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

/** Number of buffers. With two, one piece is verified and written while the next one arrives. */
const BUFFERS = 2;

/** Verifies pieces on a thread, in order, and appends them to a blob. */
export class PieceWriter {
  readonly #blob: Blob;
  readonly #hasher: Sha256Thread;
  readonly #whole: number;
  readonly #free: SharedArrayBuffer[] = [];
  #made = 0;
  #waiting: (() => void) | undefined;
  #last: Promise<void> = Promise.resolve();
  #error: WeightsError | undefined;
  /** Index of the next piece to pass to `write`. */
  next: number;

  constructor(blob: Blob, hasher: Sha256Thread, whole: number) {
    this.#blob = blob;
    this.#hasher = hasher;
    this.#whole = whole;
    this.next = blob.have;
  }

  async memory(): Promise<SharedArrayBuffer> {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#made < BUFFERS) {
      this.#made++;
      return new SharedArrayBuffer(Math.min(this.#blob.pieceBytes, Math.max(1, this.#blob.size)));
    }
    await new Promise<void>((resolve) => {
      this.#waiting = resolve;
    });
    this.#throw();
    return this.memory();
  }

  /**
   * @param expected the piece's digest according to another node; undefined for bytes of the source
   * @throws WeightsError of an earlier piece
   */
  write(memory: SharedArrayBuffer, length: number, expected: Buffer | undefined): void {
    this.#throw();
    this.next++;
    this.#last = this.#last.then(async () => {
      try {
        if (this.#error === undefined) await this.#append(memory, length, expected);
      } catch (error) {
        this.#error ??= asWeightsError(error);
      }
      this.#free.push(memory);
      this.#waiting?.();
      this.#waiting = undefined;
    });
  }

  async #append(memory: SharedArrayBuffer, length: number, expected: Buffer | undefined): Promise<void> {
    const wanted = expected?.toString('hex') ?? '';
    const digest = await this.#hasher.piece(memory, length, this.#whole, wanted);
    if (wanted !== '' && digest !== wanted)
      throw new WeightsError('wrong', `piece ${this.#blob.have} of ${this.#blob.key} has the wrong digest`);
    await this.#blob.append(new Uint8Array(memory, 0, length), Buffer.from(digest, 'hex'));
  }

  #throw(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** Resolves when all pieces are on disk. Never rejects. */
  async settled(): Promise<void> {
    await this.#last;
  }

  /** @throws WeightsError if a piece was invalid, or could not be written */
  async flush(): Promise<void> {
    await this.#last;
    this.#throw();
  }
}
