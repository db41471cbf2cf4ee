import { setTimeout as delay } from 'node:timers/promises';
import { TokenBucket } from '../../shared/collections/token-bucket.ts';

/** Maximum wait for a place. After it, another sender is the better choice. */
const WAIT_MS = 5_000;
/**
 * Maximum number of new transfers that wait, per place. It is also the maximum number of transfers between two turns,
 * per place. One node may have as many waiting transfers as there are places.
 */
const WAITING_PER_PLACE = 4;
/** Interval at which readers' rates are checked while others wait. */
const JUDGE_MS = 250;
/**
 * A piece that takes a reader more turns than this counts as slow, because it delays others: 16 MiB in half a minute.
 */
const PIECE_TURNS = 3;
/** A burst may have as many bytes as the rate limit allows in this many seconds, and at least one chunk. */
const BURST_S = 0.1;

export interface ReaderLimits {
  /** Minimum rate of a reader. It equals the minimum rate of senders in `PULL_LIMITS`. */
  leastBytesPerS: number;
  /**
   * How long a reader may take nothing. Each byte that it takes extends this time (like `MinRate` of Apache's
   * mod_reqtimeout).
   */
  patienceMs: number;
  /** Maximum number of slow transfers that continue without a place. At most one per node. */
  trickles: number;
  /**
   * How long a transfer keeps its place while others wait. If three transfers share two places, the waiting one gets
   * its turn before its reader gives up.
   */
  turnMs: number;
}

const READER_LIMITS: ReaderLimits = { leastBytesPerS: 64 * 1024, patienceMs: 10_000, trickles: 16, turnMs: 10_000 };

/** One transfer of a blob to another node. */
export class Transfer {
  readonly session: string;
  readonly #limits: ReaderLimits;
  readonly #onEnd: () => void;
  #patienceMs: number;
  /** When this node began to wait for the reader; undefined if it does not wait. */
  #since: number | undefined;
  /**
   * True if the reader was too slow while others waited. The transfer then has lost its place, and is sent at half of
   * the minimum rate.
   */
  trickles = false;
  #turnAt = performance.now();
  /** Milliseconds that the reader has taken for the current piece. */
  #pieceMs = 0;

  constructor(session: string, limits: ReaderLimits, onEnd: () => void) {
    this.session = session;
    this.#limits = limits;
    this.#patienceMs = limits.patienceMs;
    this.#onEnd = onEnd;
  }

  beginTurn(): void {
    this.#turnAt = performance.now();
  }

  beginPiece(): void {
    this.#pieceMs = 0;
  }

  get turnIsOver(): boolean {
    return performance.now() - this.#turnAt > this.#limits.turnMs;
  }

  /**
   * Call for each write: charges the time that the reader takes.
   * @param taken resolves when the reader has taken `bytes` bytes
   */
  async taking(bytes: number, taken: Promise<void>): Promise<void> {
    const { patienceMs, leastBytesPerS } = this.#limits;
    const since = performance.now();
    this.#since = since;
    await taken;
    this.#since = undefined;
    const tookMs = performance.now() - since;
    this.#pieceMs += tookMs;
    this.#patienceMs = Math.min(patienceMs, this.#patienceMs - tookMs + (bytes / leastBytesPerS) * 1000);
    if (this.trickles) await delay((2000 * bytes) / leastBytesPerS);
  }

  get isSlow(): boolean {
    if (this.#since === undefined) return false;
    const waitsMs = performance.now() - this.#since;
    return waitsMs > this.#patienceMs || this.#pieceMs + waitsMs > PIECE_TURNS * this.#limits.turnMs;
  }

  end(): void {
    this.#onEnd();
  }
}

interface Waiting {
  session: string;
  go(): void;
}

/**
 * Limits transfers to other nodes to N at a time, and their total rate. A slow reader loses its place to a waiting one,
 * and continues without a place. So a slow link finishes eventually, and N readers with a few bytes a second do not
 * block others. If more than N readers are fast enough, they take turns.
 */
export class Uploads {
  readonly max: number;
  readonly #rate: number | undefined;
  readonly #bucket: TokenBucket | undefined;
  readonly #burst: number;
  readonly #limits: ReaderLimits;
  /** Transfers with a place. At most `max`. */
  readonly #placed = new Set<Transfer>();
  /** Slow transfers without a place. At most `limits.trickles`. */
  readonly #trickling = new Set<Transfer>();
  /** Highest number of concurrent transfers so far. */
  peak = 0;
  bytes = 0;
  /**
   * New transfers that wait, oldest first, but transfers of nodes without a place come before those of nodes that have
   * one. At most WAITING_PER_PLACE × max.
   */
  readonly #waiting: Waiting[] = [];
  /** Transfers between two turns, with the promise of their next turn. At most WAITING_PER_PLACE × max. */
  readonly #between = new Map<Transfer, PromiseWithResolvers<void>>();
  #turn: Promise<void> = Promise.resolve();

