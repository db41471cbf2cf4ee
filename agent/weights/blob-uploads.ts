import { setTimeout as delay } from 'node:timers/promises';
import { TokenBucket } from '../../shared/collections/token-bucket.ts';

/** Maximum wait for a slot. After it, the reader should ask another sender. */
const WAIT_MS = 5_000;
/**
 * Per slot: maximum number of new transfers that wait, and also maximum number of transfers that wait between two
 * turns. One node may have as many waiting transfers as there are slots.
 */
const WAITING_PER_SLOT = 4;
/** Interval at which readers' rates are checked while others wait. */
const JUDGE_MS = 250;
/**
 * A piece that takes a reader more turns than this counts as slow, because it delays others. A piece of 16 MiB may take
 * half a minute.
 */
const PIECE_TURNS = 3;
/** A burst may have as many bytes as the rate limit allows in this many seconds, and at least one chunk. */
const BURST_S = 0.1;

export interface ReaderLimits {
  /** Minimum rate of a reader. It equals the minimum rate of senders in `PULL_LIMITS`. */
  leastBytesPerS: number;
  /**
   * How long a reader may take no byte. Each byte that it takes extends this time (like `MinRate` of Apache's
   * mod_reqtimeout).
   */
  patienceMs: number;
  /** Maximum number of slow transfers that continue without a slot. At most one per node. */
  throttledMax: number;
  /**
   * How long a transfer keeps its slot while others wait. It is short enough that, if three transfers share two slots,
   * the third gets its turn before its reader gives up.
   */
  turnMs: number;
}

const READER_LIMITS: ReaderLimits = { leastBytesPerS: 64 * 1024, patienceMs: 10_000, throttledMax: 16, turnMs: 10_000 };

/** One transfer of a blob to another node. */
export class Transfer {
  readonly session: string;
  readonly #limits: ReaderLimits;
  readonly #onEnd: () => void;
  #patienceMs: number;
  /** When this node began to wait for the reader to take the last write; undefined if nothing waits. */
  #since: number | undefined;
  /**
   * True if the reader was too slow while others waited. The transfer then has lost its slot, and is sent at half of
   * the minimum rate.
   */
  isThrottled = false;
  #turnAt = performance.now();
  /** Milliseconds that the reader needed so far for the current piece. */
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
   * Call for each write. Subtracts the time until `taken` resolves from the reader's remaining patience, and adds the
   * time that `bytes` may take at the minimum rate.
   * @param taken resolves when the reader has taken `bytes` bytes
   */
  async chargeWrite(bytes: number, taken: Promise<void>): Promise<void> {
    const { patienceMs, leastBytesPerS } = this.#limits;
    const since = performance.now();
    this.#since = since;
    await taken;
    this.#since = undefined;
    const tookMs = performance.now() - since;
    this.#pieceMs += tookMs;
    this.#patienceMs = Math.min(patienceMs, this.#patienceMs - tookMs + (bytes / leastBytesPerS) * 1000);
    if (this.isThrottled) await delay((2000 * bytes) / leastBytesPerS);
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
  start(): void;
}

/**
 * Allows N concurrent transfers to other nodes, and limits their total rate. If a transfer waits, a slow reader loses
 * its slot to it and continues without a slot. So a transfer over a slow link ends eventually, and N readers with a few
 * bytes a second do not block others. If more than N readers are fast enough, they take turns.
 */
export class Uploads {
  readonly max: number;
  readonly #rate: number | undefined;
  readonly #bucket: TokenBucket | undefined;
  readonly #burst: number;
  readonly #limits: ReaderLimits;
  /** Transfers with a slot. At most `max`. */
  readonly #active = new Set<Transfer>();
  /** Slow transfers without a slot. At most `limits.throttledMax`. */
  readonly #throttled = new Set<Transfer>();
  /** Highest number of concurrent transfers so far. */
  peak = 0;
  bytes = 0;
  /**
   * New transfers that wait, oldest first. At most WAITING_PER_SLOT × max. Transfers of nodes that have no slot start
   * first.
   */
  readonly #waiting: Waiting[] = [];
  /**
   * Transfers that wait for their next turn, each with a promise that resolves when it begins. At most WAITING_PER_SLOT
   * × max.
   */
  readonly #awaitingTurn = new Map<Transfer, PromiseWithResolvers<void>>();
  #paceQueue: Promise<void> = Promise.resolve();

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
    return this.#active.size;
  }

  get throttled(): number {
    return this.#throttled.size;
  }

