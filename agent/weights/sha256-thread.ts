/**
 * SHA-256 on a separate thread. The agent's main thread carries tokens, and a piece of 16 MiB takes 10 to 40 ms.
 * Buffers are shared memory, so nothing is copied.
 */
import { Worker } from 'node:worker_threads';
import * as z from 'zod';

/** Runs in the thread. Only its source text is sent there, so it must not refer to anything in this file. */
function hashThread(): void {
  const { createHash } = process.getBuiltinModule('node:crypto');
  const { readlinkSync } = process.getBuiltinModule('node:fs');
  const { getPriority, setPriority, constants } = process.getBuiltinModule('node:os');
  // On Linux a priority applies to a single thread. If all processors are busy, the threads that send tokens run before
  // this one.
  try {
    const { PRIORITY_BELOW_NORMAL, PRIORITY_LOW } = constants.priority;
    const thread = Number(readlinkSync('/proc/thread-self').split('/').at(-1));
    setPriority(thread, Math.min(getPriority() + PRIORITY_BELOW_NORMAL, PRIORITY_LOW));
  } catch {
    // On other systems the thread keeps its priority.
  }
  const { parentPort } = process.getBuiltinModule('node:worker_threads');
  const wholes = new Map<number, ReturnType<typeof createHash>>();
  type Work = { id: number; memory?: SharedArrayBuffer; length: number; whole: number; wanted: string; end: boolean };
  parentPort?.on('message', ({ id, memory, length, whole, wanted, end }: Work) => {
    let digest = '';
    if (memory !== undefined) {
      const bytes = new Uint8Array(memory, 0, length);
      digest = createHash('sha256').update(bytes).digest('hex');
      if (whole > 0 && (wanted === '' || wanted === digest)) {
        const hash = wholes.get(whole) ?? createHash('sha256');
        wholes.set(whole, hash.update(bytes));
      }
    }
    if (end) {
      digest = (wholes.get(whole) ?? createHash('sha256')).digest('hex');
      wholes.delete(whole);
    }
    parentPort?.postMessage({ id, digest });
  });
}

interface Work {
  memory?: SharedArrayBuffer;
  length: number;
  whole: number;
  wanted: string;
  end: boolean;
}

const doneSchema = z.object({ id: z.number(), digest: z.string() });

export class Sha256Thread {
  #worker: Worker | undefined;
  /** Pieces that wait for their digest: at most two for each pull, which fetches one blob at a time. */
  readonly #waiting = new Map<number, PromiseWithResolvers<string>>();
  #next = 1;

  /**
   * Returns the hex digest of the first `length` bytes.
   * @param whole number (from `begin`) of a blob's digest to which the bytes are added; 0: none
   * @param wanted if not empty, the bytes are added only if their digest equals this
   */
  piece(memory: SharedArrayBuffer, length: number, whole: number, wanted = ''): Promise<string> {
    return this.#ask({ memory, length, whole, wanted, end: false });
  }

  /** Begins the digest of a blob. Returns its number, with which `piece` must be called for all pieces in order. */
  begin(): number {
    return this.#next++;
  }

  /** Ends the digest of a blob and returns it. Must also be called if the digest is not needed, to free its memory. */
  end(whole: number): Promise<string> {
    return this.#ask({ length: 0, whole, wanted: '', end: true });
  }

  #ask(work: Work): Promise<string> {
    const worker = this.#worker ?? this.#start();
    const id = this.#next++;
    const waiting = Promise.withResolvers<string>();
    this.#waiting.set(id, waiting);
    worker.ref();
    worker.postMessage({ id, ...work });
    return waiting.promise;
  }

  #start(): Worker {
    const worker = new Worker(`(${hashThread.toString()})()`, { eval: true });
    this.#worker = worker;
    worker.on('message', (message: unknown) => {
      const { id, digest } = doneSchema.parse(message);
      this.#waiting.get(id)?.resolve(digest);
      this.#waiting.delete(id);
      if (this.#waiting.size === 0) worker.unref();
    });
    worker.on('error', (error) => this.#fail(error));
    worker.on('exit', () => this.#fail(new Error('the thread that computes digests has ended')));
    worker.unref();
    return worker;
  }

  #fail(error: unknown): void {
    this.#worker = undefined;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }
}
