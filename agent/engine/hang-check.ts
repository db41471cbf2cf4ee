import { neverRejects } from '../../shared/timing/in-background.ts';
/**
 * Checks whether an engine that accepted requests still computes. The health endpoint does not show it: vLLM's answers
 * 200 while its scheduler is stuck (vllm-project/vllm#36451). So the agent asks for one token, which only a running
 * scheduler can produce.
 *
 * Silence alone is no proof, because a prefill may take minutes. An engine counts as hung if all of these hold:
 * requests wait, no byte arrived for `quietMs`, and neither the token nor another byte arrives within `probeMs` after
 * that. An engine without counters never counts as hung. It may compute one long response, and the token waits for the
 * end of that; the request's timeout ends such a request.
 */

/**
 * Result of asking for a token. `failed`: the engine answered with a server error. `unknown`: the engine gave another
 * answer, so the state of its scheduler is not known.
 */
export type TokenProbeResult = 'token' | 'silent' | 'failed' | 'unknown';

interface HangCheckOptions {
  quietMs: number;
  probeMs: number;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Number of requests at the engine. */
  waiting(): number;
  /** When the engine last sent a byte, or computed according to its counters; read from the clock `now`. */
  heardAt(): number;
  /**
   * True if the engine's counters of computed tokens can be read. Otherwise only response bytes show that it computes.
   */
  counts(): boolean;
  /** Asks the engine for one token. Resolves after `probeMs` at the latest, and never rejects. */
  probe(): Promise<TokenProbeResult>;
  /** Called once, when the engine hangs. */
  onHang(silentMs: number): void;
}

export class HangCheck {
  readonly #options: HangCheckOptions;
  /** When the first waiting request arrived; undefined if none waits. */
  #waitsSince: number | undefined;
  /** Time of the last probe that did not prove a hang. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #probing = false;
  #finished = false;

  constructor(options: HangCheckOptions) {
    this.#options = options;
  }

  /** Call this about once a second. */
  tick(): void {
    const { now, waiting, quietMs } = this.#options;
    if (this.#finished || this.#probing) return;
    if (waiting() === 0) {
      this.#waitsSince = undefined;
      return;
    }
    this.#waitsSince ??= now();
    if (now() - this.#silentSince < quietMs) return;
    this.#probing = true;
    neverRejects(
      this.#ask().finally(() => {
        this.#probing = false;
      }),
    );
  }

  get #silentSince(): number {
    return Math.max(this.#waitsSince ?? Number.NEGATIVE_INFINITY, this.#askedAt, this.#options.heardAt());
  }

  async #ask(): Promise<void> {
    const { now, heardAt, counts, probe, onHang } = this.#options;
    const [silentSince, askedAt] = [this.#silentSince, now()];
    const result = await probe();
    if (this.#finished) return;
    if (result !== 'silent' || !counts() || heardAt() > askedAt) {
      this.#askedAt = now();
      return;
    }
    this.#finished = true;
    onHang(now() - silentSince);
  }

  close(): void {
    this.#finished = true;
  }
}
