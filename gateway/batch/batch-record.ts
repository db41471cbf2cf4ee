import type { CheckedInput } from '../../shared/batch/batch-input-check.ts';
import { type BatchStatus, initialTimes, isTerminal, transition } from '../../shared/batch/batch-status.ts';
import { LeaseLedger, type LeaseRef } from '../../shared/batch/lease-ledger.ts';
import { isSuccess, type LineResult, LOG_MAX } from '../../shared/batch/line-results.ts';
import type { ObjectStorage } from '../platform/object-context.ts';
import { type ArrivedPage, arrivedPage } from './arrived-results.ts';
import { BatchOutputs } from './batch-outputs.ts';
import { BatchRates } from './batch-rates.ts';
import { BatchRows } from './batch-rows.ts';
import { BatchSeries } from './batch-series.ts';
import {
  type BatchFunction,
  type BatchObjectJson,
  type BatchSpec,
  batchJson,
  NO_BATCH_USAGE,
  type StoredBatchState,
  type WrittenFiles,
} from './batch-spec.ts';
import { BatchUsageOutbox } from './batch-usage-outbox.ts';
import { appendResolved, appendWaiting, type ResolvedLine } from './dependencies/append-lines.ts';
import { Dependents } from './dependencies/dependents.ts';
import { WaitingLines } from './dependencies/waiting-lines.ts';
import { withinGpuTime } from './gpu-time.ts';
import type { ContextCounts } from './leases/node-contexts.ts';
import { lineBytes, lineUsage } from './line-usage.ts';
import {
  bounded,
  failed,
  givenUpAfter,
  isEngineFailure,
  withoutFiles,
  withoutGpuTime,
  withoutItsFile,
} from './line-verdicts.ts';

/** The node that commits, and the time. */
interface CommitSource {
  provider: string;
  gpus: number;
  log?: string;
  others: boolean;
  nowMs: number;
}

/** The result of a commit. */
interface CommitResult {
  /** True if the lease is still valid. */
  leased: boolean;
  /** Lines that failed in the engine and must be run again. */
  again: number[];
  /**
   * Number of failed lines that another node should try. The committing node returns its lease after its remaining
   * lines, so that another node can get these lines.
   */
  elsewhere: number;
  /** Tokens of the results that were accepted. */
  tokens: number;
  /** GPU time of the results that were accepted. */
  gpuMs: number;
}

/**
 * The answer to the node that committed. `stop`: no result of the lease is needed any more. `keep`: the number of
 * lines that have not begun and stay at the node, because other nodes are idle.
 */
export type CommitAnswer = Omit<CommitResult, 'tokens' | 'gpuMs'> & { stop: boolean; keep?: number };

/** A stored batch, and every change to it. Synchronous, so that the changes of one call are committed together. */
export class BatchRecord {
  readonly #rows: BatchRows;
  readonly #rates = new BatchRates();
  /**
   * Maximum bytes of all results together, and of each output file. Lines whose results exceed this maximum get an
   * error.
   */
  readonly maxBytes: number;
  readonly billing: BatchUsageOutbox;
  readonly series: BatchSeries;
  readonly outputs: BatchOutputs;
  /** Lines that wait for results of other batches. */
  readonly waiting: WaitingLines;
  readonly dependents: Dependents;
  #ledger: LeaseLedger | undefined;
  /** Cached function. Read once, because its code may have half a MiB. */
  #function: { made: BatchFunction | undefined } | undefined;

  constructor(storage: ObjectStorage, maxBytes: number) {
    this.maxBytes = maxBytes;
    this.#rows = new BatchRows(storage);
    this.billing = new BatchUsageOutbox(storage);
    this.series = new BatchSeries(storage);
    this.outputs = new BatchOutputs(storage);
    this.waiting = new WaitingLines(storage);
    this.dependents = new Dependents(storage);
  }

  get spec(): BatchSpec | undefined {
    return this.#rows.spec;
  }

  get state(): StoredBatchState {
    const { state } = this.#rows;
    if (state === undefined) throw new Error('there is no such batch');
    return state;
  }

