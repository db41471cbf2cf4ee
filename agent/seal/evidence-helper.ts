/**
 * Runs the site's program that reports on a confidential VM. A report needs rights that an agent does not have
 * (configfs-tsm belongs to root), so the site installs a small program for it. The agent only passes the report on;
 * clients judge it.
 */
import { execFile } from 'node:child_process';
import { EVIDENCE_MAX_BYTES } from '../../shared/seal/attestation-evidence.ts';

/**
 * Time limit of one report. A report on a processor takes some milliseconds, and a report on eight GPUs takes some
 * seconds.
 */
const HELPER_MS = 30_000;
/** Maximum number of waiting requests for a report. Each of them starts a process. */
const WAITING_MAX = 16;

export class EvidenceHelper {
  readonly kinds: readonly string[];
  readonly #file: string;
  #waiting = 0;
  #last: Promise<unknown> = Promise.resolve();

  /** @param file a program that takes the 64 bytes of `report_data` in hex as its only argument, and prints evidence */
  constructor(file: string, kinds: readonly string[]) {
    this.#file = file;
    this.kinds = kinds;
  }

  /**
   * Runs the program, at most once at a time. Undefined if too many requests wait, or if the program fails; the client
   * gets the same error in both cases.
   */
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
