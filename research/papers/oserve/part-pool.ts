import { Worker } from 'node:worker_threads';
import type * as z from 'zod';
import type { KeptResults } from './kept-results.ts';
import { answerSchema, expectedS, nameOf, type Part } from './parts.ts';

interface Waiting {
  part: Part;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

export interface PoolOptions {
  threads: number;
  /** Also recomputes stored results. */
  fresh: boolean;
  kept: KeptResults;
  /** Reports progress to people, and the estimated remaining time. */
  tell(line: string): void;
}

/**
 * Computes parts concurrently, the longest first, and stores the results, so that an interrupted command can be
 * resumed.
 */
export class PartPool {
  readonly #options: PoolOptions;
  /** Bounded by the parts of one report. */
  readonly #waiting: Waiting[] = [];
  readonly #startedAt = performance.now();
  #all = 0;
  #done = 0;
  #expectedS = 0;
  #doneS = 0;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Starts no part before `run`. */
  compute<T>(part: Part, schema: z.ZodType<T>): Promise<T> {
    this.#all++;
    const kept = this.#options.fresh ? undefined : schema.safeParse(this.#options.kept.read(part));
    if (kept?.success === true) {
      this.#done++;
      return Promise.resolve(kept.data);
    }
    this.#expectedS += expectedS(part);
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.push({ part, resolve, reject });
    return promise.then((result) => schema.parse(result));
  }

  /** Resolves when no part is left. If a part fails, its promise rejects; the others are computed by a new thread. */
  async run(): Promise<void> {
    const { threads, tell } = this.#options;
    const count = Math.min(threads, this.#waiting.length);
    this.#waiting.sort((a, b) => expectedS(b.part) - expectedS(a.part));
    if (this.#done > 0) tell(`${this.#done} of ${this.#all} parts are kept from before (--fresh computes them again)`);
    if (count > 0)
      tell(
        `${this.#waiting.length} parts on ${count} threads: about ${minutes(this.#expectedS / count)} of quiet cores`,
      );
    await Promise.all(Array.from({ length: count }, () => this.#work()));
  }

  async #work(): Promise<void> {
    let worker: Worker | undefined;
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      worker ??= new Worker(new URL('./part-thread.ts', import.meta.url));
      if (await this.#one(worker, next)) continue;
      await worker.terminate();
      worker = undefined;
    }
    await worker?.terminate();
  }

  /** False: the part failed, and perhaps its thread ended. */
  async #one(worker: Worker, { part, resolve, reject }: Waiting): Promise<boolean> {
    try {
      const { result, seconds } = answerSchema.parse(await answerOf(worker, part));
      this.#options.kept.write(part, result);
      this.#done++;
      this.#doneS += expectedS(part);
      this.#tell(part, seconds);
      resolve(result);
      return true;
    } catch (error) {
      reject(error);
      return false;
    }
  }

  #tell(part: Part, seconds: number): void {
    const elapsedS = (performance.now() - this.#startedAt) / 1e3;
    const leftS = (elapsedS / this.#doneS) * (this.#expectedS - this.#doneS);
    this.#options.tell(
      `${this.#done} of ${this.#all}: ${nameOf(part)}, ${seconds.toFixed(0)} s; ${minutes(leftS)} left`,
    );
  }
}

const minutes = (seconds: number): string =>
  seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`;

function answerOf(worker: Worker, part: Part): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  worker.once('message', resolve);
  worker.once('error', reject);
  const ended = (code: number) => reject(new Error(`the thread of ${nameOf(part)} ended with ${code}`));
  worker.once('exit', ended);
  worker.postMessage(part);
  return promise.finally(() => worker.off('message', resolve).off('error', reject).off('exit', ended));
}
