/** Runs lines of batches with users' functions on this node. */

import { createHash, randomUUID } from 'node:crypto';
import { contextMessage, FUNCTION_MAX_BYTES, WHY_MAX } from '../../../shared/batch/function-context.ts';
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import { memberText } from '../../../shared/batch/line-body.ts';
import { type LineResult, RESULT_MAX_BYTES } from '../../../shared/batch/line-results.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { Backoff } from '../../../shared/timing/backoff.ts';
import { inBackground } from '../../../shared/timing/in-background.ts';
import { type BatchGatewayClient, isWorthALogLine } from '../batch-gateway-client.ts';
import { BatchGateways } from '../batch-gateways.ts';
import { LeaseRun, type PendingLine } from '../lease-run.ts';
import { RateLimitedLog } from '../rate-limited-log.ts';
import { BATCH_MAX, type FunctionOptions, readFunctionOptions } from './function-options.ts';
import type { FunctionProcess } from './function-process.ts';
import { type FunctionCode, LoadError, UnsuitableNodeError } from './function-starter.ts';
import type { LoadedFunctions } from './loaded-functions.ts';

/** The number of lines in a call grows until a call takes about this long. A killed node loses only one call's work. */
const CALL_TARGET_MS = 1_000;

/** Number of lines in one call of a function. */
class CallSize {
  readonly #isFixed: boolean;
  #size: number;

  constructor(declared: FunctionOptions['batch_size'] = 'auto') {
    this.#isFixed = declared !== 'auto';
    this.#size = declared === 'auto' ? 1 : declared;
  }

  get size(): number {
    return this.#size;
  }

  took(lines: number, ms: number): void {
    if (this.#isFixed || lines < this.#size) return;
    if (ms < CALL_TARGET_MS / 2) this.#size = Math.min(BATCH_MAX, this.#size * 2);
    else if (ms > CALL_TARGET_MS * 2) this.#size = Math.max(1, Math.floor(this.#size / 2));
  }
}

interface FunctionRunnerOptions {
  /** Gateways for which this agent currently works. */
  gateways(): readonly URL[];
  open(url: URL): BatchGatewayClient;
  host: LoadedFunctions;
  /** Owners whose functions may run here; undefined: all owners. */
  owners: readonly string[] | undefined;
  /** Number of concurrent leases per gateway. */
  workers: number;
  /** True if this agent has a session. */
  admitted(): boolean;
  log(line: string): void;
}

const WAIT_MS = 20_000;
const BACKOFF = { minMs: 500, maxMs: 30_000 };
const POLL_MS = 200;
/** Interval at which the list of gateways is read. */
const GATEWAYS_POLL_MS = 1_000;
/** After this many consecutive crashes the function is not tried here for a while. */
const CRASHES_MAX = 3;

type Work = GrantedLease & { function: NonNullable<GrantedLease['function']> };

export class FunctionRunner {
  readonly #options: FunctionRunnerOptions;
  readonly #gateways: BatchGateways;
  readonly #pollTimer: NodeJS.Timeout;
  readonly #leases = new Set<LeaseRun>();
  readonly #sizes = new Map<string, CallSize>();
  #running = 0;
  #draining = false;

  constructor(options: FunctionRunnerOptions) {
    this.#options = options;
    this.#gateways = new BatchGateways({
      named: options.gateways,
      open: options.open,
      begin: (gateway, signal) => {
        const failures = new RateLimitedLog(options.log);
        for (let i = 0; i < options.workers; i++)
          inBackground('functions', this.#work(gateway, failures, signal), options.log);
      },
      busy: (gateway) => [...this.#leases].some((lease) => lease.gateway === gateway),
      log: options.log,
    });
    this.#pollTimer = setInterval(() => this.#gateways.look(), GATEWAYS_POLL_MS);
    this.#gateways.look();
  }

  /** Number of lines that functions currently run. */
  get running(): number {
    return this.#running;
  }

