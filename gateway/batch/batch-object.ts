import { type Demands, InputCheck } from '../../shared/batch/input-check.ts';
import { type Grant, type LeaseRef, Ledger } from '../../shared/batch/ledger.ts';
import { isSuccess, type LineErrorCode, RESULT_MAX_BYTES } from '../../shared/batch/results.ts';
import { type BatchStatus, isTerminal, moved, newTimes, takesResults } from '../../shared/batch/status.ts';
import { mayUseModel } from '../accounts/account.ts';
import { asked, database } from '../accounts/database.ts';
import { files } from '../accounts/schema.ts';
import type { Env } from '../env.ts';
import type { FileStore } from '../files/file-store.ts';
import { newFileId, storeOf } from '../files/routes.ts';
import { GatewayObject } from '../gateway-object.ts';
import type { ObjectContext } from '../object-context.ts';
import { BatchRows, type LineResult } from './batch-rows.ts';
import { type BatchObjectJson, type BatchSpec, type BatchState, batchObject, NO_USAGE } from './batch-spec.ts';
import { outputLines } from './output.ts';
import { Progress } from './progress.ts';
import { saveSummary } from './summary.ts';
import { usageOf, usageRow } from './usage.ts';

/** A lease without a sign of life for so long has ended. Nodes renew at a third of it. */
export const LEASE_MS = 60_000;
/** While a batch is at work its object looks after it this often, and tells the queues of its models that it wants nodes. */
const TURN_MS = 10_000;
/** What could not be done is tried again after this. */
const AGAIN_MS = 5_000;
/** Lines in flight may end for this long after a cancel. OpenAI allows ten minutes. */
const CANCEL_MS = 30_000;
/** Default life of output files. */
const OUTPUT_S = 30 * 86_400;
const OUTPUT_MAX_BYTES = 5_000_000_000;

/** What a lease tells a node. */
export interface GrantedLease {
  batch: string;
  endpoint: string;
  chunk: number;
  epoch: number;
  /** Lines to run, by their index in the chunk. */
  open: number[];
  bytes: number;
  prefix: number;
  leaseMs: number;
}

/** What a node must meet, for the caller that filters: see demands in shared/batch/input-check. */
export interface BatchAdmission {
  account: BatchSpec['account'];
  endpoint: string;
  demands: Demands[];
}

/**
 * One batch: its input check, leases, results and output files. Every step is stored before it counts, so that the process may end at any
 * moment. The alarm carries it on.
 */
