/** Requests changes from the primary once a second, and sends it the usage that was recorded here. */

import { errorText } from '../../../../shared/text/error-text.ts';
import { AdaptiveTimeout } from '../../../../shared/timing/adaptive-timeout.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import type { AccountsReplica } from './accounts-replica.ts';
import {
  budgetsPageSchema,
  epochAnswerSchema,
  type FollowAnswer,
  followAnswerSchema,
  recordsAnswerSchema,
} from './messages.ts';
import type { CountPosition, SubjectCounts } from './month-counts.ts';
import type { SignedGatewayClient } from './signed-gateway-client.ts';
import { FOLLOWER_SILENT_MS, SILENCE_MAX_MS } from './silence-timeouts.ts';
import type { RecordQueue } from './usage-record-queue.ts';

const EVERY_MS = 1_000;
const ANSWER = { leastMs: 2_000, mostMs: 15_000 };
/** Bounds on the wait for a page of rows or records. */
const LONG_ANSWER = { leastMs: 15_000, mostMs: 120_000 };
/** After `#silenceMs` plus this time without contact, the primary has certainly noticed that contact was lost. */
const MARGIN_MS = 500;
/** Interval at which the time of the last answer is saved to disk. */
const SAVE_MS = 60_000;

export interface ReplicationState {
  cursor: { feed: string; seq: number } | null;
  /** Number of the last change of monthly counts that was received, in the feed of `cursor`; absent: none yet. */
  budgets?: number;
  /** Time of the last answer that completed the copy; milliseconds since the epoch; 0: never. */
  syncedAt: number;
}

interface ReplicatorOptions {
  primary: URL;
  /** URL of this gateway. */
  url: string;
  version: string;
  link: SignedGatewayClient;
  copy: AccountsReplica;
  records: RecordQueue;
  /** Identifies this gateway's monthly counts. */
  origin: string;
  /** Stores the monthly counts of other gateways. */
  storeCounts(counts: SubjectCounts): Promise<void>;
  state: ReplicationState;
  /** Returns milliseconds of a monotonic clock. */
  now(): number;
  save(state: ReplicationState): void;
  /** Called when rows have changed. `revoked`: join tokens that are now revoked. */
  changed(revoked: readonly string[]): Promise<void>;
  /** Checks an answer's epoch and statement. @returns false if the sender is not the primary of this institution */
  acceptAnswer(answer: FollowAnswer, by: string): boolean;
  /** Handles the root's statement about which gateway is the primary. */
  acceptStatement(statement: string): void;
  log(line: string): void;
}

type LinkState = 'new' | 'linked' | 'lost' | 'alone';

export class Replicator {
  readonly #options: ReplicatorOptions;
  readonly #answers = new AdaptiveTimeout(ANSWER);
  readonly #longAnswers = new AdaptiveTimeout(LONG_ANSWER);
  #link: LinkState = 'new';
  /** The longest `silence_ms` that the primary may have received from this gateway since its last answer. */
  #silenceMs = FOLLOWER_SILENT_MS;
  #state: ReplicationState;
  #lastTryEnded: number;
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;
  readonly #waiting = new Set<() => void>();
  /** True while a complete copy is in progress. */
  #copying = false;
  /** True if rows changed and isolates were not notified yet. */
  #differs = false;
  /** Revoked join tokens among the changed rows. */
  readonly #revoked = new Set<string>();
  #savedAt = 0;
  /** When the copy was last complete; milliseconds of the monotonic clock. Initially the time of the start. */
  #syncedMs: number;
  #savedSeq = -1;
  /** True while records or monthly counts are in transit. */
  #exchanging = false;
  /**
   * Incremented when the primary starts its numbers of monthly counts again: an answer to an earlier request has the
   * old numbers.
   */
  #renumbered = 0;
  #followError: string | undefined;
  #exchangeError: string | undefined;
  /** Other followers of this gateway's primary. */
  others: FollowAnswer['followers'] = [];

