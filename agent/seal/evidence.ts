/**
 * The site's own helper that reports on a confidential VM. A report wants rights that an agent does not have (configfs-tsm is root's), so that
 * the site installs a small program for it; what the program says is passed on, and judged by clients alone.
 */
import { execFile } from 'node:child_process';
import { EVIDENCE_MAX_BYTES } from '../../shared/seal/evidence.ts';

/** Of one report: a processor's takes some ms, one of eight GPUs some seconds. */
const HELPER_MS = 30_000;
/** Clients that wait while one is served. Each costs a process. */
const WAITING_MAX = 16;

export class EvidenceHelper {
  readonly kinds: readonly string[];
  readonly #file: string;
  #waiting = 0;
  #last: Promise<unknown> = Promise.resolve();

  /** `file`: a program that takes the 64 bytes of `report_data` as its only argument, in hex, and prints evidence. */
  constructor(file: string, kinds: readonly string[]) {
    this.#file = file;
    this.kinds = kinds;
  }

  /** One at a time. Undefined where too many wait, or the helper fails: why is the node's alone. */
  report(data: Uint8Array): Promise<Buffer | undefined> {
    if (this.#waiting >= WAITING_MAX) return Promise.resolve(undefined);
    this.#waiting++;
    const report = this.#last.then(() => this.#run(data)).finally(() => this.#waiting--);
    this.#last = report;
    return report;
  }

  #run(data: Uint8Array): Promise<Buffer | undefined> {
    const { promise, resolve } = Promise.withResolvers<Buffer | undefined>();
    const hex = Buffer.from(data).toString('hex');
    const options = { encoding: 'buffer', timeout: HELPER_MS, maxBuffer: EVIDENCE_MAX_BYTES, env: {} } as const;
    try {
      execFile(this.#file, [hex], options, (error, stdout) => resolve(error === null ? stdout : undefined));
    } catch {
      resolve(undefined);
    }
    return promise;
  }
}
