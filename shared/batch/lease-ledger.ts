import { CHUNK_LINES, type ChunkRange } from './batch-input-check.ts';
import { type Bitmap, emptyBitmap, hasBit, setBit } from './bitmap.ts';
import { isSuspect, runsSuspect, type SuspectLine, suspectLines } from './crash-suspects.ts';
import { freeCount, haveCommonLine, type LeasedPart, openCount, openOf, partOf } from './lease-coverage.ts';
import { LeaseDurations } from './lease-durations.ts';

/** A node's right to run open lines of a chunk until the lease ends. */
interface Lease extends LeasedPart {
  /** Number of this lease within its chunk. Later leases have higher numbers. */
  epoch: number;
  node: string;
  /** Lines that the node runs, without those that it returned. Absent in leases that an earlier version stored. */
  size?: number;
  grantedMs: number;
  expiresMs: number;
  /** The value of `expiresMs` that was last stored. */
  storedMs?: number;
  /** When results of the lease last arrived; absent: never. */
  progressMs?: number;
}

/** A chunk in the form that is stored. */
export interface ChunkState extends ChunkRange {
  id: number;
  /** Lines that have a result: a success or an error. */
  done: Bitmap;
  /** Number of engine failures per line. */
  failures: Record<number, number>;
  /** Number of leases that ended with the engine of their node. */
  crashes?: number;
  /** The epoch of the newest lease; 0 before the first lease. */
  epoch: number;
  /** Current leases. A line is in one of them, or in two while the first node is late. */
  leases: Lease[];
  /** The node at which lines failed last. It does not get the chunk before `untilMs`. */
  avoid?: { node: string; untilMs: number };
  /**
   * The current leases, and the newest HOLDERS_MAX of those that ended with open lines. Only the nodes of these leases
   * may commit results.
   */
  holders: { epoch: number; node: string }[];
}

/** A lease as its node identifies it. */
export interface LeaseRef {
  node: string;
  chunk: number;
  epoch: number;
}

/** A lease that was just granted. */
export interface Grant {
  chunk: ChunkState;
  lease: Lease;
  /** The lines of the lease, which have no result, by their index in the chunk. */
  open: number[];
}

/** Number of engine failures after which a line gets an error as its result. Evictions do not count. */
export const ENGINE_FAILURES_MAX = 3;
/** A lease is late if it has taken this many times the usual duration of its lines. */
const LATE_FACTOR = 2;
/**
 * Number of the most recent ended leases of a chunk for which results are accepted. A chunk may be divided among as
 * many nodes as it has lines, and a gateway that was cut off from all of them gets their results later.
 */
const HOLDERS_MAX = CHUNK_LINES;
/** How long a chunk is not granted to the node at which one of its lines failed. */
const AVOID_MS = 10_000;
/**
 * Leases are checked every 5 s. If two checks are this far apart, this process was stopped and has not read the
 * renewals that nodes sent.
 */
const STALL_GAP_MS = 15_000;
/** Additional time to renew a lease that expired while this process was stopped. Nodes renew every 10 s. */
const EXCUSED_MS = 15_000;
/**
 * A lease that has brought no result for this long ends, even if it is renewed. This is twice the time limit of one
 * line at an engine without counters.
 */
const NO_RESULT_MAX_MS = 2 * 60 * 60_000;

/**
 * Leases and results of one batch. Each line runs at least once, and its first result counts. A lease names the lines
 * that have no result, and a commit marks lines as done. Results of an ended lease are accepted for lines that have no
 * result yet, because they are as valid as any. Pure: times are arguments. A changed chunk stays in `changed` until the
 * caller has stored it.
 */
export class LeaseLedger {
  readonly #chunks: ChunkState[];
  /** Chunks to store in the same transaction as the results. */
  readonly changed = new Set<ChunkState>();
  readonly #durations = new LeaseDurations();
  #open: number;
  #requeued = 0;
  /** When `expire` was last called. */
  #checkedMs: number | undefined;

  constructor(chunks: readonly ChunkState[]) {
    this.#chunks = [...chunks];
    this.#open = chunks.reduce((sum, chunk) => sum + openCount(chunk), 0);
  }