  /** Begins no further calls. Returns leases when the running calls have ended, or when `signal` is aborted. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#draining = true;
    while (this.#running > 0 && !signal.aborted) await pause(POLL_MS);
    this.#gateways.stop();
    await Promise.all([...this.#leases].map((lease) => lease.release()));
  }

  async close(): Promise<void> {
    this.#draining = true;
    clearInterval(this.#pollTimer);
    await Promise.all([this.#gateways.close(), this.#options.host.close()]);
  }

  async #work(gateway: BatchGatewayClient, failures: RateLimitedLog, signal: AbortSignal): Promise<void> {
    const { admitted, host, owners } = this.#options;
    const backoff = new Backoff(BACKOFF, Math.random);
    while (!this.#draining && !signal.aborted) {
      if (!admitted()) {
        await pause(POLL_MS);
        continue;
      }
      try {
        const asked = { ...(owners === undefined ? {} : { owners }), ...host.held };
        const lease = await gateway.leaseFunction(asked, WAIT_MS, signal);
        if (lease?.function !== undefined) await this.#run(gateway, { ...lease, function: lease.function }, signal);
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        if (isWorthALogLine(error, backoff.failures)) failures.log(`functions: ${errorText(error)}`);
        await pause(backoff.next());
      }
    }
  }

  async #run(gateway: BatchGatewayClient, lease: Work, signal: AbortSignal): Promise<void> {
    const { owners, log } = this.#options;
    const again: number[] = [];
    const work: LeaseRun = new LeaseRun(lease, gateway, {
      again: (lines) => void again.push(...lines),
      over: () => this.#leases.delete(work),
      log,
    });
    this.#leases.add(work);
    try {
      if (owners?.includes(lease.function.owner) === false)
        throw new Error('this node does not allow functions of this owner');
      const code = await this.#code(gateway, lease, signal);
      const lines = work.linesOf(await gateway.chunk(lease, signal));
      await this.#runLines(lease, work, code, lines, again);
    } finally {
      if (this.#leases.delete(work)) await work.release();
    }
  }

  /**
   * Runs the lines until the gateway has accepted a result for each of them. Ends earlier if the function fails to load
   * or crashes repeatedly, if the lease is no longer valid, or if the agent drains.
   */
  async #runLines(
    lease: Work,
    work: LeaseRun,
    code: FunctionCode,
    lines: readonly PendingLine[],
    again: number[],
  ): Promise<void> {
    const { host } = this.#options;
    const byLine = new Map(lines.map((one) => [one.line, one]));
    const queue = [...lines];
    let [alone, crashes] = [0, 0];
    while (!this.#draining && work.isValid) {
      if (queue.length === 0) {
        await work.settled();
        for (const line of again.splice(0)) queue.push(...[byLine.get(line)].filter((one) => one !== undefined));
        if (queue.length === 0) return;
      }
      let process: FunctionProcess;
      try {
        process = await host.acquire(code);
      } catch (error) {
        const why = errorText(error);
        if (!(error instanceof LoadError) || this.#draining) throw error;
        if (error instanceof UnsuitableNodeError) return this.#decline(work, code, why);
        for (const { line } of queue) work.add(failed(line, 'function_load_failed', why));
        await work.settled();
        return host.setBroken(code.context);
      }
      const size = alone > 0 ? 1 : this.#size(code).size;
      const call = queue.splice(0, size);
      const outcome = await this.#call(process, { lease, work, code }, call);
      host.release(process);
      // A single line may have made the whole call fail, so run each of these lines in its own call.
      if (outcome !== 'done' && call.length > 1) {
        queue.unshift(...call);
        alone = call.length;
      } else alone = Math.max(0, alone - 1);
      crashes = outcome === 'broken' ? crashes + 1 : 0;
      if (crashes >= CRASHES_MAX) {
        await work.settled();
        return host.setBroken(code.context);
      }
    }
  }

  /** Returns the lines to the gateway. They do not count as failed, because other nodes may run them. */
  async #decline(work: LeaseRun, { context }: FunctionCode, why: string): Promise<void> {
    this.#options.log(`function ${context.slice(0, 12)}: declined: ${why}`);
    this.#options.host.setBroken(context, true);
    this.#leases.delete(work);
    await work.release(why.slice(0, WHY_MAX));
  }

