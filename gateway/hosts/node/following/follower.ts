/** Asks the first once a second what changed, and hands over what was counted here. */
import type { CountPlace, SubjectCounts } from './budgets.ts';
import type { AccountsCopy } from './copy.ts';
import type { GatewayLink } from './link.ts';
import { SILENCE_MS } from './member-table.ts';
import { budgetsPageSchema, epochTakenSchema, type Followed, followedSchema, recordsTakenSchema } from './messages.ts';
import type { RecordQueue } from './record-queue.ts';

const EVERY_MS = 1_000;
const ANSWER_MS = 2_000;
/** A page of rows, or of records. */
const LONG_ANSWER_MS = 15_000;
/** After the first has surely noticed the silence. */
const MARGIN_MS = 500;
/** When the last answer came is kept on disk so often. */
const SAVE_MS = 60_000;

export interface CopyState {
  cursor: { feed: string; seq: number } | null;
  /** Budgets of that feed up to a number; absent: none yet. */
  budgets?: number;
  /** Milliseconds since 1970 of the last answer that left nothing to copy; 0: never. */
  syncedAt: number;
}

interface FollowerOptions {
  first: URL;
  /** Where this gateway answers. */
  url: string;
  version: string;
  link: GatewayLink;
  copy: AccountsCopy;
  records: RecordQueue;
  /** Names this gateway's counts of months. */
  origin: string;
  /** What other gateways booked for months. */
  heard(counts: SubjectCounts): Promise<void>;
  state: CopyState;
  /** Monotonic milliseconds. */
  now(): number;
  save(state: CopyState): void;
  /** Rows came that differ; `revoked`: join tokens that are revoked. */
  changed(revoked: readonly string[]): Promise<void>;
  /** The answer's epoch and its statement. @returns false: it is not this institution's first */
  believe(answer: Followed, by: string): boolean;
  /** The root's word on which gateway is the first. */
  hear(statement: string): void;
  log(line: string): void;
}

type LinkState = 'new' | 'linked' | 'lost' | 'alone';

