/**
 * Whether an engine that took requests still computes. Its own health endpoint cannot tell: vLLM's answers 200 while its scheduler stands
 * still (vllm-project/vllm#36451), so one token is asked for, which only a scheduler that runs can give. Silence alone proves nothing, a
 * prefill may take minutes: an engine is given up when requests wait, no byte came for `quietMs`, and neither the token nor any other byte
 * comes within `probeMs` after that. An engine without counters is never given up: it may compute one long answer, behind which the token
 * waits; the request's own time-out ends that.
 */

/** What came of asking for a token. `unknown`: the engine said something else; whether its scheduler runs is not known. */
export type TokenProbeResult = 'token' | 'silent' | 'unknown';

export interface HangCheckOptions {
  quietMs: number;
  probeMs: number;
  /** Milliseconds of a clock that does not jump. */
  now(): number;
  /** Requests that are at the engine. */
  waiting(): number;
  /** When the engine last gave a byte, or computed by its own count; by `now`. */
  heardAt(): number;
  /** It counts what it computes, and the counts are read: else nothing but its bytes tells that it computes. */
  counts(): boolean;
  /** Asks for one token; resolves after `probeMs` at the latest. Never rejects. */
  probe(): Promise<TokenProbeResult>;
  /** Once. */
  onHang(silentMs: number): void;
}

export class HangCheck {
  readonly #options: HangCheckOptions;
  /** Since when requests wait; undefined: none does. */
  #waitsSince: number | undefined;
  /** It gave a token then, or what it said could not be read. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #probing = false;
  #over = false;

  constructor(options: HangCheckOptions) {
    this.#options = options;
  }

  /** Call it every second or so. */
  tick(): void {
    const { now, waiting, quietMs } = this.#options;
    if (this.#over || this.#probing) return;
    if (waiting() === 0) {
      this.#waitsSince = undefined;
      return;
    }
    this.#waitsSince ??= now();
    if (now() - this.#silentSince < quietMs) return;
    this.#probing = true;
    void this.#ask().finally(() => {
      this.#probing = false;
    });
  }

  get #silentSince(): number {
    return Math.max(this.#waitsSince ?? Number.NEGATIVE_INFINITY, this.#askedAt, this.#options.heardAt());
  }

  async #ask(): Promise<void> {
    const { now, heardAt, counts, probe, onHang } = this.#options;
    const [silentSince, askedAt] = [this.#silentSince, now()];
    const result = await probe();
    if (this.#over) return;
    if (result !== 'silent' || !counts() || heardAt() > askedAt) {
      this.#askedAt = now();
      return;
    }
    this.#over = true;
    onHang(now() - silentSince);
  }

  close(): void {
    this.#over = true;
  }
}
