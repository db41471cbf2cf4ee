/** Starts the report thread and sends it jobs. Runs on the gateway's thread. */

import { Worker } from 'node:worker_threads';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import type { ReportJob, ReportReply } from './thread-messages.ts';

/** Source text of report-worker.ts in a bundled program, which is one file; undefined in a clone of the repository. */
declare const OTELA_REPORT_WORKER: string | undefined;

/** The thread ends after this time without a report, because it costs about 20 MiB. */
const IDLE_MS = 30_000;
/** Maximum waiting jobs. The workload of a month asks for 744 hours at a time. */
const WAITING_MAX = 10_000;

interface WaitingJob {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

export class ReportThread {
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  #nextId = 1;
  readonly #waiting = new Map<number, WaitingJob>();

  /** Resolves to the job's result. Rejects if SQLite refuses the job, or if the thread ends. */
  run(job: ReportJob): Promise<unknown> {
    if (this.#waiting.size >= WAITING_MAX) return Promise.reject(new Error('too many reports are being read'));
    const id = this.#nextId++;
    clearTimeout(this.#idle);
    this.#worker ??= this.#start();
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.set(id, { resolve, reject });
    this.#worker.postMessage({ id, job });
    return promise;
  }

  /** Ends the thread. Resolves when its files are closed. */
  async close(): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = undefined;
    if (worker === undefined) return;
    // Waits for the thread's end; without this, the process would end first.
    worker.ref();
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    // A running job is not waited for, because it must not delay the end of the gateway.
    if (this.#waiting.size > 0) await worker.terminate();
    else worker.postMessage('end');
    await ended;
  }

  #start(): Worker {
    const worker =
      typeof OTELA_REPORT_WORKER === 'string'
        ? new Worker(OTELA_REPORT_WORKER, { eval: true })
        : new Worker(new URL('./report-worker.ts', import.meta.url));
    worker.unref();
    worker.on('message', (reply: ReportReply) => this.#settle(reply));
    worker.on('error', (error) => this.#ended(worker, error));
    worker.on('exit', () => this.#ended(worker, new Error('the thread that reads reports has ended')));
    return worker;
  }

  #settle(reply: ReportReply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (this.#waiting.size === 0) this.#idle = setTimeout(() => neverRejects(this.close()), IDLE_MS).unref();
    if ('error' in reply) waiting?.reject(new Error(reply.error));
    else waiting?.resolve(reply.result);
  }

  #ended(worker: Worker, cause: unknown): void {
    // A thread that ends when idle has no waiting jobs. A new thread may have been started meanwhile.
    if (this.#worker !== undefined && this.#worker !== worker) return;
    this.#worker = undefined;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(new Error('the report could not be read', { cause }));
  }
}
