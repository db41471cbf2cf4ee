import { WAITING_EVERY_MS } from './piece-stream.ts';

/** A node that waits itself says so every second. */
const SILENT_MS = 3 * WAITING_EVERY_MS;

interface WatchOptions {
  slowBytesPerS: number;
  slowAfterMs: number;
  /** Without a byte for so long it is silent, though the other end says that it waits itself: that is not its fault, and this bounds it. */
  sourceAfterMs: number;
  /** A part of a piece is here. */
  midPiece(): boolean;
  /** Slow in the middle of a piece, or silent; called again while it is. */
  onSlow(): void;
}

/** Looks after the pace of what comes. */
export class TransferWatch {
  readonly #options: WatchOptions;
  #bytes = 0;
  #pieces = 0;
  #heardAt = performance.now();
  #bytesAt = this.#heardAt;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  begin(): void {
    this.#timer = setInterval(() => this.#look(), this.#options.slowAfterMs);
  }

  #look(): void {
    const { slowBytesPerS, slowAfterMs, sourceAfterMs, midPiece, onSlow } = this.#options;
    const now = performance.now();
    const slow = midPiece() && this.#pieces === 0 && this.#bytes < (slowBytesPerS * slowAfterMs) / 1000;
    const silent = now - this.#heardAt > SILENT_MS + slowAfterMs;
    this.#bytes = 0;
    this.#pieces = 0;
    if (slow || silent || now - this.#bytesAt > sourceAfterMs) onSlow();
  }

  /** 0: the word that the other end waits. */
  came(bytes: number): void {
    this.#bytes += bytes;
    this.#heardAt = performance.now();
    if (bytes > 0) this.#bytesAt = this.#heardAt;
    if (!this.#options.midPiece()) this.#pieces++;
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
