/** Checks whether the gateway can write to its data directory: space, permissions, and existence. */

import { statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';

/** Interval of checks: a program that fills a disk does so in seconds. */
const EVERY_MS = 250;

/**
 * Minimum free bytes: what all databases of a busy gateway write within some seconds, including their write-ahead logs.
 */
const FREE_MIN_BYTES = 8 * 1024 * 1024;

/**
 * After a shortage, this much more space must be free before storage counts as available, because waiting data is
 * written immediately.
 */
const MARGIN_BYTES = 4 * 1024 * 1024;

/**
 * Interval at which an unchanged result is reported again, because a write of an object may have changed the recorded
 * health meanwhile.
 */
const RETRY_MS = 2_000;

/** File that each check overwrites. */
const PROBE_FILE = '.storage-probe';
const MIB = 1024 * 1024;

interface StorageProbeOptions {
  directory: string;
  /** Called with the problem; null: there is none. */
  tell(failure: string | null): void;
}

export class StorageProbe {
  readonly #options: StorageProbeOptions;
  #failure: string | null = null;
  #reportedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: StorageProbeOptions) {
    this.#options = options;
  }

  /** Checks now, and then periodically. Resolves when the first result was reported. */
  async start(): Promise<void> {
    await this.#poll();
  }

  async #poll(): Promise<void> {
    const failure = await this.#probe();
    const changed = (failure === null) !== (this.#failure === null);
    this.#failure = failure;
    const due = performance.now() - this.#reportedAt >= RETRY_MS;
    if (this.#closed) return;
    if (changed || due) {
      this.#reportedAt = performance.now();
      this.#options.tell(failure);
    }
    this.#timer = setTimeout(() => neverRejects(this.#poll()), EVERY_MS).unref();
  }

  async #probe(): Promise<string | null> {
    const { directory } = this.#options;
    try {
      const { bavail, bsize } = await statfs(directory);
      const free = bavail * bsize;
      const least = FREE_MIN_BYTES + (this.#failure === null ? 0 : MARGIN_BYTES);
      if (free < least)
        return `${directory} has ${(free / MIB).toFixed(1)} MiB left; at least ${(least / MIB).toFixed(0)} MiB are needed`;
      await writeFile(join(directory, PROBE_FILE), `${Date.now()}\n`);
      return null;
    } catch (error) {
      return `${directory}: ${errorText(error)}`;
    }
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }
}
