/**
 * Ensures that at most one factory uses a state directory, which may be on a file system that several login nodes
 * share. The holder rewrites the lease's file every few seconds. A waiting factory takes the lease if it has seen no
 * change for a while. It measures that by its own clock, so that clocks need not agree.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, unlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import * as z from 'zod';
import { createPrivateFile, writePrivateFile } from '../../node/private-file.ts';

export const HEARTBEAT_MS = 5_000;
/**
 * A waiting factory takes the lease after this time without a change of the file. NFS may hide writes for 30 s, which
 * must not cause a takeover.
 */
export const FACTORY_LEASE_MS = 60_000;
/**
 * How long the holder trusts its lease if it cannot read the file. It is shorter than FACTORY_LEASE_MS, after which a
 * factory that sees no change takes the lease.
 */
const UNREAD_MS = FACTORY_LEASE_MS / 2;
/** Wait after taking the lease. If two factories took it concurrently, the file then names only the last writer. */
const SETTLE_MS = 1_000;

const holderSchema = z.object({ host: z.string(), pid: z.number(), token: z.string(), beat: z.number() });
type LeaseHolder = z.infer<typeof holderSchema>;

type Sleep = (ms: number, signal: AbortSignal) => Promise<void>;

export class Lease {
  readonly #path: string;
  readonly #own: LeaseHolder;
  #now: () => number = Date.now;
  #heldAt = Number.NEGATIVE_INFINITY;

  constructor(directory: string, owner: { host?: string; pid?: number } = {}) {
    this.#path = join(directory, 'lease.json');
    this.#own = {
      host: owner.host ?? hostname(),
      pid: owner.pid ?? process.pid,
      token: randomBytes(16).toString('hex'),
      beat: 0,
    };
  }

  /**
   * Resolves to true when this factory holds the lease, or to false when `signal` ended the wait. `waiting` is called
   * once for each other holder.
   */
  async acquire(
    waiting: (holder: LeaseHolder) => void,
    sleep: Sleep,
    signal: AbortSignal,
    now: () => number,
  ): Promise<boolean> {
    this.#now = now;
    let seen = '';
    let since = now();
    let reportedHolder = '';
    while (!signal.aborted) {
      const { text, holder } = this.#read();
      if (text === undefined ? this.#create() : holder === undefined ? false : dead(holder)) {
        if (text !== undefined) this.#write();
        await sleep(SETTLE_MS, signal);
        if (this.held()) return true;
        continue;
      }
      if (text !== seen) [seen, since] = [text ?? '', now()];
      else if (now() - since >= FACTORY_LEASE_MS) {
        this.#write();
        continue;
      }
      if (this.held()) return true;
      if (holder !== undefined && holder.token !== reportedHolder) {
        reportedHolder = holder.token;
        waiting(holder);
      }
      await sleep(Math.min(HEARTBEAT_MS, 1_000), signal);
    }
    return false;
  }

  /**
   * True if the file still names this factory. If the file cannot be read, for example because its file system is
   * unavailable, the lease counts as held for another UNREAD_MS.
   */
  held(): boolean {
    try {
      const isOwn = this.#read().holder?.token === this.#own.token;
      if (isOwn) this.#heldAt = this.#now();
      return isOwn;
    } catch {
      return this.#now() - this.#heldAt < UNREAD_MS;
    }
  }

  /**
   * Writes the heartbeat. Returns false if another factory holds the lease; this factory must then stop.
   * @throws the error of the file system
   */
  beat(): boolean {
    if (!this.held()) return false;
    this.#own.beat += 1;
    this.#write();
    return true;
  }

  release(): void {
    if (this.held()) unlinkSync(this.#path);
  }

  #read(): { text?: string; holder?: LeaseHolder } {
    try {
      const text = readFileSync(this.#path, 'utf8').slice(0, 4_096);
      try {
        return { text, holder: holderSchema.parse(JSON.parse(text)) };
      } catch {
        return { text };
      }
    } catch (cause) {
      if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return {};
      throw cause;
    }
  }

  #write(): void {
    writePrivateFile(this.#path, `${JSON.stringify(this.#own)}\n`);
  }

  /** Creates the file. Fails if it exists, also on NFS, so only one of two factories succeeds. */
  #create(): boolean {
    try {
      createPrivateFile(this.#path, `${JSON.stringify(this.#own)}\n`);
      return true;
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
      throw error;
    }
  }
}

/** True if the holder's process has ended. Only a process on this machine can be checked. */
function dead({ host, pid }: LeaseHolder): boolean {
  if (host !== hostname()) return false;
  try {
    process.kill(pid, 0);
    return false;
  } catch (cause) {
    return cause instanceof Error && 'code' in cause && cause.code === 'ESRCH';
  }
}
