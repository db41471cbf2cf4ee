/**
 * SHA-256 in a thread of its own: the agent's one thread carries tokens, and a piece of 16 MiB takes it 10 to 40 ms. Buffers are shared
 * memory, so nothing is copied.
 */
import { Worker } from 'node:worker_threads';
import * as z from 'zod';

/** Runs in the thread. Its text is all that goes there: it may name nothing of this file. */
function hashThread(): void {
  const { createHash } = process.getBuiltinModule('node:crypto');
  const { readlinkSync } = process.getBuiltinModule('node:fs');
  const { setPriority, constants } = process.getBuiltinModule('node:os');
  // On Linux a priority is a thread's own: where processors are short, tokens come before digests.
  try {
    setPriority(Number(readlinkSync('/proc/thread-self').split('/').at(-1)), constants.priority.PRIORITY_BELOW_NORMAL);
  } catch {
    // another system: the thread stays as it is
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

export class Hasher {
  #worker: Worker | undefined;
  /** Pieces in work: at most two for each pull, which fetches one blob at a time. */
  readonly #waiting = new Map<number, PromiseWithResolvers<string>>();
  #next = 1;

  /**
   * Of the first `length` bytes, in hex. `whole`: adds them to that blob's digest, too; 0: to none. `wanted`: only where their digest is
   * this one.
   */
  piece(memory: SharedArrayBuffer, length: number, whole: number, wanted = ''): Promise<string> {
    return this.#ask({ memory, length, whole, wanted, end: false });
  }

  /** A number for the digest of a blob, to whose pieces `piece` is called in order. */
  begin(): number {
    return this.#next++;
  }

  /** The blob's digest, of all its pieces. Or forgets it. */
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