  constructor(
    max: number,
    bytesPerS: number | undefined,
    chunkBytes: number,
    limits: ReaderLimits | undefined = READER_LIMITS,
  ) {
    this.max = max;
    this.#rate = bytesPerS;
    this.#limits = limits;
    this.#burst = Math.max(chunkBytes, (bytesPerS ?? 0) * BURST_S);
    this.#bucket = bytesPerS === undefined ? undefined : new TokenBucket(bytesPerS, this.#burst, performance.now());
  }

  get active(): number {
    return this.#placed.size;
  }

  get trickling(): number {
    return this.#trickling.size;
  }

  /**
   * Takes a place until `release`. Undefined if no place became free in time. @param onEnd called when the transfer
   * must end
   */
  async take(session: string, onEnd: () => void): Promise<Transfer | undefined> {
    return this.#placed.size < this.max ? this.#place(session, onEnd) : this.#wait(session, onEnd);
  }

  #place(session: string, onEnd: () => void): Transfer {
    const transfer = new Transfer(session, this.#limits, onEnd);
    this.#hold(transfer);
    return transfer;
  }

  #hold(transfer: Transfer): void {
    transfer.beginTurn();
    this.#placed.add(transfer);
    this.peak = Math.max(this.peak, this.#placed.size);
  }

  /**
   * Call before each piece. A transfer whose turn is over gives its place to a waiting one. False if its next turn does
   * not begin within `ms`.
   */
  async mayGoOn(transfer: Transfer, ms: number): Promise<boolean> {
    if (this.#placed.has(transfer) && transfer.turnIsOver && this.#othersWait()) {
      // If this many transfers wait between turns, the reader finds another sender sooner.
      if (this.#between.size >= WAITING_PER_PLACE * this.max) transfer.end();
      else this.#between.set(transfer, Promise.withResolvers());
      this.#free(transfer);
    }
    const next = this.#between.get(transfer);
    if (next === undefined) return true;
    this.#displaceSlow();
    const late = setTimeout(next.resolve, ms);
    await next.promise;
    clearTimeout(late);
    if (!this.#between.has(transfer)) return true;
    this.#between.set(transfer, Promise.withResolvers());
    return false;
  }

  /** True if a node without a place waits. */
  #othersWait(): boolean {
    const served = this.#served();
    return [...this.#waiting, ...this.#between.keys()].some(({ session }) => !served.has(session));
  }

  #served(): Set<string> {
    return new Set([...this.#placed].map(({ session }) => session));
  }

  #wait(session: string, onEnd: () => void): Promise<Transfer | undefined> {
    const own = this.#waiting.filter((one) => one.session === session).length;
    if (own >= this.max || this.#waiting.length >= WAITING_PER_PLACE * this.max) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const end = (transfer?: Transfer) => {
        clearTimeout(timer);
        clearInterval(judge);
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        resolve(transfer);
      };
      const waiting: Waiting = { session, go: () => end(this.#place(session, onEnd)) };
      const timer = setTimeout(end, WAIT_MS);
      const judge = setInterval(() => this.#displaceSlow(), JUDGE_MS);
      this.#waiting.push(waiting);
      this.#displaceSlow();
    });
  }

  #displaceSlow(): void {
    const slow = [...this.#placed].find(({ isSlow }) => isSlow);
    if (slow === undefined) return;
    const has = [...this.#trickling].some(({ session }) => session === slow.session);
    if (has || this.#trickling.size >= this.#limits.trickles) slow.end();
    else this.#trickling.add(slow);
    slow.trickles = true;
    this.#free(slow);
  }

  release(transfer: Transfer): void {
    this.#trickling.delete(transfer);
    this.#between.delete(transfer);
    this.#free(transfer);
  }

  #free(transfer: Transfer): void {
    if (!this.#placed.delete(transfer)) return;
    const served = this.#served();
    const isNew = ({ session }: { session: string }) => !served.has(session);
    // No await here, because meanwhile another request would take the same place. New transfers come first, because
    // they accept a shorter wait.
    const between = [...this.#between.keys()];
    const next = this.#waiting.find(isNew) ?? between.find(isNew) ?? this.#waiting[0] ?? between[0];
    if (!(next instanceof Transfer)) return next?.go();
    this.#between.get(next)?.resolve();
    this.#between.delete(next);
    this.#hold(next);
  }

  /** Resolves when this many bytes may be sent. */
  async pace(bytes: number): Promise<void> {
    this.bytes += bytes;
    const bucket = this.#bucket;
    if (bucket === undefined || this.#rate === undefined) return;
    // Waits run one after the other, because two transfers that wait for the same tokens would both take them.
    this.#turn = this.#turn.then(async () => {
      while (!bucket.take(bytes, performance.now())) await delay(Math.max(1, bucket.waitMs(bytes)));
    });
    await this.#turn;
  }
}
