import { acceptsResults, type BatchStatus, isTerminal } from '../../shared/batch/batch-status.ts';
import type { OutputFile } from '../../shared/batch/function-files.ts';
import type { GrantedLease } from '../../shared/batch/granted-lease.ts';
import type { LeaseRef } from '../../shared/batch/lease-ledger.ts';
import type { BatchProgress, LineValue } from '../../shared/batch/line-references.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import { inBackground } from '../../shared/timing/in-background.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import type { ArrivedPage } from './arrived-results.ts';
import { BatchMetrics } from './batch-metrics.ts';
import { BatchRecord, type CommitAnswer } from './batch-record.ts';
import type { BatchSample } from './batch-series.ts';
import type { BatchObjectJson, BatchSpec } from './batch-spec.ts';
import { BatchSteps, TURN_MS } from './batch-steps.ts';
import { saveSummary } from './batch-summary-row.ts';
import { progressOf, valuesOf } from './dependencies/record-values.ts';
import { NO_GPU_TIME, NO_TOKENS } from './error-messages.ts';
import { LineShares } from './leases/line-shares.ts';
import type { ContextCounts } from './leases/node-contexts.ts';
import { notifyQueues, type Offer, offerOf } from './leases/offer-to-queues.ts';
import { BATCH_LEASE_MS, type BatchAdmission, leaseOf } from './leases/open-lease.ts';
import { MonthlyBudget } from './monthly-budget.ts';
import { outputFileId } from './output-file-id.ts';
import { OUTPUT_MAX_BYTES } from './output-lines.ts';
import { discardFiles, OUTPUT_S } from './result-files.ts';
import { Obstacle } from './step-failures.ts';
import type { OutputPlace } from './store-output.ts';

/** If the creator has not called `start` after this time, the object checks whether the batch is in the database. */
const LISTED_MS = 60_000;
/**
 * One batch: its input check, leases, results and output files. Every step is stored before it takes effect, so the
 * process may end at any moment. The alarm continues the batch.
 */
export class BatchObject extends GatewayObject {
  readonly #record: BatchRecord;
  readonly #metrics: BatchMetrics;
  readonly #obstacle = new Obstacle();
  readonly #budget = new MonthlyBudget();
  readonly #shares = new LineShares();
  /** On how many nodes the batch's function is, as the queue last said. Null: unknown, or no function. */
  #contexts: ContextCounts | null = null;
  readonly #steps: BatchSteps;

