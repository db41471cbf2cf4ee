import { acceptsResults, type BatchStatus, isTerminal } from '../../shared/batch/batch-status.ts';
import type { GrantedLease } from '../../shared/batch/granted-lease.ts';
import type { LeaseRef } from '../../shared/batch/lease-ledger.ts';
import type { LineErrorCode, LineResult } from '../../shared/batch/line-results.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { inBackground } from '../../shared/timing/in-background.ts';
import type { Account } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import type { ArrivedPage } from './arrived-results.ts';
import { BatchMetrics } from './batch-metrics.ts';
import { BatchRecord, type CommitAnswer } from './batch-record.ts';
import type { BatchSample } from './batch-series.ts';
import type { BatchObjectJson, BatchSpec, StoredBatchState } from './batch-spec.ts';
import { isListed, saveSummary } from './batch-summary-row.ts';
import { checkInput } from './check-input.ts';
import { currentAccount } from './current-account.ts';
import { CANCELLED_WITHOUT_FILES, INPUT_LOST, NO_GPU_TIME, NO_TOKENS, stepGivenUp } from './error-messages.ts';
import { LostNodes } from './leases/lost-nodes.ts';
import { type ContextCounts, canOthersTry } from './leases/node-contexts.ts';
import { notifyQueues, type Offer, offerOf } from './leases/offer-to-queues.ts';
import { BATCH_LEASE_MS, type BatchAdmission, leaseOf } from './leases/open-lease.ts';
import { MonthlyBudget } from './monthly-budget.ts';
import { OUTPUT_MAX_BYTES } from './output-lines.ts';
import { discardFiles, writeFiles } from './result-files.ts';
import { isUnavailable, Obstacle, ownerMessage } from './step-failures.ts';

/** Interval at which a running batch is checked and announces to its models' queues that it needs nodes. */
const TURN_MS = 5_000;
/** Delay before a failed step is retried. */
const RETRY_MS = 5_000;
/**
 * How long a canceled batch waits for its nodes. They learn of the cancellation with their next commit or renewal, and
 * return finished lines. OpenAI allows ten minutes.
 */
const CANCEL_MS = 30_000;
/** If the creator has not called `start` after this time, the object checks whether the batch is in the database. */
const LISTED_MS = 60_000;
/** How long a canceled batch tries to write its files, so that it ends even if the file store is unavailable. */
const CANCEL_FILES_MS = 600_000;

/**
 * One batch: its input check, leases, results and output files. Every step is stored before it takes effect, so the
 * process may end at any moment. The alarm continues the batch.
 */
export class BatchObject extends GatewayObject {
  readonly #record: BatchRecord;
  readonly #metrics: BatchMetrics;
  readonly #lost = new LostNodes();
  /** True if several nodes serve the batch's models. A line that failed at one node is then tried at another. */
  #others = false;
  readonly #obstacle = new Obstacle();
  readonly #budget = new MonthlyBudget();
  /**
   * True as soon as the gateway begins to write the output files, because a later result would not be in them. A
   * canceled or expired batch keeps its previous status until the files are written.
   */
  #closed = false;
  /** On how many nodes the batch's function is, as the queue last said. Null: unknown, or no function. */
  #contexts: ContextCounts | null = null;
  /** The batch's account as read a few seconds ago. */
  #account: Account | undefined;

  /** @param outputMaxBytes maximum size of each output file, for tests */
  constructor(ctx: ObjectContext, env: Env, outputMaxBytes = OUTPUT_MAX_BYTES) {
    super(ctx, env);
    this.#record = new BatchRecord(ctx.storage, outputMaxBytes);
    this.#metrics = new BatchMetrics(this.#record);
  }

