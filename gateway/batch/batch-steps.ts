/** The steps of a batch that its alarm runs: the input check, the work on its lines, and its files. */
import type { BatchStatus } from '../../shared/batch/batch-status.ts';
import type { LineErrorCode } from '../../shared/batch/line-results.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { Account } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import type { BatchRecord } from './batch-record.ts';
import type { BatchSpec } from './batch-spec.ts';
import { isListed } from './batch-summary-row.ts';
import { checkInput } from './check-input.ts';
import { currentAccount } from './current-account.ts';
import { resolveLines } from './dependencies/resolve-lines.ts';
import { CANCELLED_WITHOUT_FILES, ENGINES_ENDED, INPUT_LOST, stepGivenUp } from './error-messages.ts';
import { LostNodes } from './leases/lost-nodes.ts';
import { type ContextCounts, canOthersTry } from './leases/node-contexts.ts';
import { endedWithEngine } from './line-verdicts.ts';
import type { MonthlyBudget } from './monthly-budget.ts';
import { discardFiles, writeFiles } from './result-files.ts';
import { isUnavailable, type Obstacle, ownerMessage } from './step-failures.ts';

/** Interval at which a running batch is checked and announces to its models' queues that it needs nodes. */
export const TURN_MS = 5_000;
/** Delay before a failed step is retried. */
const RETRY_MS = 5_000;
/**
 * How long a canceled batch waits for its nodes. They learn of the cancellation with their next commit or renewal, and
 * return finished lines. OpenAI allows ten minutes.
 */
const CANCEL_MS = 30_000;
/** How long a canceled batch tries to write its files, so that it ends even if the file store is unavailable. */
const CANCEL_FILES_MS = 600_000;
/** A batch with this many lines that each ended the engines of three nodes is given up. */
const CRASHING_LINES_MAX = 3;

interface StepsOptions {
  env: Env;
  ctx: ObjectContext;
  record: BatchRecord;
  budget: MonthlyBudget;
  obstacle: Obstacle;
  /** On how many nodes the batch's function is. Null: unknown, or no function. */
  contexts(): ContextCounts | null;
  /** Announces to the queues that the batch needs nodes. */
  offer(): void;
}

export class BatchSteps {
  readonly #options: StepsOptions;
  readonly #lost = new LostNodes();
  #account: Account | undefined;
  #others = false;
  #isClosed = false;
  /** Lines that failed because they ended engines. Not kept over a restart. */
  #crashingLines = 0;

  constructor(options: StepsOptions) {
    this.#options = options;
  }

  /** The batch's account as read a few seconds ago. */
  get account(): Account | undefined {
    return this.#account;
  }

  /** True if several nodes serve the batch's models. A line that failed at one node is then tried at another. */
  get canOthersTry(): boolean {
    return this.#others;
  }

  /**
   * True as soon as the gateway begins to write the output files, because a later result would not be in them. A
   * canceled or expired batch keeps its previous status until the files are written.
   */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Takes no further results, because the batch is being deleted. */
  close(): void {
    this.#isClosed = true;
  }

