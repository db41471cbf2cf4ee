/**
 * Refused orders, kept over restarts. A service manager starts a gateway without a certificate again each second. The
 * authority allows few failures in an hour, and would refuse the name when the fault is fixed.
 */
import { existsSync, rmSync } from 'node:fs';
import * as z from 'zod';
import { readBoundedFile } from '../../../../node/bounded-file.ts';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { AcmeError } from './acme-error.ts';
import { retryMs } from './renewal-time.ts';

/** Orders in a row that a restarted gateway makes without a wait. Let's Encrypt allows five failures in an hour. */
const AT_ONCE_MAX = 3;
const FILE_MAX_BYTES = 4_096;
const HOUR_MS = 60 * 60_000;

const refusalsSchema = z.object({
  count: z.int().min(0),
  /** Time of the last refusal; milliseconds since the epoch. */
  at: z.number(),
  /** Wait that the authority asked for. */
  retryAfterMs: z.number().min(0),
});
type Refusals = z.infer<typeof refusalsSchema>;
const NONE: Refusals = { count: 0, at: 0, retryAfterMs: 0 };

export class OrderRefusals {
  readonly file: string;

  constructor(file: string) {
    this.file = file;
  }

  /** Milliseconds until a gateway without a certificate may order one. */
  startWaitMs(now: number): number {
    const { count, at, retryAfterMs } = this.#read(now);
    return count <= AT_ONCE_MAX ? 0 : Math.max(0, at + Math.max(HOUR_MS, retryAfterMs) - now);
  }

  /** Milliseconds until a gateway with a certificate may order its successor. */
  renewalWaitMs(now: number): number {
    const { count, at, retryAfterMs } = this.#read(now);
    return count === 0 ? 0 : Math.max(0, at + Math.max(retryMs(count), retryAfterMs) - now);
  }

  /**
   * Counts an order as refused until `end` or `clear` is called. A crash or a full disk then uses up few orders.
   * Returns what `end` needs.
   */
  begin(now: number): Refusals {
    const before = this.#read(now);
    this.#write({ count: before.count + 1, at: now, retryAfterMs: 0 });
    return before;
  }

  /** Ends an order that failed. An authority that could not be asked has refused nothing. */
  end(before: Refusals, error: unknown, now: number): void {
    if (!(error instanceof AcmeError)) return;
    if (error.problem === undefined) this.#write(before);
    else this.#write({ count: before.count + 1, at: now, retryAfterMs: error.retryAfterMs });
  }

  clear(): void {
    rmSync(this.file, { force: true });
  }

  #write(refusals: Refusals): void {
    writePrivateFile(this.file, JSON.stringify(refusals));
  }

  #read(now: number): Refusals {
    const stored = existsSync(this.file) ? tryParseJson(readBoundedFile(this.file, FILE_MAX_BYTES)) : undefined;
    const read = refusalsSchema.safeParse(stored).data ?? NONE;
    // A clock that was set back must not make the wait longer.
    return { ...read, at: Math.min(read.at, now) };
  }
}
