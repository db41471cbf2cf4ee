import { WAITING_EVERY_MS } from './piece-stream.ts';

/**
 * Time without any byte after which a transfer counts as silent. A sender without a next piece sends a wait message
 * every second.
 */
const SILENT_MS = 3 * WAITING_EVERY_MS;

interface WatchOptions {
  slowBytesPerS: number;
  slowAfterMs: number;
  /**
   * After this time without a byte of a piece the transfer counts as silent, even if the sender sends wait messages.
   * Such a sender is not at fault, but the reader must not wait forever.
   */
  sourceAfterMs: number;
  /** True if a part of a piece has arrived. */
  midPiece(): boolean;
  /** Called while the transfer is slow in the middle of a piece, or silent. */
  onSlow(): void;
}

/** Watches the rate of a transfer. */
export class TransferWatch {
  readonly #options: WatchOptions;
  #bytes = 0;
  #pieces = 0;
  #receivedAt = performance.now();
  #bytesAt = this.#receivedAt;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  begin(): void {
    this.#timer = setInterval(() => this.#poll(), this.#options.slowAfterMs);
  }

  #poll(): void {
    const { slowBytesPerS, slowAfterMs, sourceAfterMs, midPiece, onSlow } = this.#options;
    const now = performance.now();
    const slow = midPiece() && this.#pieces === 0 && this.#bytes < (slowBytesPerS * slowAfterMs) / 1000;
    const silent = now - this.#receivedAt > SILENT_MS + slowAfterMs;
    this.#bytes = 0;
    this.#pieces = 0;
    if (slow || silent || now - this.#bytesAt > sourceAfterMs) onSlow();
  }

  /** @param bytes number of received bytes; 0 for a wait message */
  came(bytes: number): void {
    this.#bytes += bytes;
    this.#receivedAt = performance.now();
    if (bytes > 0) this.#bytesAt = this.#receivedAt;
    if (!this.#options.midPiece()) this.#pieces++;
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