  async #call(
    process: FunctionProcess,
    { lease, work, code }: { lease: Work; work: LeaseRun; code: FunctionCode },
    call: readonly PendingLine[],
  ): Promise<'done' | 'raised' | 'broken'> {
    const { context, model } = lease.function;
    const inputs = call.map(({ body }) => memberText(body, 'input') ?? 'null');
    this.#running += call.length;
    const began = performance.now();
    const answer = await process.call(inputs).finally(() => {
      this.#running -= call.length;
    });
    if (answer.kind === 'outputs') {
      this.#options.host.setWell(context);
      this.#size(code).took(call.length, performance.now() - began);
      for (const [i, { line }] of call.entries()) {
        const why = answer.failed.get(i);
        work.add(why === undefined ? answered(line, model, answer.outputs[i]) : raised(line, why));
      }
      return 'done';
    }
    const [only, ...others] = call;
    if (only !== undefined && others.length === 0 && !this.#draining)
      work.add(
        answer.kind === 'raised' ? raised(only.line, answer.error) : failed(only.line, 'engine_failed', answer.why),
      );
    return answer.kind;
  }

  async #code(gateway: BatchGatewayClient, lease: Work, signal: AbortSignal): Promise<FunctionCode> {
    const { host } = this.#options;
    const { context, name, sha256, owner } = lease.function;
    // Check the context. If it were wrong, one owner's code would be stored under it, and would later run as another
    // owner's function.
    if (
      context !==
      createHash('sha256')
        .update(contextMessage(owner, sha256, name))
        .digest('hex')
    )
      throw new Error('the context in the request does not belong to the function');
    const known = host.stored(context);
    if (known !== undefined) {
      host.store(known);
      return known;
    }
    const bytes = await gateway.functionCode(lease, signal);
    if (bytes.length > FUNCTION_MAX_BYTES || createHash('sha256').update(bytes).digest('hex') !== sha256)
      throw new Error('the gateway sent a different function from the one it announced');
    const text = Buffer.from(bytes).toString('utf8');
    const code = { context, owner, code: text, options: optionsOf(text), ...(name === undefined ? {} : { name }) };
    host.store(code);
    return code;
  }

  /** The adaptive call size of one function. At most one entry for each stored function. */
  #size({ context, options }: FunctionCode): CallSize {
    let size = this.#sizes.get(context);
    if (size === undefined) {
      for (const known of this.#sizes.keys())
        if (this.#options.host.stored(known) === undefined) this.#sizes.delete(known);
      size = new CallSize(options instanceof Error ? undefined : options.batch_size);
      this.#sizes.set(context, size);
    }
    return size;
  }
}

function optionsOf(code: string): FunctionOptions | Error {
  try {
    return readFunctionOptions(code);
  } catch (error) {
    return error instanceof Error ? error : new Error(errorText(error));
  }
}

/** @param output the function's output as JSON */
function answered(line: number, model: string, output = 'null'): LineResult {
  const body = `{"object":"otela.function.output","model":${JSON.stringify(model)},"output":${output}}`;
  if (Buffer.byteLength(body) <= RESULT_MAX_BYTES) return { line, status_code: 200, request_id: randomUUID(), body };
  return raised(
    line,
    `the result has more than ${RESULT_MAX_BYTES} bytes: return less, or store it and return its address`,
  );
}

/**
 * The result for a line that the function refused with an error. As with a model's 4xx, the line is not tried again.
 */
function raised(line: number, message: string): LineResult {
  const error = { message, type: 'function_error', param: null, code: 'function_failed' };
  return { line, status_code: 400, request_id: randomUUID(), body: JSON.stringify({ error }) };
}

function failed(line: number, error: NonNullable<LineResult['error']>, why: string): LineResult {
  return { line, status_code: 0, request_id: randomUUID(), body: '', error, why: why.slice(0, WHY_MAX) };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