  /**
   * Takes a slot until `release`. Undefined if no slot became free in time.
   * @param onEnd called when the transfer must end
   */
  async acquire(session: string, onEnd: () => void): Promise<Transfer | undefined> {
    return this.#active.size < this.max ? this.#startTransfer(session, onEnd) : this.#wait(session, onEnd);
  }

  #startTransfer(session: string, onEnd: () => void): Transfer {
    const transfer = new Transfer(session, this.#limits, onEnd);
    this.#takeSlot(transfer);
    return transfer;
  }

  #takeSlot(transfer: Transfer): void {
    transfer.beginTurn();
    this.#active.add(transfer);
    this.peak = Math.max(this.peak, this.#active.size);
  }

  /**
   * Call before each piece. A transfer whose turn is over gives its slot to a waiting one. False if its next turn does
   * not begin within `ms`.
   */
  async awaitTurn(transfer: Transfer, ms: number): Promise<boolean> {
    if (this.#active.has(transfer) && transfer.turnIsOver && this.#othersWait()) {
      // Too many transfers already wait between turns. End this one, because its reader then finds another sender
      // sooner.
      if (this.#awaitingTurn.size >= WAITING_PER_SLOT * this.max) transfer.end();
      else this.#awaitingTurn.set(transfer, Promise.withResolvers());
      this.#releaseSlot(transfer);
    }
    const next = this.#awaitingTurn.get(transfer);
    if (next === undefined) return true;
    this.#displaceSlow();
    const late = setTimeout(next.resolve, ms);
    await next.promise;
    clearTimeout(late);
    if (!this.#awaitingTurn.has(transfer)) return true;
    this.#awaitingTurn.set(transfer, Promise.withResolvers());
    return false;
  }

  /** True if a node without a slot waits. */
  #othersWait(): boolean {
    const served = this.#served();
    return [...this.#waiting, ...this.#awaitingTurn.keys()].some(({ session }) => !served.has(session));
  }

  #served(): Set<string> {
    return new Set([...this.#active].map(({ session }) => session));
  }

  #wait(session: string, onEnd: () => void): Promise<Transfer | undefined> {
    const ofSession = this.#waiting.filter((one) => one.session === session).length;
    if (ofSession >= this.max || this.#waiting.length >= WAITING_PER_SLOT * this.max) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const end = (transfer?: Transfer) => {
        clearTimeout(timer);
        clearInterval(slowCheck);
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        resolve(transfer);
      };
      const waiting: Waiting = { session, start: () => end(this.#startTransfer(session, onEnd)) };
      const timer = setTimeout(end, WAIT_MS);
      const slowCheck = setInterval(() => this.#displaceSlow(), JUDGE_MS);
      this.#waiting.push(waiting);
      this.#displaceSlow();
    });
  }

  #displaceSlow(): void {
    const slow = [...this.#active].find(({ isSlow }) => isSlow);
    if (slow === undefined) return;
    const has = [...this.#throttled].some(({ session }) => session === slow.session);
    if (has || this.#throttled.size >= this.#limits.throttledMax) slow.end();
    else this.#throttled.add(slow);
    slow.isThrottled = true;
    this.#releaseSlot(slow);
  }

  release(transfer: Transfer): void {
    this.#throttled.delete(transfer);
    this.#awaitingTurn.delete(transfer);
    this.#releaseSlot(transfer);
  }

  #releaseSlot(transfer: Transfer): void {
    if (!this.#active.delete(transfer)) return;
    const served = this.#served();
    const isNew = ({ session }: { session: string }) => !served.has(session);
    // Do not await before the slot is taken: meanwhile another request could take it. New transfers come first, because
    // their readers accept only a shorter wait.
    const awaitingTurn = [...this.#awaitingTurn.keys()];
    const next = this.#waiting.find(isNew) ?? awaitingTurn.find(isNew) ?? this.#waiting[0] ?? awaitingTurn[0];
    if (!(next instanceof Transfer)) return next?.start();
    this.#awaitingTurn.get(next)?.resolve();
    this.#awaitingTurn.delete(next);
    this.#takeSlot(next);
  }

  /** Resolves when this many bytes may be sent. */
  async pace(bytes: number): Promise<void> {
    this.bytes += bytes;
    const bucket = this.#bucket;
    if (bucket === undefined || this.#rate === undefined) return;
    // Wait one after the other: two concurrent waits for the same tokens would both end when only one can take them.
    this.#paceQueue = this.#paceQueue.then(async () => {
      while (!bucket.take(bytes, performance.now())) await delay(Math.max(1, bucket.waitMs(bytes)));
    });
    await this.#paceQueue;
  }
}