  constructor(options: ReplicatorOptions) {
    this.#options = options;
    this.#state = options.state;
    this.#lastTryEnded = options.now();
    this.#syncedMs = options.now();
    neverRejects(this.#run());
  }

  get connected(): boolean {
    return this.#link === 'linked';
  }

  get syncedAt(): number {
    return this.#state.syncedAt;
  }

  /**
   * Milliseconds since the copy was last complete. This is the larger of the times by two clocks, so that the copy does
   * not seem newer if the wall clock was set back.
   */
  get staleMs(): number {
    return Math.max(Date.now() - this.#state.syncedAt, this.#options.now() - this.#syncedMs);
  }

  get lastError(): string | undefined {
    return this.#followError ?? this.#exchangeError;
  }

  get cursor(): ReplicationState['cursor'] {
    return this.#state.cursor;
  }

  /** Resolves to true when the primary has certainly noticed the lost contact, or to false when contact is back. */
  async lostPrimary(): Promise<boolean> {
    while (this.#link === 'lost' || this.#link === 'new')
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    return this.#link === 'alone' || this.#stopped;
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#setState('alone');
  }

  #setState(state: LinkState): void {
    if (this.#link === state) return;
    const { log, primary } = this.#options;
    if (state === 'linked') log(`following ${primary.host}`);
    if (state === 'lost') log(`the primary ${primary.host} does not answer: ${this.lastError ?? ''}`);
    this.#link = state;
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const more = await this.#copyOnce();
      if (!more && !this.#stopped)
        await new Promise<void>((resolve) => {
          this.#timer = setTimeout(resolve, EVERY_MS);
          this.#timer.unref();
        });
    }
  }

  /** Requests and stores one page. @returns true if there is more to copy now */
  async #copyOnce(): Promise<boolean> {
    const { now } = this.#options;
    let answer: FollowAnswer;
    try {
      if (this.#link === 'lost' || this.#link === 'alone') await this.#probe();
      answer = await this.#follow();
    } catch (error) {
      this.#followError = errorText(error);
      if (this.#link === 'linked' || this.#link === 'new') {
        this.#lastTryEnded = now();
        this.#setState('lost');
      } else if (this.#link === 'lost' && now() - this.#lastTryEnded > this.#silenceMs + MARGIN_MS)
        this.#setState('alone');
      return false;
    }
    // The primary received the request, so it uses the whole limit for both gateways, even if its answer cannot be
    // stored here. If this gateway still used its share, the limits would be exceeded.
    this.#setState('linked');
    try {
      const more = await this.#take(answer);
      if (!more) neverRejects(this.#exchange(answer.budgets ?? 0));
      this.#followError = undefined;
      return more;
    } catch (error) {
      this.#followError = this.#logged(error, this.#followError);
      return false;
    }
  }

  /** Logs an error unless its message equals `last`. @returns the message */
  #logged(error: unknown, last: string | undefined): string {
    const message = errorText(error);
    if (message !== last) this.#options.log(`cannot store the data of the primary: ${message}`);
    return message;
  }

  /**
   * Sends records and fetches monthly counts. Runs concurrently with the copy, so that neither a revocation nor this
   * gateway's heartbeat waits for a long queue of records.
   */
  async #exchange(budgets: number): Promise<void> {
    if (this.#exchanging) return;
    this.#exchanging = true;
    try {
      try {
        await this.#deliver();
      } finally {
        // Monthly counts are last, because no record may wait for them.
        await this.#fetchBudgets(budgets);
        this.#save();
      }
      this.#exchangeError = undefined;
    } catch (error) {
      this.#exchangeError = this.#logged(error, this.#exchangeError);
    } finally {
      this.#exchanging = false;
    }
  }

  /**
   * Checks whether the primary answers. Does not count as contact, because this gateway may be using its share of
   * limits.
   */
  async #probe(): Promise<void> {
    const { link, primary, acceptStatement } = this.#options;
    const { answer } = await link.ask(primary, '/gateway/epoch', { statement: '' }, epochAnswerSchema, this.#answers);
    // The answering gateway is no longer the primary, and knows which gateway is.
    if (answer.statement !== undefined) acceptStatement(answer.statement);
  }

  async #follow(): Promise<FollowAnswer> {
    const { link, primary, url, version, records, acceptAnswer } = this.#options;
    // The time of two answers and of the pause between them. With a shorter time, a slow primary would count this
    // gateway as disconnected.
    const silenceMs = this.connected
      ? Math.round(Math.min(SILENCE_MAX_MS, Math.max(FOLLOWER_SILENT_MS, 2 * this.#answers.ms)))
      : FOLLOWER_SILENT_MS;
    this.#silenceMs = Math.max(this.#silenceMs, silenceMs);
    const { cursor } = this.#state;
    const asked = { url, version, cursor, waiting: records.waiting, silence_ms: silenceMs };
    const wait = cursor === null ? this.#longAnswers : this.#answers;
    const { answer, by } = await link.ask(primary, '/gateway/follow', asked, followAnswerSchema, wait);
    this.#silenceMs = silenceMs;
    if (!acceptAnswer(answer, by)) throw new Error('it is not the primary of this institution');
    this.others = answer.followers;
    return answer;
  }

  /** Stores an answer. @returns true if there is more to copy now */
  async #take(answer: FollowAnswer): Promise<boolean> {
    const { copy, changed } = this.#options;
    const { feed, seq, rows, more, anew } = answer;
    if (anew) copy.begin();
    const whole = anew || this.#copying;
    if (copy.apply(rows, whole) > 0 || anew) this.#differs = true;
    for (const { table, key, row } of rows)
      if (table === 'join_tokens' && (row === null || row.revoked_at !== null)) this.#revoked.add(key);
    if (whole && !more) copy.complete();
    this.#copying = whole && more;
    const known = this.#state.budgets ?? 0;
    // The number is lower than before: the primary was restored from a backup, and numbers its changes from there.
    const renumbered = anew || known > (answer.budgets ?? 0);
    if (renumbered) this.#renumbered++;
    const budgets = renumbered ? 0 : known;
    this.#state = { cursor: { feed, seq }, budgets, syncedAt: more ? this.#state.syncedAt : Date.now() };
    if (more) return true;
    this.#syncedMs = this.#options.now();
    if (this.#differs) await changed([...this.#revoked]);
    this.#differs = false;
    this.#revoked.clear();
    this.#save();
    return false;
  }

  /**
   * Saves the position of complete copies only. An interrupted copy starts again, because otherwise rows that were
   * deleted meanwhile would stay.
   */
  #save(): void {
    const number = (this.#state.cursor?.seq ?? 0) + (this.#state.budgets ?? 0);
    if (Date.now() - this.#savedAt <= SAVE_MS && this.#savedSeq === number) return;
    this.#options.save(this.#state);
    this.#savedAt = Date.now();
    this.#savedSeq = number;
  }

  /** Fetches monthly counts up to the primary's change `last`. */
  async #fetchBudgets(last: number): Promise<void> {
    const { link, primary, storeCounts } = this.#options;
    let after: CountPosition | undefined;
    const numbers = this.#renumbered;
    for (let [seq, more] = [this.#state.budgets ?? 0, true]; more && seq < last; ) {
      const { answer } = await link.ask(
        primary,
        '/gateway/budgets',
        { seq, after },
        budgetsPageSchema,
        this.#longAnswers,
      );
      for (const counts of answer.items) await storeCounts(counts);
      if (this.#renumbered !== numbers || this.#stopped) return;
      more = answer.more && (answer.seq > seq || answer.after !== undefined);
      ({ seq, after } = answer);
      this.#state = { ...this.#state, budgets: seq };
    }
  }

  /** Sends the queue in order until it is empty. */
  async #deliver(): Promise<void> {
    const { link, primary, records, origin } = this.#options;
    for (let items = records.oldest(); items.length > 0 && !this.#stopped; items = records.oldest()) {
      const { answer } = await link.ask(
        primary,
        '/gateway/records',
        { origin, items },
        recordsAnswerSchema,
        this.#longAnswers,
      );
      if (answer.position < (items[0]?.position ?? 0)) throw new Error('it does not accept records');
      records.done(answer.position);
    }
  }
}