  static chunksOf(ranges: readonly ChunkRange[]): ChunkState[] {
    return ranges.map((range, id) => ({
      ...range,
      id,
      done: emptyBitmap(range.lines),
      failures: {},
      epoch: 0,
      leases: [],
      holders: [],
    }));
  }

  /** Adds chunks of lines that were waiting for results of other batches. */
  append(ranges: readonly ChunkRange[]): ChunkState[] {
    const chunks = LeaseLedger.chunksOf(ranges).map((chunk, i) => ({ ...chunk, id: this.#chunks.length + i }));
    this.#chunks.push(...chunks);
    for (const chunk of chunks) {
      this.#open += chunk.lines;
      this.changed.add(chunk);
    }
    return chunks;
  }

  /** Marks all lines of a chunk as done that no node ran, because the caller stores their results. */
  settle(chunk: ChunkState): void {
    this.#open -= openCount(chunk);
    for (let line = 0; line < chunk.lines; line++) setBit(chunk.done, line);
    this.changed.add(chunk);
  }

  /** All chunks, in the stored form. */
  get chunks(): readonly ChunkState[] {
    return this.#chunks;
  }

  /** Number of lines without a result. */
  get open(): number {
    return this.#open;
  }

  /** Number of lines that were leased, had no result when the lease ended, and became open again. */
  get requeued(): number {
    return this.#requeued;
  }

  /** Number of open lines that no node has leased. */
  get waiting(): number {
    return this.#chunks.reduce((sum, chunk) => sum + freeCount(chunk), 0);
  }

  /** Number of open lines that nodes have leased. A line with two leases counts once. */
  get leased(): number {
    return this.#open - this.waiting;
  }

  get leases(): readonly { chunk: ChunkState; lease: Lease }[] {
    return this.#chunks.flatMap((chunk) => chunk.leases.map((lease) => ({ chunk, lease })));
  }

  /**
   * The next chunk for a node. First come chunks with the prefix on which the node last worked, then all others in the
   * order of the file. If there is none, the node gets the chunk that is most overdue at another node.
   * @param allowed returns true if the node meets the requirements with this index
   * @param most maximum number of lines
   */
  grant(
    node: string,
    nowMs: number,
    ttlMs: number,
    allowed: (demands: number) => boolean,
    prefix?: number,
    most = Number.POSITIVE_INFINITY,
  ): Grant | undefined {
    let found: ChunkState | undefined;
    const isBusy = runsSuspect(this.#chunks, node);
    for (const chunk of this.#chunks) {
      if (!allowed(chunk.demands) || freeCount(chunk) === 0) continue;
      if (chunk.avoid?.node === node && nowMs < chunk.avoid.untilMs) continue;
      if (isBusy && isSuspect(chunk)) continue;
      found ??= chunk;
      if (prefix === undefined || chunk.prefix === prefix) {
        found = chunk;
        break;
      }
    }
    const late = found === undefined ? this.#latest(node, nowMs, allowed) : undefined;
    const chunk = found ?? late?.chunk;
    if (chunk === undefined) return undefined;
    const lines = late === undefined ? partOf(chunk, isSuspect(chunk) ? 1 : most) : late.lease.lines;
    chunk.epoch += 1;
    const { epoch } = chunk;
    const open = openOf(chunk, { ...(lines && { lines }) });
    const times = { grantedMs: nowMs, expiresMs: nowMs + ttlMs };
    const lease: Lease = { epoch, node, size: open.length, ...times, ...(lines && { lines }) };
    chunk.leases.push(lease);
    chunk.holders = holdersOf(chunk, { epoch, node });
    this.changed.add(chunk);
    return { chunk, lease, open };
  }

  /**
   * Renews a lease. The new end is stored only if it is later than the stored end by half of a lease's life. So after a
   * restart the lease of a working node is still valid.
   * @returns false if the lease has ended: the node must not start its remaining lines
   */
  renew(ref: LeaseRef, nowMs: number, ttlMs: number): boolean {
    const lease = this.#leaseOf(ref);
    const chunk = this.#chunks[ref.chunk];
    if (lease === undefined || chunk === undefined) return false;
    if (nowMs - (lease.progressMs ?? lease.grantedMs) >= NO_RESULT_MAX_MS) {
      this.#end(chunk, (one) => one === lease);
      return false;
    }
    lease.expiresMs = nowMs + ttlMs;
    if (lease.expiresMs - (lease.storedMs ?? lease.grantedMs + ttlMs) >= ttlMs / 2) {
      lease.storedMs = lease.expiresMs;
      this.changed.add(chunk);
    }
    return true;
  }

  /**
   * Accepts results for lines that have none.
   * @returns the lines whose results must be stored. The caller drops all other results and does not bill them: these
   * lines already had a result, or the node never held this lease.
   */
  commit({ node, chunk: id, epoch }: LeaseRef, lines: readonly number[], nowMs: number): number[] {
    const chunk = this.#chunks[id];
    if (!chunk?.holders.some((one) => one.epoch === epoch && one.node === node)) return [];
    const taken: number[] = [];
    for (const line of lines) {
      if (!Number.isInteger(line) || line < 0 || line >= chunk.lines || hasBit(chunk.done, line)) continue;
      setBit(chunk.done, line);
      delete chunk.failures[line];
      taken.push(line);
    }
    this.#open -= taken.length;
    if (taken.length > 0) {
      this.changed.add(chunk);
      const lease = chunk.leases.find((one) => one.epoch === epoch && one.node === node);
      if (lease !== undefined) lease.progressMs = nowMs;
    }
    this.#finish(chunk, epoch, nowMs);
    return taken;
  }

  /**
   * Counts an engine failure of a line of this lease.
   * @returns 'again' if the line must be retried; 'exhausted' if the caller must commit an error as its result; 'known'
   * if the line has a result or the lease has ended. Ended leases do not count, so that they cannot use up a line's
   * retries.
   */
  engineFailed(ref: LeaseRef, line: number): 'again' | 'exhausted' | 'known' {
    const chunk = this.#chunks[ref.chunk];
    if (chunk === undefined || line < 0 || line >= chunk.lines || hasBit(chunk.done, line)) return 'known';
    if (this.#leaseOf(ref) === undefined) return 'known';
    const failures = (chunk.failures[line] ?? 0) + 1;
    chunk.failures[line] = failures;
    this.changed.add(chunk);
    return failures >= ENGINE_FAILURES_MAX ? 'exhausted' : 'again';
  }

  /** Call if lines failed at the node of this lease and another node must retry them. */
  avoid({ node, chunk: id }: LeaseRef, nowMs: number): void {
    const chunk = this.#chunks[id];
    if (chunk === undefined) return;
    chunk.avoid = { node, untilMs: nowMs + AVOID_MS };
    this.changed.add(chunk);
  }

  /**
   * Ends a lease that its node returns because it drains or was preempted. This does not count as a failure of its
   * lines.
   */
  release({ node, chunk: id, epoch }: LeaseRef): boolean {
    const chunk = this.#chunks[id];
    return chunk !== undefined && this.#end(chunk, (lease) => lease.epoch === epoch && lease.node === node) > 0;
  }

  /**
   * Takes lines out of a lease that its node returns before they begin, because other nodes are idle.
   * @returns the number of lines that are free now
   */
  giveBack(ref: LeaseRef, lines: readonly number[]): number {
    const lease = this.#leaseOf(ref);
    const chunk = this.#chunks[ref.chunk];
    if (lease === undefined || chunk === undefined) return 0;
    const before = freeCount(chunk);
    const returned = new Set(lines);
    const open = openOf(chunk, lease);
    lease.lines = open.filter((line) => !returned.has(line));
    if (lease.size !== undefined) lease.size -= open.length - lease.lines.length;
    if (lease.lines.length === 0) chunk.leases = chunk.leases.filter((one) => one !== lease);
    this.changed.add(chunk);
    return freeCount(chunk) - before;
  }

  /** Ends the leases of nodes that are gone or no longer allowed. @param crashed true if the node's engine ended */
  releaseNode(node: string, crashed = false): void {
    for (const chunk of this.#chunks)
      if (this.#end(chunk, (lease) => lease.node === node) > 0 && crashed) chunk.crashes = (chunk.crashes ?? 0) + 1;
  }

  /** Lines for which the caller must report a failure before it releases a node after the end of its engine. */
  suspectLines(node: string): SuspectLine[] {
    return suspectLines(this.#chunks, node);
  }

  /** Ends expired leases. @returns when the next lease expires; undefined if there is none */
  expire(nowMs: number): number | undefined {
    const checkedMs = this.#checkedMs ?? nowMs;
    this.#checkedMs = nowMs;
    const wasSuspended = nowMs - checkedMs >= STALL_GAP_MS;
    let next: number | undefined;
    for (const chunk of this.#chunks) {
      if (chunk.leases.length === 0) continue;
      for (const lease of wasSuspended ? chunk.leases : [])
        if (lease.expiresMs > checkedMs) lease.expiresMs = Math.max(lease.expiresMs, nowMs + EXCUSED_MS);
      this.#end(chunk, ({ expiresMs }) => expiresMs <= nowMs);
      for (const { expiresMs } of chunk.leases) next = next === undefined ? expiresMs : Math.min(next, expiresMs);
    }
    return next;
  }

  /** True if a line of this chunk has no result. */
  isOpen(id: number): boolean {
    const chunk = this.#chunks[id];
    return chunk !== undefined && openCount(chunk) > 0;
  }

  /** True if a chunk is late at its node, so that another node may run it too. */
  isLate(nowMs: number): boolean {
    return this.#latest('', nowMs, () => true) !== undefined;
  }

  #leaseOf({ node, chunk, epoch }: LeaseRef): Lease | undefined {
    return this.#chunks[chunk]?.leases.find((lease) => lease.epoch === epoch && lease.node === node);
  }

  #end(chunk: ChunkState, ended: (lease: Lease) => boolean): number {
    const kept = chunk.leases.filter((lease) => !ended(lease));
    const gone = chunk.leases.length - kept.length;
    if (gone === 0) return 0;
    const before = freeCount(chunk);
    chunk.leases = kept;
    this.#requeued += freeCount(chunk) - before;
    this.changed.add(chunk);
    return gone;
  }

  /** Ends the leases without open lines. */
  #finish(chunk: ChunkState, epoch: number, nowMs: number): void {
    const kept = chunk.leases.filter((one) => openOf(chunk, one).length > 0);
    if (kept.length === chunk.leases.length) return;
    const lease = chunk.leases.find((one) => one.epoch === epoch);
    if (lease !== undefined && !kept.includes(lease))
      this.#durations.add(nowMs - lease.grantedMs, sizeOf(chunk, lease));
    const finished = new Set(chunk.leases.filter((one) => !kept.includes(one)).map((one) => one.epoch));
    chunk.holders = chunk.holders.filter((one) => !finished.has(one.epoch));
    chunk.leases = kept;
    this.changed.add(chunk);
  }

  #latest(node: string, nowMs: number, allowed: (demands: number) => boolean): LateLease | undefined {
    const usualMs = this.#durations.estimate();
    if (usualMs === undefined) return undefined;
    let latest: LateLease | undefined;
    // A line that may end its engine runs on one node at a time.
    for (const chunk of this.#chunks.filter((one) => !isSuspect(one)))
      for (const lease of chunk.leases) {
        const lateMs = LATE_FACTOR * usualMs(sizeOf(chunk, lease));
        if (lease.node === node || !allowed(chunk.demands) || nowMs - lease.grantedMs < lateMs) continue;
        // A third node would waste more than it saves.
        if (chunk.leases.some((one) => one !== lease && haveCommonLine(chunk, one, lease))) continue;
        if (latest === undefined || lease.grantedMs < latest.lease.grantedMs) latest = { chunk, lease };
      }
    return latest;
  }
}

interface LateLease {
  chunk: ChunkState;
  lease: Lease;
}

function sizeOf(chunk: ChunkState, { size, lines }: Lease): number {
  return size ?? lines?.length ?? chunk.lines;
}

function holdersOf({ leases, holders }: ChunkState, added: ChunkState['holders'][number]): ChunkState['holders'] {
  const current = new Set(leases.map(({ epoch }) => epoch));
  const ended = holders.filter(({ epoch }) => !current.has(epoch)).slice(-HOLDERS_MAX);
  return [...ended, ...holders.filter(({ epoch }) => current.has(epoch)), added];
}