  /**
   * Creates the batch. Idempotent. Nothing else happens before `start`: until the batch is in its owner's list, the
   * owner can neither see nor cancel it.
   */
  async create(spec: BatchSpec): Promise<BatchObjectJson> {
    if (this.#record.spec === undefined) this.#record.create(spec, this.#now);
    await this.ctx.storage.setAlarm(this.#now + LISTED_MS);
    return this.#shown();
  }

  /**
   * Starts the batch, which is now in its owner's list. Idempotent. The input check starts immediately; the caller does
   * not wait for it.
   */
  async start(spec: BatchSpec): Promise<void> {
    if (this.#record.spec === undefined) this.#record.create(spec, this.#now);
    this.#record.setListed();
    await this.#wake();
  }

  /** For the sweep over all batches: continues a batch that lost its alarm, or saves the summary of an ended one. */
  async nudge(): Promise<void> {
    const { spec } = this.#record;
    if (spec === undefined) return;
    if (isTerminal(this.#record.state.status)) await saveSummary(this.env, spec, this.#shown());
    else if ((await this.ctx.storage.getAlarm()) === null) await this.#wake();
  }

  show(): BatchObjectJson | null {
    return this.#record.spec === undefined ? null : this.#shown();
  }

  /** Returns the batch with the results that followed the commit with this number. Null: there is no such batch. */
  arrivedAfter(after: number): { shown: BatchObjectJson; page: ArrivedPage } | null {
    return this.#isForgotten ? null : { shown: this.#shown(), page: this.#record.arrivedAfter(after) };
  }

  /** Returns the course of the batch. Null: there is no such batch. */
  series(): BatchSample[] | null {
    return this.#isForgotten ? null : this.#record.series.all();
  }

  /** Returns the last output of the batch's function. Null: there is no such batch. */
  log(): string | null {
    return this.#isForgotten ? null : this.#record.log;
  }

  /** @returns the batch object, or the status that forbids canceling */
  async cancel(): Promise<BatchObjectJson | { refused: BatchStatus }> {
    const { status } = this.#record.state;
    if (status !== 'cancelled' && status !== 'cancelling') {
      if (!this.#record.move('cancelling', this.#now)) return { refused: status };
      await this.#wake();
    }
    return this.#shown();
  }

  /**
   * Ends and deletes the batch immediately, because its owner was deleted. The usage of its lines is reported first.
   * Idempotent.
   */
  async forget(): Promise<void> {
    const { spec } = this.#record;
    if (spec === undefined) return;
    this.#closed = true;
    await this.#forwardUsage(spec);
    if (this.#isForgotten) return;
    this.#metrics.begin();
    this.#metrics.report(this.env, this.ctx, this.#now);
    this.#record.forget();
  }

  get #isForgotten(): boolean {
    return this.#record.spec === undefined;
  }

  /**
   * Pauses or continues the batch. While it is paused, no lease is granted, and running lines finish. The end of its
   * window stays the same.
   */
  async pause(paused: boolean): Promise<BatchObjectJson | { refused: BatchStatus }> {
    const { status } = this.#record.state;
    if (isTerminal(status)) return { refused: status };
    this.#record.setPaused(paused);
    await this.#wake();
    return this.#shown();
  }

  #shown(): BatchObjectJson {
    const { status } = this.#record.state;
    if (isTerminal(status)) return this.#record.shown(this.#now, null);
    const isRunning = this.#record.ledger.leases.length > 0;
    return this.#record.shown(this.#now, this.#usedUp() ?? this.#obstacle.shown(this.#now, isRunning), this.#contexts);
  }

  /** Which monthly limit is used up, for the owner. */
  #usedUp(): string | undefined {
    if (this.#record.state.status !== 'in_progress') return undefined;
    if (this.#budget.isUsedUp(this.#record.runningTokens)) return NO_TOKENS;
    return this.#record.function !== undefined && this.#budget.isGpuTimeUsedUp ? NO_GPU_TIME : undefined;
  }

  /** Returns what a node must fulfill for a lease. Null: no node may get a lease now. */
  admission(): BatchAdmission | null {
    const spec = this.#leasing();
    return spec && { account: this.#account ?? spec.account, endpoint: spec.endpoint, demands: this.#record.demands };
  }

  /**
   * @param allowed indexes of the demands that the node meets
   * @param ready contexts that are loaded on the node
   */
  grant(
    node: string,
    allowed: readonly number[],
    prefix: number | undefined,
    ready: readonly string[] = [],
  ): GrantedLease | null {
    const spec = this.#leasing();
    if (spec === null) return null;
    const { ledger } = this.#record;
    ledger.expire(this.#now);
    const grant = ledger.grant(node, this.#now, BATCH_LEASE_MS, (demands) => allowed.includes(demands), prefix);
    this.#record.store();
    if (grant === undefined) return null;
    this.#record.countLease(ready);
    const model = this.#record.demands[grant.chunk.demands]?.model ?? '';
    return leaseOf(spec, grant, model, this.#record.function);
  }

  /** Returns the position of a leased chunk in the input file. Null: the lease has ended. */
  range(ref: LeaseRef): { file: string; offset: number; length: number } | null {
    const { spec } = this.#record;
    if (spec === undefined || !this.renew(ref)) return null;
    const chunk = this.#record.ledger.chunks[ref.chunk];
    return chunk === undefined ? null : { file: spec.inputFileId, offset: chunk.offset, length: chunk.bytes };
  }

  /** Returns the code of the batch's function. Null: the lease has ended, or the batch does not run a function. */
  functionCode(ref: LeaseRef): string | null {
    return this.renew(ref) ? (this.#record.function?.code ?? null) : null;
  }

  /** True if the lease stands, and lines of its batch name this file. */
  readsFile(ref: LeaseRef, file: string): boolean {
    return this.renew(ref) && this.#record.function?.files?.includes(file) === true;
  }

  /** Returns the owner and the names of the secrets that the batch's function declares. Null: the lease has ended. */
  functionSecrets(ref: LeaseRef): { owner: string; names: string[] } | null {
    const { spec } = this.#record;
    if (spec === undefined || !this.renew(ref)) return null;
    return { owner: spec.owner, names: this.#record.function?.secrets ?? [] };
  }

  /** Extends a lease. @returns whether the lease is valid; if not, the node does not start further lines of it */
  renew(ref: LeaseRef): boolean {
    if (!this.#takesResults) return false;
    const stands = this.#record.ledger.renew(ref, this.#now, BATCH_LEASE_MS);
    if (this.#record.ledger.changed.size > 0) this.#record.store();
    return stands;
  }

  /** Answers a node that renews a lease. `stop`: its results are not needed any more, so it aborts running lines. */
  renewal(ref: LeaseRef): { leased: boolean; stop: boolean } {
    return { leased: this.renew(ref), stop: this.#stops(ref) };
  }

  #stops({ chunk }: LeaseRef): boolean {
    // A forgotten batch has no state to read.
    if (this.#isForgotten || this.#closed) return true;
    const { state, ledger } = this.#record;
    return state.status !== 'in_progress' || !ledger.isOpen(chunk);
  }

  get #takesResults(): boolean {
    return !this.#isForgotten && !this.#closed && acceptsResults(this.#record.state.status);
  }

  /** The file store failed for a node. Ends the node's lease, and grants no lease for some seconds. */
  inputFailed(ref: LeaseRef, message: string): void {
    this.#obstacle.record(message, this.#now);
    this.release(ref);
  }

  /** @param declined why the node cannot run the batch's function */
  release(ref: LeaseRef, declined?: string): void {
    if (!this.#takesResults) return;
    const { ledger, state } = this.#record;
    if (ledger.release(ref) && declined !== undefined) this.#obstacle.decline(declined, this.#now);
    this.#record.store();
    if (state.status === 'cancelling' && ledger.leases.length === 0)
      inBackground(`batch ${this.#record.spec?.id}`, this.#wake(), console.error);
    this.#offer();
  }

  /** Stores results. @param gpus number of the node's GPUs @param log output of the function @returns whether the lease is valid, and which failed lines are to be retried */
  async commit(
    ref: LeaseRef,
    results: readonly LineResult[],
    provider: string,
    gpus = 0,
    log = '',
  ): Promise<CommitAnswer> {
    if (!this.#takesResults) return { leased: false, stop: true, again: [], elsewhere: 0 };
    const at = { provider, gpus, log, others: this.#others, nowMs: this.#now };
    const { leased, again, elsewhere, tokens, gpuMs } = this.#record.commit(ref, results, at);
    this.#budget.spend(tokens, gpuMs);
    if (this.#record.ledger.open === 0 || this.#record.state.givenUp !== undefined) await this.#wake();
    return { leased, stop: this.#stops(ref), again, elsewhere };
  }

  /**
   * Runs one step and sets the next alarm. A failed step is retried: without a limit if a store, the database or
   * another object is unavailable, otherwise up to FAULTS_MAX times.
   */
  async alarm(): Promise<void> {
    const { spec } = this.#record;
    if (spec === undefined || isTerminal(this.#record.state.status)) return;
    this.#metrics.begin();
    let nextMs = RETRY_MS;
    try {
      nextMs = await this.#step(spec, this.#record.state);
      if (!this.#isForgotten) this.#record.sample(this.#now);
      this.#obstacle.passed();
    } catch (error) {
      if (this.#isForgotten) return discardFiles(this.env, spec.id, this.#now);
      await this.#failed(spec.id, error);
    }
    if (this.#isForgotten) return discardFiles(this.env, spec.id, this.#now);
    this.#metrics.report(this.env, this.ctx, this.#now);
    if (!isTerminal(this.#record.state.status)) await this.ctx.storage.setAlarm(this.#now + nextMs);
    await saveSummary(this.env, spec, this.#shown()).catch(() => {});
  }

  async #failed(id: string, error: unknown): Promise<void> {
    const why = errorText(error);
    if (!isUnavailable(error) && this.#obstacle.recurs(why)) {
      console.error(`batch ${id}: ${why}; the batch failed`);
      return this.#giveUp(id, stepGivenUp(why));
    }
    this.#obstacle.record(ownerMessage(error), this.#now);
    console.error(`batch ${id}: ${why}; trying again in ${RETRY_MS} ms`);
  }

  /**
   * Ends the batch because its next step cannot be done. Existing results are written to files, unless the failing step
   * writes files.
   */
  async #giveUp(id: string, message: string): Promise<void> {
    this.#obstacle.passed();
    const { status } = this.#record.state;
    const givenUp = { code: 'engine_failed' as const, why: message };
    if (status === 'in_progress') return void this.#record.move('finalizing', this.#now, { givenUp });
    this.#record.endWithoutFiles(status === 'cancelling' ? 'cancelled' : 'failed', this.#now, message);
    await discardFiles(this.env, id, this.#now).catch(() => {});
  }

  /** Runs one step. @returns milliseconds until the next one */
  async #step(spec: BatchSpec, { status, times }: StoredBatchState): Promise<number> {
    switch (status) {
      case 'validating':
        await this.#check(spec, times.expires_at * 1_000);
        return 0;
      case 'in_progress':
        return this.#work(spec, times.expires_at * 1_000);
      case 'finalizing':
        await this.#finish(spec, 'completed', this.#record.state.givenUp?.code ?? 'engine_failed');
        return 0;
      case 'cancelling': {
        const { ledger } = this.#record;
        await this.#releaseLost();
        ledger.expire(this.#now);
        const endsAt = (times.cancelling_at ?? 0) * 1_000 + CANCEL_MS;
        if (ledger.leases.length > 0 && this.#now < endsAt) return 1_000;
        if (this.#now >= endsAt + CANCEL_FILES_MS)
          this.#record.endWithoutFiles('cancelled', this.#now, CANCELLED_WITHOUT_FILES);
        else await this.#finish(spec, 'cancelled', 'batch_cancelled');
        return 0;
      }
      default:
        return TURN_MS;
    }
  }

  /** Ends the leases of nodes that are gone according to the current view of the registry. Returns the view. */
  async #releaseLost(): Promise<RegistrySnapshot> {
    const view = await isolateSnapshot.get(this.env, this.ctx, this.#now, () => true);
    this.#lost.release(this.#record.ledger, view, this.#now);
    return view;
  }

  async #work(spec: BatchSpec, expiresMs: number): Promise<number> {
    const { ledger } = this.#record;
    const view = await this.#releaseLost();
    const readyOf = (model: string) => view.model(model)?.ready.length ?? 0;
    this.#others = canOthersTry(this.#record, this.#contexts, readyOf);
    const leaseEnd = ledger.expire(this.#now) ?? Number.POSITIVE_INFINITY;
    this.#record.store();
    if (ledger.open === 0 || this.#record.state.givenUp !== undefined) {
      this.#record.move('finalizing', this.#now);
      return 0;
    }
    if (this.#now >= expiresMs) {
      await this.#finish(spec, 'expired', 'batch_expired');
      return 0;
    }
    this.#account = await currentAccount(this.env, this.#account ?? spec.account, this.#now);
    if (this.#account === undefined) {
      this.#record.move('cancelling', this.#now);
      return 0;
    }
    await this.#forwardUsage(spec);
    const models = [...new Set(this.#record.demands.map(({ model }) => model))];
    await this.#budget.refresh(this.env, this.#account.keyId, this.#account.limits, models);
    this.#offer();
    return Math.max(100, Math.min(TURN_MS, leaseEnd - this.#now, expiresMs - this.#now));
  }

  /** Checks the input. Fails the batch on any error in it. */
  async #check(spec: BatchSpec, expiresMs: number): Promise<void> {
    // The batch is not in its owner's list, because its creator stopped before it inserted the row.
    if (this.#record.state.listed !== true && !(await isListed(this.env, spec.id))) return this.#record.forget();
    if (this.#now >= expiresMs) return void this.#record.move('failed', this.#now, { errors: [INPUT_LOST] });
    const outcome = await checkInput(this.env, spec, this.#now);
    // The batch may have been canceled while its input was read.
    if (this.#record.state.status !== 'validating') return;
    if ('errors' in outcome) return void this.#record.move('failed', this.#now, outcome);
    this.#record.begin(outcome.checked, this.#now, outcome.made);
    this.#obstacle.clear();
    this.#offer();
  }

  async #finish(spec: BatchSpec, to: 'completed' | 'expired' | 'cancelled', unexecuted: LineErrorCode): Promise<void> {
    this.#closed = true;
    await this.#forwardUsage(spec);
    const { env } = this;
    const files = await writeFiles({ env, record: this.#record, spec, to, unexecuted, nowMs: this.#now });
    this.#record.end(to, this.#now, files);
  }

  /**
   * Forwards the usage of lines. Uses the account as last read, not as it was at the batch's creation, so that limits
   * that were set since then count the usage.
   */
  #forwardUsage(spec: BatchSpec): Promise<void> {
    return this.#record.billing.handOn(this.env, { ...spec, account: this.#account ?? spec.account }, this.#record);
  }

  /** Announces to the queue of each of the batch's models that the batch needs nodes. */
  #offer(): void {
    const spec = this.#leasing();
    const offer = spec && offerOf(spec, this.#record, this.#now);
    if (offer) this.ctx.waitUntil(this.#notify(offer));
  }

  async #notify(offer: Offer): Promise<void> {
    this.#contexts = await notifyQueues(this.env, offer, this.#now + 3 * TURN_MS);
  }

  #leasing(): BatchSpec | null {
    const { spec } = this.#record;
    if (spec === undefined) return null;
    const { status, paused } = this.#record.state;
    if (status !== 'in_progress' || paused || this.#closed || this.#obstacle.blocks(this.#now)) return null;
    if (this.#usedUp() !== undefined) return null;
    return spec;
  }

  #wake(): Promise<void> {
    return this.ctx.storage.setAlarm(this.#now);
  }

  get #now(): number {
    return this.ctx.clock.now();
  }
}