  get demands() {
    return this.#rows.demands;
  }

  get ledger(): LeaseLedger {
    this.#ledger ??= new LeaseLedger(this.#rows.chunks());
    return this.#ledger;
  }

  get function(): BatchFunction | undefined {
    this.#function ??= { made: this.#rows.function };
    return this.#function.made;
  }

  get log(): string {
    return this.#rows.log;
  }

  results(chunk: number): Map<number, LineResult> {
    return this.#rows.results(chunk);
  }

  resultsOf(chunk: number, seq: number): LineResult[] {
    return this.#rows.resultsOf(chunk, seq);
  }

  /** Returns the results that followed the commit with this number. */
  arrivedAfter(after: number): ArrivedPage {
    const { ledger } = this;
    return arrivedPage({
      arrivals: (most) => this.#rows.arrivals(after, most),
      resultsOf: (chunk, seq) => this.resultsOf(chunk, seq),
      chunk: (id) => ledger.chunks[id],
    });
  }

  create(spec: BatchSpec, nowMs: number): void {
    this.#rows.spec = spec;
    this.#rows.state = {
      status: 'validating',
      times: initialTimes(nowMs / 1_000, spec.windowS),
      paused: false,
      model: null,
      errors: [],
      counts: { total: 0, completed: 0, failed: 0 },
      usage: NO_BATCH_USAGE,
      outputFileId: null,
      errorFileId: null,
      wastedTokens: 0,
      requeued: 0,
    };
  }

  /** Changes the status. @returns false if the current status does not allow the change */
  move(to: Exclude<BatchStatus, 'validating'>, nowMs: number, change: Partial<StoredBatchState> = {}): boolean {
    const { state } = this;
    const next = transition(state.status, to, state.times, nowMs / 1_000);
    if (next === undefined) return false;
    this.#rows.state = { ...state, ...change, ...next };
    return true;
  }

  setListed(): void {
    this.#rows.state = { ...this.state, listed: true };
  }

  setPaused(paused: boolean): void {
    this.#rows.state = { ...this.state, paused };
  }

  /** Makes the lines available for leases, after the input was found valid. */
  begin(
    { chunks, demands, lines, model, waiting = [] }: CheckedInput,
    nowMs: number,
    made: BatchFunction | undefined,
  ): void {
    const ledger = new LeaseLedger(LeaseLedger.chunksOf(chunks));
    this.#rows.store(ledger.chunks);
    this.waiting.add(waiting);
    this.#rows.demands = demands;
    if (made !== undefined) this.#rows.function = made;
    this.#function = { made };
    this.#ledger = ledger;
    this.move('in_progress', nowMs, { model: model ?? null, counts: { total: lines, completed: 0, failed: 0 } });
  }

  /** Ends the batch, after its results were written to their files. */
  end(to: 'completed' | 'expired' | 'cancelled', nowMs: number, { leftOut, ...files }: WrittenFiles): void {
    const requeued = this.state.requeued + this.ledger.requeued;
    const { counts, givenUp } = this.state;
    const completed = counts.completed - leftOut;
    // The lines without a result count as failed if the function was given up. In a canceled or expired batch they do
    // not count, because they were not run.
    const failed = givenUp === undefined ? counts.failed + leftOut : counts.total - completed;
    if (this.move(to, nowMs, { ...files, requeued, counts: { ...counts, completed, failed } })) this.#ended(nowMs);
  }

  /** @param message the reason why there are no files */
  endWithoutFiles(to: 'cancelled' | 'failed', nowMs: number, message: string): void {
    const errors = [{ code: 'batch_given_up', message, param: null, line: null }];
    if (this.move(to, nowMs, { errors, requeued: this.requeued })) this.#ended(nowMs);
  }

  /** Deletes what only a running batch needs. Results stay for batches that need them. */
  #ended(nowMs: number): void {
    this.outputs.forget();
    this.#ledger = undefined;
    this.forgetResults(nowMs);
  }

  /** Deletes the results of an ended batch, unless another batch needs them. */
  forgetResults(nowMs: number): void {
    if (this.dependents.lastMs(nowMs) !== undefined) return;
    this.#rows.forgetResults();
    this.waiting.forget();
    this.dependents.forget();
    this.#ledger = undefined;
  }

  /** Makes lines available that got the results of other batches, and fails those that cannot get them. */
  resolve(lines: readonly ResolvedLine[], nowMs: number): void {
    for (const { chunk, results } of appendResolved(this.ledger, this.waiting, lines)) {
      this.#rows.addResults(chunk.id, results);
      this.#count(results, [], 0, nowMs);
    }
    this.store();
  }

  /** Lines that still wait get no results any more, so that the files of the batch name them as not executed. */
  endWaiting(): void {
    appendWaiting(this.ledger, this.waiting);
    this.store();
  }

  /** Deletes everything: the batch no longer exists. */
  forget(): void {
    this.#rows.forget();
    this.series.forget();
    this.outputs.forget();
    this.waiting.forget();
    this.dependents.forget();
    this.#ledger = undefined;
    this.#function = undefined;
  }

  /** Stores the chunks that the ledger has changed. */
  store(): void {
    const { changed } = this.ledger;
    this.#rows.store(changed);
    changed.clear();
  }

  /**
   * Stores results of lines. The first result of a line counts; later ones are dropped, and their usage is not
   * recorded.
   * @param others whether another node could try a line that failed at this node @param gpus of the node @param log output of the function; kept if the node brought a result
   */
  commit(
    ref: LeaseRef,
    given: readonly LineResult[],
    { provider, gpus, log = '', others, nowMs }: CommitSource,
  ): CommitResult {
    const { ledger } = this;
    const sent = given.map((one) =>
      one.files?.every((id) => this.outputs.isStored(id)) === false ? withoutItsFile(one) : one,
    );
    const results =
      this.function === undefined ? sent.map(withoutGpuTime) : withinGpuTime(ledger, ref, sent, gpus, nowMs);
    const again: number[] = [];
    let elsewhere = 0;
    const final: LineResult[] = [];
    let bytes = this.state.resultBytes ?? 0;
    let exhausted: LineResult | undefined;
    for (const result of results) {
      if (!isEngineFailure(result)) {
        const kept = bounded(result, this.maxBytes - bytes);
        bytes += kept.body.length;
        final.push(kept);
        continue;
      }
      const verdict = ledger.engineFailed(ref, result.line);
      if (verdict === 'again' && others) elsewhere += 1;
      else if (verdict === 'again') again.push(result.line);
      if (verdict !== 'exhausted') continue; // the line runs again, has a result, or belongs to another lease
      final.push(failed(result));
      exhausted = result;
    }
    const lines = final.map(({ line }) => line);
    const open = new Set(ledger.commit(ref, lines, nowMs));
    const counted: LineResult[] = [];
    const wasted: LineResult[] = [];
    for (const result of final) (open.delete(result.line) ? counted : wasted).push(result);
    if (counted.length > 0) {
      const seq = this.#rows.addResults(ref.chunk, counted.map(withoutFiles));
      this.outputs.setNamed(counted.flatMap(({ files = [] }) => files));
      this.billing.add({ chunk: ref.chunk, seq, node: ref.node, provider, at: nowMs });
      if (log !== '' && this.function !== undefined) this.#rows.log = `${this.#rows.log}${log}`.slice(-LOG_MAX.batch);
    }
    const gpuMs = counted.reduce((sum, { gpu_ms: ms = 0 }) => sum + ms, 0);
    const tokens = this.#count(counted, wasted, lineBytes(ledger.chunks[ref.chunk]), nowMs);
    const givenUp = exhausted && this.function && givenUpAfter(exhausted, this.state);
    if (givenUp) this.#rows.state = { ...this.state, givenUp };
    if (elsewhere > 0) ledger.avoid(ref, nowMs);
    this.store();
    const leased = ledger.leases.some(({ chunk, lease }) => chunk.id === ref.chunk && lease.epoch === ref.epoch);
    return { leased, again, elsewhere, tokens, gpuMs };
  }

  /** Adds results to the counts. @returns the number of used tokens */
  #count(counted: readonly LineResult[], wasted: readonly LineResult[], inputBytes: number, nowMs: number): number {
    const { state } = this;
    const good = counted.filter((result) => result.error === undefined && isSuccess(result)).length;
    const usage = { ...state.usage };
    const before = { input: usage.input, output: usage.output };
    for (const used of counted.map((result) => lineUsage(result, inputBytes))) {
      usage.input += used.input;
      usage.cached += used.cached;
      usage.output += used.output;
      usage.reasoning += used.reasoning;
    }
    this.#rates.add(nowMs, counted.length, usage.output - before.output);
    const { total, completed, failed: bad } = state.counts;
    this.#rows.state = {
      ...state,
      usage,
      counts: { total, completed: completed + good, failed: bad + counted.length - good },
      gpuMs: counted.reduce((sum, { gpu_ms: ms = 0 }) => sum + ms, state.gpuMs ?? 0),
      resultBytes: counted.reduce((sum, { body }) => sum + body.length, state.resultBytes ?? 0),
      wastedTokens: state.wastedTokens + wasted.reduce((sum, result) => sum + lineUsage(result, inputBytes).output, 0),
    };
    return usage.input - before.input + usage.output - before.output;
  }

  /** Tokens that leased lines are expected to use, from the mean of finished lines. */
  get runningTokens(): number {
    const { usage, counts } = this.state;
    const done = counts.completed + counts.failed;
    if (done === 0) return 0;
    return (this.ledger.leased * (usage.input + usage.output)) / done;
  }

  /** Counts a lease. @param ready contexts that are loaded on the node */
  countLease(ready: readonly string[]): void {
    const { leases: { all, warm } = { all: 0, warm: 0 } } = this.state;
    const isWarm = this.function !== undefined && ready.includes(this.function.context);
    this.#rows.state = { ...this.state, leases: { all: all + 1, warm: warm + Number(isWarm) } };
  }

  /** Adds a sample to the course of the batch. */
  sample(nowMs: number): void {
    const { status, counts, gpuMs = 0, leases } = this.state;
    if (counts.total === 0) return;
    const nodes = status === 'in_progress' ? new Set(this.ledger.leases.map(({ lease }) => lease.node)).size : 0;
    const { completed, failed: bad } = counts;
    const counted = { leases: leases?.all ?? 0, warm_leases: leases?.warm ?? 0, requeued: this.requeued };
    const at = Math.floor(nowMs / 1_000);
    const isLast = isTerminal(status);
    this.series.add({ at, nodes, completed, failed: bad, gpu_seconds: gpuMs / 1_000, ...counted }, isLast);
  }

  linesPerS(nowMs: number): number {
    return this.#rates.linesPerS(nowMs);
  }

  /** Number of lines that were leased and became open again. */
  get requeued(): number {
    const { requeued, status } = this.state;
    const works = status === 'in_progress' || status === 'cancelling';
    return requeued + (works ? this.ledger.requeued : 0);
  }

  /** Returns the batch object. @param waitingFor why the batch makes no progress now @param contexts nodes with its function */
  shown(nowMs: number, waitingFor: string | null, contexts: ContextCounts | null = null): BatchObjectJson {
    const { spec, state } = this;
    if (spec === undefined) throw new Error('there is no such batch');
    const works = state.status === 'in_progress' || state.status === 'cancelling';
    const leases = works ? this.ledger.leases : [];
    const open = state.counts.total - state.counts.completed - state.counts.failed;
    const { requeued } = this;
    return batchJson(
      spec,
      { ...state, requeued },
      {
        leased: works ? this.ledger.leased : 0,
        nodes: new Set(leases.map(({ lease }) => lease.node)).size,
        waitingFor,
        contexts,
        ...this.#rates.shown(nowMs, open),
      },
    );
  }
}
