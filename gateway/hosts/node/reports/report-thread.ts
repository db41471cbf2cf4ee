/** The thread that reads for reports, seen from the gateway's. */
import { Worker } from 'node:worker_threads';
import type { ReportJob, ReportReply } from './job.ts';

/** Source of report-worker.ts in a bundled program, which is one file; not defined in a clone. */
declare const OTELA_REPORT_WORKER: string | undefined;

/** A thread costs some 20 MiB: it ends when no report was asked for so long. */
const IDLE_MS = 30_000;
/** A workload of a month asks 744 hours at once. */
const WAITING_MAX = 10_000;

interface Waiting {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

export class ReportThread {
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  #nextId = 1;
  readonly #waiting = new Map<number, Waiting>();

  /** Resolves with what the job gives. Rejects where SQLite refuses it, and where the thread ends. */
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

  /** Its files are closed when this resolves. */
  async close(): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = undefined;
    if (worker === undefined) return;
    // Its end is waited for: without this the process would end first.
    worker.ref();
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    // A job that takes long must not hold up the end of the gateway.
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
    if (this.#waiting.size === 0) this.#idle = setTimeout(() => void this.close(), IDLE_MS).unref();
    if ('error' in reply) waiting?.reject(new Error(reply.error));
    else waiting?.resolve(reply.result);
  }

  #ended(worker: Worker, cause: unknown): void {
    // One that ends because it was idle has nothing waiting; a new one may have been started meanwhile.
    if (this.#worker !== undefined && this.#worker !== worker) return;
    this.#worker = undefined;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(new Error('the report could not be read', { cause }));
  }
}