  /** @param outputMaxBytes maximum size of each output file, for tests */
  constructor(ctx: ObjectContext, env: Env, outputMaxBytes = OUTPUT_MAX_BYTES) {
    super(ctx, env);
    this.#record = new BatchRecord(ctx.storage, outputMaxBytes);
    this.#metrics = new BatchMetrics(this.#record);
    this.#steps = new BatchSteps({
      env,
      ctx,
      record: this.#record,
      budget: this.#budget,
      obstacle: this.#obstacle,
      contexts: () => this.#contexts,
      offer: () => this.#offer(),
    });
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
    this.#steps.close();
    await this.#steps.forwardUsage(spec);
    if (this.#isForgotten) return;
    this.#metrics.begin();
    this.#metrics.report(this.env, this.ctx, this.#now);
    this.#dropDependencies(spec);
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
    return (
      spec && { account: this.#steps.account ?? spec.account, endpoint: spec.endpoint, demands: this.#record.demands }
    );
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
    const most = this.#record.function && this.#shares.most(ledger, this.#record.linesPerS(this.#now));
    const grant = ledger.grant(node, this.#now, BATCH_LEASE_MS, (demands) => allowed.includes(demands), prefix, most);
    this.#record.store();
    if (grant === undefined) return null;
    this.#shares.granted();
    this.#record.countLease(ready);
    const model = this.#record.demands[grant.chunk.demands]?.model ?? '';
    return leaseOf(spec, grant, model, this.#record.function);
  }

  /** Returns the position of a leased chunk in the input file. Null: the lease has ended. */
  range(ref: LeaseRef): { file: string; offset: number; length: number; text?: Uint8Array } | null {
    const { spec } = this.#record;
    if (spec === undefined || !this.renew(ref)) return null;
    const chunk = this.#record.ledger.chunks[ref.chunk];
    if (chunk === undefined) return null;
    const text = chunk.resolved && { text: this.#record.waiting.text(chunk.id) };
    return { file: spec.inputFileId, offset: chunk.offset, length: chunk.bytes, ...text };
  }

  /** Returns the code of the batch's function. Null: the lease has ended, or the batch does not run a function. */
  functionCode(ref: LeaseRef): string | null {
    return this.renew(ref) ? (this.#record.function?.code ?? null) : null;
  }

  /** True if the lease stands, and lines of its batch name this file or got it with a result of another batch. */
  readsFile(ref: LeaseRef, file: string): boolean {
    if (!this.renew(ref)) return false;
    return this.#record.function?.files?.includes(file) === true || this.#record.waiting.hasFile(file);
  }

  /** Returns the owner and the names of the secrets that the batch's function declares. Null: the lease has ended. */
  functionSecrets(ref: LeaseRef): { owner: string; names: string[] } | null {
    const { spec } = this.#record;
    if (spec === undefined || !this.renew(ref)) return null;
    return { owner: spec.owner, names: this.#record.function?.secrets ?? [] };
  }

  /** Reserves space for a file that a call of the lease wrote. False: the batch has too many. Null: the lease has ended. */
  reserveOutput(ref: LeaseRef, { sha256, bytes }: Omit<OutputFile, 'name'>): OutputPlace | false | null {
    const { spec } = this.#record;
    if (spec === undefined || this.#record.function === undefined || !this.renew(ref)) return null;
    const id = outputFileId(spec.id, sha256);
    if (!this.#record.outputs.reserve(id, bytes)) return false;
    const { owner, account, outputExpiresS } = spec;
    const { expires_at: endS } = this.#record.state.times;
    return { id, owner, createdBy: account.keyId, expiresAt: (endS + (outputExpiresS ?? OUTPUT_S)) * 1_000 };
  }

  /** The gateway has the bytes of a reserved file, so that results may name it. */
  outputStored(id: string): void {
    if (this.#takesResults) this.#record.outputs.setStored(id);
  }

  /**
   * Another batch needs results of this one, which keeps them until the other one has ended.
   * @param untilMs end of the other batch's window
   * @returns the length of the chain that leads to this batch, or why it cannot be needed
   */
  addDependent(id: string, untilMs: number): number | { refused: 'ended' | 'full' } {
    const { spec } = this.#record;
    if (spec === undefined || isTerminal(this.#record.state.status)) return { refused: 'ended' };
    return this.#record.dependents.add(id, untilMs) ? (spec.depth ?? 0) : { refused: 'full' };
  }

  dropDependent(id: string): void {
    if (this.#isForgotten) return;
    this.#record.dependents.remove(id);
    if (isTerminal(this.#record.state.status)) this.#record.forgetResults(this.#now);
  }

  /** How far the batch is, for a batch that needs its results. Null: there is no such batch. */
  progress(): BatchProgress | null {
    return this.#isForgotten ? null : progressOf(this.#record);
  }

  /** Results that another batch needs. Null: there is no such batch. */
  values(lines: readonly number[]): LineValue[] | null {
    return this.#isForgotten ? null : valuesOf(this.#record, lines);
  }

  /** Keeps the results of the ended batch while other batches need them. */
  async #keepResults(): Promise<void> {
    this.#record.forgetResults(this.#now);
    const keptMs = this.#record.dependents.lastMs(this.#now);
    if (keptMs !== undefined) await this.ctx.storage.setAlarm(keptMs);
  }

  /** Batches that this one needed may delete their results. */
  #dropDependencies({ id, after = [] }: BatchSpec): void {
    for (const one of after)
      this.ctx.waitUntil(
        this.env.BATCH.getByName(one)
          .dropDependent(id)
          .catch(() => {}),
      );
  }

  /** Extends a lease. @returns whether the lease is valid; if not, the node does not start further lines of it */
  renew(ref: LeaseRef): boolean {
    if (!this.#takesResults) return false;
    const stands = this.#record.ledger.renew(ref, this.#now, BATCH_LEASE_MS);
    if (this.#record.ledger.changed.size > 0) this.#record.store();
    return stands;
  }

  /** Answers a node that renews a lease. `stop`: its results are not needed any more, so it aborts running lines. */
  renewal(ref: LeaseRef): { leased: boolean; stop: boolean; keep?: number } {
    return { leased: this.renew(ref), stop: this.#stops(ref), ...this.#kept() };
  }

  /** What a node keeps of its lease. Other nodes may be idle, and could run its lines. */
  #kept(): { keep?: number } {
    if (!this.#takesResults || this.#record.function === undefined) return {};
    if (this.#shares.isDue(this.#record.ledger, this.#now)) this.#offer();
    const keep = this.#shares.keep(this.#record.ledger, this.#record.linesPerS(this.#now));
    return keep === undefined ? {} : { keep };
  }

  #stops({ chunk }: LeaseRef): boolean {
    // A forgotten batch has no state to read.
    if (this.#isForgotten || this.#steps.isClosed) return true;
    const { state, ledger } = this.#record;
    return state.status !== 'in_progress' || !ledger.isOpen(chunk);
  }

  get #takesResults(): boolean {
    return !this.#isForgotten && !this.#steps.isClosed && acceptsResults(this.#record.state.status);
  }

  /** The file store failed for a node. Ends the node's lease, and grants no lease for some seconds. */
  inputFailed(ref: LeaseRef, message: string): void {
    this.#obstacle.record(message, this.#now);
    this.release(ref);
  }

  /**
   * @param declined why the node cannot run the batch's function
   * @param lines the lines that the node returns, if it keeps the others
   */
  release(ref: LeaseRef, declined?: string, lines?: readonly number[]): void {
    if (!this.#takesResults) return;
    const { ledger, state } = this.#record;
    if (lines !== undefined) ledger.giveBack(ref, lines);
    else if (ledger.release(ref) && declined !== undefined) this.#obstacle.decline(declined, this.#now);
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
    const at = { provider, gpus, log, others: this.#steps.canOthersTry, nowMs: this.#now };
    const { leased, again, elsewhere, tokens, gpuMs } = this.#record.commit(ref, results, at);
    this.#budget.spend(tokens, gpuMs);
    if (this.#record.ledger.open === 0 || this.#record.state.givenUp !== undefined) await this.#wake();
    return { leased, stop: this.#stops(ref), again, elsewhere, ...this.#kept() };
  }

  /** Runs one step and sets the next alarm. */
  async alarm(): Promise<void> {
    const { spec } = this.#record;
    if (spec === undefined) return;
    if (isTerminal(this.#record.state.status)) return this.#keepResults();
    this.#metrics.begin();
    const nextMs = await this.#steps.run(spec);
    if (this.#isForgotten) return discardFiles(this.env, spec.id, this.#now);
    this.#metrics.report(this.env, this.ctx, this.#now);
    if (isTerminal(this.#record.state.status)) {
      this.#dropDependencies(spec);
      await this.#keepResults();
    } else await this.ctx.storage.setAlarm(this.#now + nextMs);
    await saveSummary(this.env, spec, this.#shown()).catch(() => {});
  }

  /** Announces to the queue of each of the batch's models that the batch needs nodes. */
  #offer(): void {
    const spec = this.#leasing();
    const offer = spec && offerOf(spec, this.#record, this.#now);
    if (offer) this.ctx.waitUntil(this.#notify(offer));
  }

  async #notify(offer: Offer): Promise<void> {
    const { contexts, idle } = await notifyQueues(this.env, offer, this.#now + 3 * TURN_MS);
    this.#contexts = contexts;
    this.#shares.set(idle);
  }

  #leasing(): BatchSpec | null {
    const { spec } = this.#record;
    if (spec === undefined) return null;
    const { status, paused } = this.#record.state;
    if (status !== 'in_progress' || paused || this.#steps.isClosed || this.#obstacle.blocks(this.#now)) return null;
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
