/**
 * The utilization of this job's GPUs, from `nvidia-smi`, `rocm-smi` or `amd-smi`.
 */

import type { GpuUse } from '../../shared/deployment/order-reply.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { amdUse, rocmUse } from './amd-utilization.ts';
import { nvidiaUse } from './nvidia-utilization.ts';
import type { RunTool } from './run-tool.ts';

/** How long a reading is reused. The tool wakes each GPU, so several viewers share one reading. */
const FRESH_MS = 2_000;
/** How long no tool is run again after none reported the utilization. */
const ABSENT_MS = 60_000;
const GPUS_MAX = 64;

type Env = Readonly<Record<string, string | undefined>>;

export class GpuUseReader {
  readonly #run: RunTool;
  readonly #env: Env;
  readonly #now: () => number;
  #known: readonly GpuUse[] | null = null;
  #last: { until: number; gpus: Promise<GpuUse[] | null> } | undefined;

  /** @param now milliseconds of a monotonic clock */
  constructor(run: RunTool, env: Env, now: () => number) {
    this.#run = run;
    this.#env = env;
    this.#now = now;
  }

  /** Null if no tool reports the utilization. Never rejects. */
  read(): Promise<GpuUse[] | null> {
    const now = this.#now();
    if (this.#last !== undefined && now < this.#last.until) return this.#last.gpus;
    const last = { until: Number.POSITIVE_INFINITY, gpus: this.#ask() };
    this.#last = last;
    neverRejects(
      last.gpus.then((gpus) => {
        this.#known = gpus;
        last.until = this.#now() + (gpus === null ? ABSENT_MS : FRESH_MS);
      }),
    );
    return last.gpus;
  }

  /** The last reading; null if there is none. */
  get last(): readonly GpuUse[] | null {
    return this.#known;
  }

  async #ask(): Promise<GpuUse[] | null> {
    const devices =
      (await nvidiaUse(this.#run, this.#env)) ??
      (await rocmUse(this.#run, this.#env)) ??
      (await amdUse(this.#run, this.#env));
    return devices?.slice(0, GPUS_MAX).map(({ use }) => use) ?? null;
  }
}