  /**
   * Runs one step. A failed step is retried: without a limit if a store, the database or another object is unavailable,
   * otherwise up to FAULTS_MAX times.
   * @returns milliseconds until the next step
   */
  async run(spec: BatchSpec): Promise<number> {
    const { env, record, obstacle } = this.#options;
    try {
      const nextMs = await this.#step(spec, record.state.status);
      if (record.spec !== undefined) record.sample(this.#now);
      obstacle.passed();
      return nextMs;
    } catch (error) {
      // The batch may have been forgotten meanwhile.
      if (record.spec === undefined) await discardFiles(env, spec.id, this.#now);
      else await this.#failed(spec.id, error);
      return RETRY_MS;
    }
  }

  /**
   * Forwards the usage of lines. Uses the account as last read, not as it was at the batch's creation, so that limits
   * that were set since then count the usage.
   */
  forwardUsage(spec: BatchSpec): Promise<void> {
    const { env, record } = this.#options;
    return record.billing.handOn(env, { ...spec, account: this.#account ?? spec.account }, record);
  }

  async #failed(id: string, error: unknown): Promise<void> {
    const { obstacle } = this.#options;
    const why = errorText(error);
    if (!isUnavailable(error) && obstacle.recurs(why)) {
      console.error(`batch ${id}: ${why}; the batch failed`);
      return this.#giveUp(id, stepGivenUp(why));
    }
    obstacle.record(ownerMessage(error), this.#now);
    console.error(`batch ${id}: ${why}; trying again in ${RETRY_MS} ms`);
  }

  /**
   * Ends the batch because its next step cannot be done. Existing results are written to files, unless the failing step
   * writes files.
   */
  async #giveUp(id: string, message: string): Promise<void> {
    const { env, record, obstacle } = this.#options;
    obstacle.passed();
    const { status } = record.state;
    const givenUp = { code: 'engine_failed' as const, why: message };
    if (status === 'in_progress') return void record.move('finalizing', this.#now, { givenUp });
    const outputs = outputsOf(record);
    record.endWithoutFiles(status === 'cancelling' ? 'cancelled' : 'failed', this.#now, message);
    await discardFiles(env, id, this.#now, outputs).catch(() => {});
  }

  async #step(spec: BatchSpec, status: BatchStatus): Promise<number> {
    const { record } = this.#options;
    switch (status) {
      case 'validating':
        await this.#check(spec);
        return 0;
      case 'in_progress':
        return this.#work(spec);
      case 'finalizing':
        await this.#finish(spec, 'completed', record.state.givenUp?.code ?? 'engine_failed');
        return 0;
      case 'cancelling':
        return this.#cancel(spec);
      default:
        return TURN_MS;
    }
  }

  /** Waits for results of running lines, and then ends the canceled batch. */
  async #cancel(spec: BatchSpec): Promise<number> {
    const { record } = this.#options;
    const { ledger } = record;
    await this.#releaseLost();
    ledger.expire(this.#now);
    const endsAt = (record.state.times.cancelling_at ?? 0) * 1_000 + CANCEL_MS;
    if (ledger.leases.length > 0 && this.#now < endsAt) return 1_000;
    if (this.#now < endsAt + CANCEL_FILES_MS) await this.#finish(spec, 'cancelled', 'batch_cancelled');
    else {
      const outputs = outputsOf(record);
      record.endWithoutFiles('cancelled', this.#now, CANCELLED_WITHOUT_FILES);
      await discardFiles(this.#options.env, spec.id, this.#now, outputs).catch(() => {});
    }
    return 0;
  }

  /** Ends the leases of nodes that are gone according to the current view of the registry. Returns the view. */
  async #releaseLost(): Promise<RegistrySnapshot> {
    const { env, ctx, record } = this.#options;
    const view = await isolateSnapshot.get(env, ctx, this.#now, () => true);
    this.#lost.release(record.ledger, view, this.#now, ({ ref, line }, { provider }) => {
      const at = { provider, gpus: 0, others: false, nowMs: this.#now };
      const { again } = record.commit(ref, [endedWithEngine(line)], at);
      if (again.length === 0) this.#crashingLines += 1;
    });
    return view;
  }

  async #work(spec: BatchSpec): Promise<number> {
    const { env, record, budget, contexts, offer } = this.#options;
    const { ledger } = record;
    const expiresMs = record.state.times.expires_at * 1_000;
    const view = await this.#releaseLost();
    if (this.#crashingLines >= CRASHING_LINES_MAX) {
      await this.#giveUp(spec.id, ENGINES_ENDED);
      return 0;
    }
    const readyOf = (model: string) => view.model(model)?.ready.length ?? 0;
    this.#others = canOthersTry(record, contexts(), readyOf);
    const leaseEnd = ledger.expire(this.#now) ?? Number.POSITIVE_INFINITY;
    record.store();
    const isOver = ledger.open === 0 && record.waiting.all.length === 0;
    if (isOver || record.state.givenUp !== undefined) {
      record.move('finalizing', this.#now);
      return 0;
    }
    if (this.#now >= expiresMs) {
      await this.#finish(spec, 'expired', 'batch_expired');
      return 0;
    }
    this.#account = await currentAccount(env, this.#account ?? spec.account, this.#now);
    if (this.#account === undefined) {
      record.move('cancelling', this.#now);
      return 0;
    }
    await this.forwardUsage(spec);
    const models = [...new Set(record.demands.map(({ model }) => model))];
    await budget.refresh(env, this.#account.keyId, this.#account.limits, models);
    const lookMs = await resolveLines({ env, record, spec, nowMs: this.#now });
    if (record.spec === undefined) return 0;
    offer();
    return Math.max(100, Math.min(TURN_MS, lookMs, leaseEnd - this.#now, expiresMs - this.#now));
  }

  /** Checks the input. Fails the batch on any error in it. */
  async #check(spec: BatchSpec): Promise<void> {
    const { env, record, obstacle, offer } = this.#options;
    const expiresMs = record.state.times.expires_at * 1_000;
    // The batch is not in its owner's list, because its creator stopped before it inserted the row.
    if (record.state.listed !== true && !(await isListed(env, spec.id))) return record.forget();
    if (this.#now >= expiresMs) return void record.move('failed', this.#now, { errors: [INPUT_LOST] });
    const outcome = await checkInput(env, spec, this.#now);
    // The batch may have been canceled while its input was read.
    if (record.state.status !== 'validating') return;
    if ('errors' in outcome) return void record.move('failed', this.#now, outcome);
    record.begin(outcome.checked, this.#now, outcome.made);
    obstacle.clear();
    offer();
  }

  async #finish(spec: BatchSpec, to: 'completed' | 'expired' | 'cancelled', unexecuted: LineErrorCode): Promise<void> {
    const { env, record } = this.#options;
    this.#isClosed = true;
    record.endWaiting();
    await this.forwardUsage(spec);
    const files = await writeFiles({ env, record, spec, to, unexecuted, nowMs: this.#now });
    record.end(to, this.#now, files);
  }

  get #now(): number {
    return this.#options.ctx.clock.now();
  }
}

/** All files that the batch's calls wrote. */
function outputsOf({ outputs }: BatchRecord): string[] {
  return [...outputs.ids({ named: true }), ...outputs.ids({ named: false })];
}
