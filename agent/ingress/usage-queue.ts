import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from '../../node/private-file.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { type IngressUsage, ingressUsageSchema, usageName } from '../../shared/usage/ingress-usage.ts';

/**
 * Maximum number of records that wait for a gateway: at one request per second, almost three hours. The oldest are
 * dropped.
 */
const USAGE_QUEUE_MAX = 10_000;

/** Delay of a write, so that several changes are written together. */
const WRITE_AFTER_MS = 1_000;

/** Maximum number of files of ended agents that are adopted. */
const ADOPTED_MAX = 64;

/**
 * Name of a file: `PID-HOST[@RANDOM].json`. When an older agent adopted a file, it appended `.` and its own process id.
 */
const FILE = /^([0-9]+)-([^/]+?)(?:@[0-9a-f]{8})?\.json(?:\.([0-9]+))?$/;

interface UsageQueueOptions {
  /** Directory in which records wait for the next agent; undefined: records are only in memory. */
  directory: string | undefined;
  max?: number;
  log(line: string): void;
}

/**
 * Usage records that no gateway has stored yet, bounded, in memory and in a file (0600) of this process. The next agent
 * of the same user on the same machine adopts the file of an agent that has ended.
 */
export class UsageQueue {
  readonly #options: UsageQueueOptions;
  readonly #max: number;
  /** Waiting records by attempt name, oldest first. */
  readonly #stored = new Map<string, IngressUsage>();
  readonly #file: string | undefined;
  #writing: NodeJS.Timeout | undefined;
  /** True if the loss of records was already logged. */
  #drops = false;
  #onAdded: () => void = () => {};

  constructor(options: UsageQueueOptions) {
    this.#options = options;
    this.#max = options.max ?? USAGE_QUEUE_MAX;
    this.#file = options.directory && ownFile(options.directory);
  }

  get size(): number {
    return this.#stored.size;
  }

  /** Calls `listener` after each added record. */
  watch(listener: () => void): void {
    this.#onAdded = listener;
  }

  /** Adopts the files of agents that have ended. */
  open(): void {
    const { directory, log } = this.#options;
    if (directory === undefined) return;
    try {
      const left = existsSync(directory) ? readdirSync(directory).filter((name) => isLeft(name)) : [];
      for (const name of left.slice(0, ADOPTED_MAX)) this.#adopt(join(directory, name));
    } catch (error) {
      log(`cannot read the usage records of previous agents: ${errorText(error)}`);
    }
  }

  /** If two agents start concurrently, only one of them can rename the file. */
  #adopt(path: string): void {
    const mine = ownFile(dirname(path));
    try {
      renameSync(path, mine);
    } catch {
      return;
    }
    const records = readRecords(mine);
    this.add(records);
    // Delete the adopted file only after its records are in this queue's file. If the write fails, the adopted file is
    // their only copy, and the next agent adopts it again.
    if (this.#write()) rmSync(mine, { force: true });
    if (records.length > 0) this.#options.log(`took over ${records.length} usage records of a previous agent`);
  }

  /**
   * Adds records. An exact record replaces the estimate of the same attempt. The estimate's time remains, and so does
   * its `course` if the exact record has none.
   */
  add(records: readonly IngressUsage[]): void {
    for (const record of records) {
      const name = usageName(record);
      const known = this.#stored.get(name);
      if (known === undefined) this.#stored.set(name, record);
      else if (known.estimated && !record.estimated) {
        const { course = known.course } = record;
        this.#stored.set(name, { ...record, at: known.at, ...(course !== undefined && { course }) });
      }
    }
    for (const name of this.#stored.keys()) {
      if (this.#stored.size <= this.#max) break;
      this.#stored.delete(name);
      if (!this.#drops)
        this.#options.log(`dropped usage records: no gateway has accepted any of the last ${this.#max}`);
      this.#drops = true;
    }
    if (records.length === 0) return;
    this.#writeSoon();
    this.#onAdded();
  }

  /** Returns at most `count` of the oldest records. They stay in the queue until `stored`. */
  oldest(count: number): IngressUsage[] {
    const oldest: IngressUsage[] = [];
    for (const record of this.#stored.values()) {
      if (oldest.length >= count) break;
      oldest.push(record);
    }
    return oldest;
  }

  /** Call when a gateway has stored these records. A record that became exact meanwhile stays. */
  stored(records: readonly IngressUsage[]): void {
    for (const record of records) {
      const name = usageName(record);
      if (this.#stored.get(name) === record) this.#stored.delete(name);
    }
    this.#writeSoon();
  }

  #writeSoon(): void {
    if (this.#file === undefined) return;
    this.#writing ??= setTimeout(() => this.#write(), WRITE_AFTER_MS).unref();
  }

  /**
   * Writes a new file and renames it, so that a reader never sees a part of it. False if the records are only in
   * memory.
   */
  #write(): boolean {
    clearTimeout(this.#writing);
    this.#writing = undefined;
    if (this.#file === undefined) return false;
    try {
      if (this.#stored.size === 0) {
        removeFile(this.#file);
        return true;
      }
      const text = JSON.stringify([...this.#stored.values()]);
      try {
        createAndWrite(this.#file, text);
      } catch (error) {
        // Another agent may have ended and removed the directory, which was empty.
        if (!isMissing(error)) throw error;
        createAndWrite(this.#file, text);
      }
      return true;
    } catch (error) {
      this.#options.log(`cannot save usage records; they are lost if this agent ends: ${errorText(error)}`);
      return false;
    }
  }

  /** Writes undelivered records to the file. Idempotent. */
  close(): void {
    this.#write();
  }
}

function createAndWrite(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writePrivateFile(file, text);
}

/** Also removes the directory, if no other agent has records there. */
function removeFile(file: string): void {
  rmSync(file, { force: true });
  try {
    rmdirSync(dirname(file));
  } catch {
    // It is not empty, or not there.
  }
}

const isMissing = (error: unknown) => error instanceof Error && 'code' in error && error.code === 'ENOENT';

/** The name contains random characters, because processes in two containers on one machine may have the same id. */
function ownFile(directory: string): string {
  return join(directory, `${process.pid}-${hostname()}@${randomBytes(4).toString('hex')}.json`);
}

/** True if the file belongs to an agent of this machine that has ended. */
function isLeft(name: string): boolean {
  const [, pid, host, heir] = FILE.exec(name) ?? [];
  if (pid === undefined || host !== hostname()) return false;
  const last = Number(heir ?? pid);
  return last !== process.pid && !existsSync(`/proc/${last}`);
}

function readRecords(path: string): IngressUsage[] {
  try {
    const items = z
      .array(z.unknown())
      .max(USAGE_QUEUE_MAX)
      .parse(JSON.parse(readFileSync(path, 'utf8')));
    return items.flatMap((item) => ingressUsageSchema.safeParse(item).data ?? []);
  } catch {
    return []; // the file was truncated when its agent was killed
  }
}