export class Follower {
  readonly #options: FollowerOptions;
  #link: LinkState = 'new';
  #state: CopyState;
  #lastTryEnded: number;
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;
  readonly #waiting = new Set<() => void>();
  /** A copy of everything is under way. */
  #copying = false;
  /** Rows came that isolates have not heard of. */
  #differs = false;
  /** Join tokens among them that let nobody in any more. */
  readonly #revoked = new Set<string>();
  #savedAt = 0;
  /** Monotonic; at the start that of the start. */
  #syncedMs: number;
  #savedSeq = -1;
  /** Others that follow the same first. */
  others: Followed['followers'] = [];
  lastError: string | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#state = options.state;
    this.#lastTryEnded = options.now();
    this.#syncedMs = options.now();
    void this.#run();
  }

  get connected(): boolean {
    return this.#link === 'linked';
  }

  get syncedAt(): number {
    return this.#state.syncedAt;
  }

  /** Milliseconds since all was known here. A wall clock that was set back makes nothing younger. */
  get staleMs(): number {
    return Math.max(Date.now() - this.#state.syncedAt, this.#options.now() - this.#syncedMs);
  }

  get cursor(): CopyState['cursor'] {
    return this.#state.cursor;
  }

  /** Resolves when the first has surely noticed that it is not heard (true), or is heard again (false). */
  async alone(): Promise<boolean> {
    while (this.#link === 'lost' || this.#link === 'new')
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    return this.#link === 'alone' || this.#stopped;
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#become('alone');
  }

  #become(state: LinkState): void {
    if (this.#link === state) return;
    const { log, first } = this.#options;
    if (state === 'linked') log(`following ${first.host}`);
    if (state === 'lost') log(`the first gateway, ${first.host}, does not answer: ${this.lastError ?? ''}`);
    this.#link = state;
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const more = await this.#once();
      if (!more && !this.#stopped)
        await new Promise<void>((resolve) => {
          this.#timer = setTimeout(resolve, EVERY_MS);
          this.#timer.unref();
        });
    }
  }

  /** @returns whether there is more to copy at once */
  async #once(): Promise<boolean> {
    const { now } = this.#options;
    let answer: Followed;
    try {
      if (this.#link === 'lost' || this.#link === 'alone') await this.#probe();
      answer = await this.#follow();
    } catch (error) {
      this.lastError = messageOf(error);
      if (this.#link === 'linked' || this.#link === 'new') {
        this.#lastTryEnded = now();
        this.#become('lost');
      } else if (this.#link === 'lost' && now() - this.#lastTryEnded > SILENCE_MS + MARGIN_MS) this.#become('alone');
      return false;
    }
    // The first has heard this gateway and counts for both, whether its answer can be kept here or not: a part beside that would be too much.
    this.#become('linked');
    try {
      const more = await this.#take(answer);
      if (!more) {
        try {
          await this.#deliver();
        } finally {
          // The last of all: neither a revocation nor a record waits for them.
          await this.#hearBudgets(answer.budgets ?? 0);
          this.#save();
        }
      }
      this.lastError = undefined;
      return more;
    } catch (error) {
      const message = messageOf(error);
      if (message !== this.lastError) this.#options.log(`what the first gateway says cannot be kept: ${message}`);
      this.lastError = message;
      return false;
    }
  }

  /** Does not count as being heard: this gateway may be using its own share of limits. */
  async #probe(): Promise<void> {
    const { link, first, hear } = this.#options;
    const { answer } = await link.ask(first, '/gateway/epoch', { statement: '' }, epochTakenSchema, ANSWER_MS);
    // It is the first no more, and knows which one is.
    if (answer.statement !== undefined) hear(answer.statement);
  }

  async #follow(): Promise<Followed> {
    const { link, first, url, version, records, believe } = this.#options;
    const asked = { url, version, cursor: this.#state.cursor, waiting: records.waiting };
    const within = this.#state.cursor === null ? LONG_ANSWER_MS : ANSWER_MS;
    const { answer, by } = await link.ask(first, '/gateway/follow', asked, followedSchema, within);
    if (!believe(answer, by)) throw new Error('it is not the first of this institution');
    this.others = answer.followers;
    return answer;
  }

  /** @returns whether there is more to copy at once */
  async #take(answer: Followed): Promise<boolean> {
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
    // Fewer than before: the first was put back from a backup, and counts its changes from there.
    const budgets = anew || known > (answer.budgets ?? 0) ? 0 : known;
    this.#state = { cursor: { feed, seq }, budgets, syncedAt: more ? this.#state.syncedAt : Date.now() };
    if (more) return true;
    this.#syncedMs = this.#options.now();
    if (this.#differs) await changed([...this.#revoked]);
    this.#differs = false;
    this.#revoked.clear();
    this.#save();
    return false;
  }

  /** Of a whole copy alone: one that is cut off by the end of the process begins anew, since what went meanwhile would stay else. */
  #save(): void {
    const number = (this.#state.cursor?.seq ?? 0) + (this.#state.budgets ?? 0);
    if (Date.now() - this.#savedAt <= SAVE_MS && this.#savedSeq === number) return;
    this.#options.save(this.#state);
    this.#savedAt = Date.now();
    this.#savedSeq = number;
  }

  /** Up to the first's `last` change. */
  async #hearBudgets(last: number): Promise<void> {
    const { link, first, heard } = this.#options;
    let after: CountPlace | undefined;
    for (let [seq, more] = [this.#state.budgets ?? 0, true]; more && seq < last; ) {
      const { answer } = await link.ask(first, '/gateway/budgets', { seq, after }, budgetsPageSchema, LONG_ANSWER_MS);
      for (const counts of answer.items) await heard(counts);
      more = answer.more && (answer.seq > seq || answer.after !== undefined);
      ({ seq, after } = answer);
      this.#state = { ...this.#state, budgets: seq };
    }
  }

  /** What waits, in order, until nothing does. */
  async #deliver(): Promise<void> {
    const { link, first, records, origin } = this.#options;
    for (let items = records.oldest(); items.length > 0; items = records.oldest()) {
      const { answer } = await link.ask(
        first,
        '/gateway/records',
        { origin, items },
        recordsTakenSchema,
        LONG_ANSWER_MS,
      );
      if (answer.position < (items[0]?.position ?? 0)) throw new Error('it takes no records');
      records.done(answer.position);
    }
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