export class BatchObject extends GatewayObject {
  readonly #rows: BatchRows;
  #ledger: Ledger | undefined;
  readonly #progress = new Progress();

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#rows = new BatchRows(ctx.storage);
  }

  /** Idempotent. The check of the input begins at once, beside the caller. */
  async create(spec: BatchSpec): Promise<BatchObjectJson> {
    if (this.#rows.spec === undefined) {
      this.#rows.spec = spec;
      this.#rows.state = {
        status: 'validating',
        times: newTimes(this.ctx.clock.now() / 1_000, spec.windowS),
        paused: false,
        model: null,
        errors: [],
        counts: { total: 0, completed: 0, failed: 0 },
        usage: NO_USAGE,
        outputFileId: null,
        errorFileId: null,
        wastedTokens: 0,
        requeued: 0,
      };
    }
    await this.ctx.storage.setAlarm(this.ctx.clock.now());
    return this.#shown();
  }

  show(): BatchObjectJson | null {
    return this.#rows.spec === undefined ? null : this.#shown();
  }

  /** After a restart: the alarm is stored, but one that a host lost is set again. */
  async wake(): Promise<void> {
    const { state } = this.#rows;
    if (state !== undefined && !isTerminal(state.status)) await this.ctx.storage.setAlarm(this.ctx.clock.now());
  }

  /** @returns the object, or the state that forbids it */
  async cancel(): Promise<BatchObjectJson | { refused: BatchStatus }> {
    const { status } = this.#stateNow();
    if (status === 'cancelled' || status === 'cancelling') return this.#shown();
    if (!this.#move('cancelling')) return { refused: status };
    await this.ctx.storage.setAlarm(this.ctx.clock.now());
    return this.#shown();
  }

  async pause(paused: boolean): Promise<BatchObjectJson | { refused: BatchStatus }> {
    const state = this.#stateNow();
    if (isTerminal(state.status)) return { refused: state.status };
    this.#rows.state = { ...state, paused };
    await this.ctx.storage.setAlarm(this.ctx.clock.now());
    return this.#shown();
  }

  /** Null: no node may be leased anything now. */
  admission(): BatchAdmission | null {
    const { spec, state } = this.#rows;
    if (spec === undefined || state?.status !== 'in_progress' || state.paused) return null;
    return { account: spec.account, endpoint: spec.endpoint, demands: this.#rows.demands };
  }

  /** @param allowed indexes of the demands that the node meets */
  grant(node: string, allowed: readonly number[], prefix: number | undefined): GrantedLease | null {
    const { spec, state } = this.#rows;
    if (spec === undefined || state?.status !== 'in_progress' || state.paused) return null;
    const ledger = this.#ledgerNow();
    const now = this.ctx.clock.now();
    ledger.expire(now);
    const grant = ledger.grant(node, now, LEASE_MS, (demands) => allowed.includes(demands), prefix);
    this.#store();
    return grant === undefined ? null : leaseOf(spec, grant);
  }

  /** Where the bytes of a leased chunk are; null: the lease has ended. */
  range(ref: LeaseRef): { file: string; offset: number; length: number } | null {
    const { spec } = this.#rows;
    const ledger = this.#ledgerNow();
    if (spec === undefined || !ledger.renew(ref, this.ctx.clock.now(), LEASE_MS)) return null;
    const chunk = ledger.chunks[ref.chunk];
    return chunk === undefined ? null : { file: spec.inputFileId, offset: chunk.offset, length: chunk.bytes };
  }

  /** @returns whether the lease stands: a node whose lease has ended stops the lines that it has not begun */
  renew(ref: LeaseRef): boolean {
    return takesResults(this.#stateNow().status) && this.#ledgerNow().renew(ref, this.ctx.clock.now(), LEASE_MS);
  }

  release(ref: LeaseRef): void {
    this.#ledgerNow().release(ref);
    this.#store();
    this.#offer();
  }

  /**
   * Takes results of lines. The first result of a line counts; what came second is dropped and not billed.
   * @returns whether the lease stands, and which failed lines are to be tried again
   */
  async commit(
    ref: LeaseRef,
    results: readonly LineResult[],
    provider: string,
  ): Promise<{ leased: boolean; again: number[] }> {
    const { spec } = this.#rows;
    if (spec === undefined || !takesResults(this.#stateNow().status)) return { leased: false, again: [] };
    const ledger = this.#ledgerNow();
    const now = this.ctx.clock.now();
    const again: number[] = [];
    const final: LineResult[] = [];
    for (const result of results) {
      if (!isEngineFailure(result)) final.push(bounded(result));
      else if (ledger.engineFailed(ref, result.line) === 'again') again.push(result.line);
      else final.push(failed(result));
    }
    const taken = new Set(
      ledger.commit(
        ref,
        final.map(({ line }) => line),
        now,
      ),
    );
    const counted = final.filter(({ line }) => taken.delete(line));
    this.#rows.addResults(ref.chunk, counted);
    this.#count(
      counted,
      final.filter((result) => !counted.includes(result)),
      now,
    );
    this.#store();
    this.ctx.waitUntil(this.#bill(spec, counted, ref, provider, now));
    if (ledger.open === 0) await this.ctx.storage.setAlarm(now);
    return {
      leased: ledger.leases.some(({ chunk, lease }) => chunk.id === ref.chunk && lease.epoch === ref.epoch),
      again,
    };
  }

  /** One step, then the next alarm. A step that fails is tried again: nothing is given up because a store was away. */
  async alarm(): Promise<void> {
    const { spec, state } = this.#rows;
    if (spec === undefined || state === undefined || isTerminal(state.status)) return;
    let nextMs = AGAIN_MS;
    try {
      nextMs = await this.#step(spec, state);
    } catch (error) {
      console.error(
        `batch ${spec.id}: ${error instanceof Error ? error.message : error}; tried again in ${AGAIN_MS} ms`,
      );
    }
    const after = this.#stateNow();
    if (!isTerminal(after.status)) await this.ctx.storage.setAlarm(this.ctx.clock.now() + nextMs);
    await saveSummary(this.env, spec, this.#shown()).catch(() => {});
  }

  async #step(spec: BatchSpec, state: BatchState): Promise<number> {
    const now = this.ctx.clock.now();
    switch (state.status) {
      case 'validating':
        await this.#check(spec);
        return 0;
      case 'in_progress': {
        const ledger = this.#ledgerNow();
        const leaseEnd = ledger.expire(now);
        this.#store();
        if (ledger.open === 0) {
          this.#move('finalizing');
          return 0;
        }
        if (now >= state.times.expires_at * 1_000) {
          await this.#finish(spec, 'expired', 'batch_expired');
          return 0;
        }
        this.#offer();
        return Math.max(
          100,
          Math.min(TURN_MS, (leaseEnd ?? Number.POSITIVE_INFINITY) - now, state.times.expires_at * 1_000 - now),
        );
      }
      case 'finalizing':
        await this.#finish(spec, 'completed', 'engine_failed');
        return 0;
      case 'cancelling': {
        const ledger = this.#ledgerNow();
        ledger.expire(now);
        const begun = (state.times.cancelling_at ?? 0) * 1_000;
        if (ledger.leases.length > 0 && now - begun < CANCEL_MS) return 1_000;
        await this.#finish(spec, 'cancelled', 'batch_cancelled');
        return 0;
      }
      default:
        return TURN_MS;
    }
  }

  /** Reads the input once. Fails the batch on any error in it. */
  async #check(spec: BatchSpec): Promise<void> {
    const store = storeOf(this.env);
    const content = spec.inputExists ? await store.read(spec.inputFileId) : undefined;
    const check = new InputCheck({
      endpoint: spec.endpoint,
      allowMixedModels: spec.allowMixedModels,
      allowsModel: (model) => mayUseModel(spec.account, model),
    });
    if (content !== undefined) for await (const piece of content) check.push(piece);
    // Cancelled while it was read.
    if (this.#stateNow().status !== 'validating') return;
    const checked = content === undefined ? undefined : check.end();
    const errors = checked?.errors ?? [NO_INPUT];
    const state = this.#stateNow();
    if (checked === undefined || errors.length > 0) {
      this.#rows.state = { ...state, errors, model: checked?.model ?? null };
      this.#move('failed');
      return;
    }
    const ledger = new Ledger(Ledger.chunksOf(checked.chunks));
    this.#rows.store(ledger.chunks);
    this.#rows.demands = checked.demands;
    this.#rows.state = { ...state, model: checked.model ?? null, counts: { ...state.counts, total: checked.lines } };
    this.#ledger = ledger;
    this.#move('in_progress');
    this.#offer();
  }

  /** Writes both files, then the state and their ids in one turn. What a broken run left has a name that no row knows. */
  async #finish(spec: BatchSpec, to: 'completed' | 'expired' | 'cancelled', unexecuted: LineErrorCode): Promise<void> {
    const store = storeOf(this.env);
    const state = this.#stateNow();
    const [outputFileId, errorFileId] = [true, false].map(() => newFileId());
    const { counts } = state;
    const output = counts.completed === 0 ? null : await this.#write(store, spec, outputFileId ?? '', true, unexecuted);
    const rest =
      counts.total === counts.completed ? null : await this.#write(store, spec, errorFileId ?? '', false, unexecuted);
    const before = this.#stateNow();
    const time = moved(before.status, to, before.times, this.ctx.clock.now() / 1_000);
    if (time === undefined) return;
    this.#rows.state = { ...before, ...time, outputFileId: output, errorFileId: rest };
    this.#rows.forgetResults();
    this.#ledger = undefined;
  }

  async #write(
    store: FileStore,
    spec: BatchSpec,
    id: string,
    successes: boolean,
    unexecuted: LineErrorCode,
  ): Promise<string> {
    const { chunks } = this.#ledgerNow();
    const results = (chunk: number) => this.#rows.results(chunk);
    const lines = outputLines({
      batch: spec.id,
      input: spec.inputFileId,
      store,
      chunks,
      results,
      successes,
      unexecuted,
    });
    const { bytes } = await store.put(id, lines, OUTPUT_MAX_BYTES);
    const createdAt = this.ctx.clock.now();
    const expiresAt = createdAt + (spec.outputExpiresS ?? OUTPUT_S) * 1_000;
    const filename = `${spec.id}_${successes ? 'output' : 'error'}.jsonl`;
    const row = {
      id,
      owner: spec.owner,
      createdBy: spec.account.keyId,
      purpose: 'batch_output',
      filename,
      bytes,
      createdAt,
      expiresAt,
    };
    await asked(database(this.env).insert(files).values(row));
    return id;
  }

  #count(counted: readonly LineResult[], wasted: readonly LineResult[], now: number): void {
    const state = this.#stateNow();
    const good = counted.filter((result) => result.error === undefined && isSuccess(result)).length;
    const usage = { ...state.usage };
    let tokens = 0;
    for (const result of counted) {
      const used = usageOf(result);
      usage.input += used.input;
      usage.cached += used.cached;
      usage.output += used.output;
      usage.reasoning += used.reasoning;
      tokens += used.output;
    }
    const lost = wasted.reduce((sum, result) => sum + usageOf(result).output, 0);
    this.#progress.add(now, counted.length, tokens);
    this.#rows.state = {
      ...state,
      usage,
      counts: {
        ...state.counts,
        completed: state.counts.completed + good,
        failed: state.counts.failed + counted.length - good,
      },
      wastedTokens: state.wastedTokens + lost,
    };
  }

  async #bill(
    spec: BatchSpec,
    results: readonly LineResult[],
    ref: LeaseRef,
    provider: string,
    now: number,
  ): Promise<void> {
    const rows = results
      .filter(({ error }) => error === undefined)
      .map((result) => usageRow(spec, result, ref, provider, now, this.#rows.state?.model ?? ''));
    const [first] = rows;
    if (first === undefined) return;
    const { shardOf } = await import('../usage/row.ts');
    await this.env.USAGE.getByName(shardOf(first.at)).add(rows);
  }

  /** Tells the queue of each model that this batch wants nodes. */
  #offer(): void {
    const { spec, state } = this.#rows;
    if (spec === undefined || state?.status !== 'in_progress' || state.paused) return;
    const ledger = this.#ledgerNow();
    const now = this.ctx.clock.now();
    const contender = {
      id: spec.id,
      project: spec.owner,
      expiresMs: state.times.expires_at * 1_000,
      waiting: ledger.waiting,
      leased: ledger.open - ledger.waiting,
      linesPerS: this.#progress.linesPerS(now),
    };
    if (ledger.open === 0) return;
    for (const model of new Set(this.#rows.demands.map((demands) => demands.model)))
      this.ctx.waitUntil(
        this.env.BATCH_QUEUE.getByName(model)
          .offer(contender, now + 3 * TURN_MS)
          .catch(() => {}),
      );
  }

  #move(to: Exclude<BatchStatus, 'validating'>): boolean {
    const state = this.#stateNow();
    const next = moved(state.status, to, state.times, this.ctx.clock.now() / 1_000);
    if (next === undefined) return false;
    this.#rows.state = { ...state, ...next };
    return true;
  }

  #shown(): BatchObjectJson {
    const { spec } = this.#rows;
    if (spec === undefined) throw new Error('no such batch');
    const state = this.#stateNow();
    const leases = state.status === 'in_progress' || state.status === 'cancelling' ? this.#ledgerNow().leases : [];
    const now = this.ctx.clock.now();
    const open = state.counts.total - state.counts.completed - state.counts.failed;
    return batchObject(
      spec,
      { ...state, requeued: state.requeued + (this.#ledger?.requeued ?? 0) },
      {
        leased: leases.reduce((sum, { chunk }) => sum + chunk.lines, 0),
        nodes: new Set(leases.map(({ lease }) => lease.node)).size,
        ...this.#progress.shown(now, open),
      },
    );
  }

  #stateNow(): BatchState {
    const { state } = this.#rows;
    if (state === undefined) throw new Error('no such batch');
    return state;
  }

  #ledgerNow(): Ledger {
    this.#ledger ??= new Ledger(this.#rows.chunks());
    return this.#ledger;
  }

  #store(): void {
    const ledger = this.#ledgerNow();
    this.#rows.store(ledger.changed);
    ledger.changed.clear();
  }
}

const NO_INPUT = { code: 'invalid_request', message: 'The input file does not exist.', param: 'file_id', line: null };

function leaseOf({ id, endpoint }: BatchSpec, { chunk, lease, open }: Grant): GrantedLease {
  return {
    batch: id,
    endpoint,
    chunk: chunk.id,
    epoch: lease.epoch,
    open,
    bytes: chunk.bytes,
    prefix: chunk.prefix,
    leaseMs: LEASE_MS,
  };
}

/** Failures that are the engine's own: another attempt may do better. A 4xx is the line's own. */
function isEngineFailure({ status_code: status, error }: LineResult): boolean {
  return error !== undefined || status >= 500 || status === 429 || status < 200;
}

function failed({ line, request_id }: LineResult): LineResult {
  return { line, request_id, status_code: 0, body: '', error: 'engine_failed' satisfies LineErrorCode };
}

function bounded(result: LineResult): LineResult {
  if (result.body.length <= RESULT_MAX_BYTES) return result;
  return { ...result, body: '', error: 'response_too_large' satisfies LineErrorCode };
}
