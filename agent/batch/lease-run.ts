import { GatewayRefusalError } from '../../node/gateway-client.ts';
import { LINE_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import type { GrantedLease, LeaseState } from '../../shared/batch/granted-lease.ts';
import { engineRequest, lineBody } from '../../shared/batch/line-body.ts';
import { type LineResult, LOG_MAX } from '../../shared/batch/line-results.ts';
import { LineSplitter } from '../../shared/batch/line-splitter.ts';
import { orderByPrefix, promptPrefixHash } from '../../shared/batch/prompt-prefix.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { BatchGatewayClient } from './batch-gateway-client.ts';

/** A line to run: its index in the chunk, and its request as JSON. */
export interface PendingLine {
  lease: LeaseRun;
  line: number;
  body: string;
}

/** Results are committed after this time, or earlier if they reach FLUSH_BYTES. */
const FLUSH_MS = 1_000;
const FLUSH_BYTES = 64 * 1024;
/** Maximum bytes of uncommitted results. Above this the runner takes no further leases. */
export const UNCOMMITTED_MAX_BYTES = 16 * 1024 * 1024;
/** Maximum bytes of results in one commit. The gateway accepts 4 MiB, and JSON inside JSON may be twice as long. */
const COMMIT_MAX_BYTES = 1024 * 1024;
/** Wait before a failed commit is tried again. */
const RETRY_MS = 1_000;
/**
 * Maximum number of consecutive commits to which a proxy answers with a page, such as a login page; they take about as
 * long as a lease lasts. Without it, a proxy that refuses the results themselves would keep the lease busy forever.
 */
const PROXY_PAGES_MAX = 60;
/**
 * Number of renewals during a lease. Only an answer to a commit or to a renewal shows that the batch was cancelled, and
 * there are no commits while a line takes minutes.
 */
const RENEWALS = 6;

interface LeaseEvents {
  /** The gateway asks to run these lines again. */
  again(lines: number[]): void;
  /** The gateway asks to run lines of this lease on another node. */
  elsewhere?(): void;
  /** Lines of this lease that have not begun must not begin any more. */
  stopped?(): void;
  /** Other nodes are idle: the node should return lines that have not begun, apart from `keep`. */
  share?(keep: number): void;
  /** No line and no result of this lease is left here. */
  over(): void;
  log(line: string): void;
}

/** The work on one lease: its remaining lines, and the results that are not committed yet. */
export class LeaseRun {
  readonly lease: GrantedLease;
  readonly gateway: BatchGatewayClient;
  readonly #events: LeaseEvents;
  readonly #waiting: LineResult[] = [];
  #waitingBytes = 0;
  /** Output of the function that was not sent yet. At most LOG_MAX.commit characters. */
  #output = '';
  /** Number of lines for which this node must still commit a result. */
  #remaining: number;
  #timer: NodeJS.Timeout | undefined;
  #renewal: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #isValid = true;
  /** Number of consecutive commits that a proxy answered. */
  #proxyPages = 0;
  /** False if the gateway has ended the lease, so that it need not be released. */
  #leased = true;
  readonly #stop = new AbortController();
  /** Number of lines that another node should run. */
  #releasedLines = 0;

  constructor(lease: GrantedLease, gateway: BatchGatewayClient, events: LeaseEvents) {
    this.lease = lease;
    this.gateway = gateway;
    this.#events = events;
    this.#remaining = lease.open.length;
    this.#renewal = setInterval(() => neverRejects(this.#renew()), lease.leaseMs / RENEWALS);
  }

  /** False if the lease is no longer valid. Running lines may finish, and no further ones begin. */
  get isValid(): boolean {
    return this.#isValid;
  }

  /** Aborts when the gateway no longer accepts results of the running lines. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborts the lines that run here. Existing results are still committed. */
  abort(): void {
    this.#stop.abort();
  }

  get uncommittedBytes(): number {
    return this.#waitingBytes;
  }

  /**
   * The open lines of the chunk, ordered so that lines with a common prefix are neighbors. An unreadable line gets a
   * failed result; without one it would be leased again and again.
   * @param priority value of `priority` for the engine's requests; replaces the line's own value
   */
  linesOf(chunk: Uint8Array, priority?: number): PendingLine[] {
    const open = new Set(this.lease.open);
    const found: { line: number; body: string; prefix: number }[] = [];
    let index = 0;
    const splitter = new LineSplitter(
      LINE_MAX_BYTES,
      ({ bytes }) => {
        const line = index++;
        const request = open.has(line) ? this.#requestOf(bytes, priority) : undefined;
        if (request === undefined) return;
        open.delete(line);
        found.push({ line, ...request });
      },
      () => index++,
    );
    splitter.push(chunk);
    splitter.end();
    for (const line of open) this.add(unread(line));
    return orderByPrefix(found.map(({ prefix }) => prefix)).flatMap((at) => {
      const one = found[at];
      return one === undefined ? [] : [{ lease: this, line: one.line, body: one.body }];
    });
  }

  /** Undefined if the line cannot be parsed. */
  #requestOf(line: Uint8Array, priority: number | undefined): { body: string; prefix: number } | undefined {
    try {
      const body = lineBody(line);
      if (body === undefined) return undefined;
      const text = engineRequest(body, { priority, thinkingTokens: this.lease.reasoningTokens });
      return { body: text, prefix: promptPrefixHash(parseJson(text) as Record<string, unknown>) };
    } catch {
      return undefined;
    }
  }

  add(result: LineResult): void {
    this.#waiting.push(result);
    this.#waitingBytes += result.body.length;
    this.#flushWhenDue();
  }

  /** Adds output of the lease's function. It is sent with the next results. */
  addOutput(text: string): void {
    if (text !== '') this.#output = `${this.#output}${text}\n`.slice(-LOG_MAX.commit);
  }

  /** Commits now if enough results are ready, otherwise after FLUSH_MS. */
  #flushWhenDue(): void {
    if (this.#isDue) neverRejects(this.flush());
    else if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => neverRejects(this.flush()), FLUSH_MS);
  }

  /** True if enough results are ready. The last results of a lease are committed immediately. */
  get #isDue(): boolean {
    const { length } = this.#waiting;
    return this.#waitingBytes >= FLUSH_BYTES || (length > 0 && length >= this.#remaining);
  }

  /** Forgets lines that will not run here. */
  drop(lines: number): void {
    this.#remaining -= lines;
    this.#endIfDone();
  }

  /** Gives lines to another node. When no line of the lease is left here, the lease is released. */
  giveBack(lines: number): void {
    this.#releasedLines += lines;
    this.drop(lines);
  }

  /** Gives lines to idle nodes that have not begun here, and keeps the lease of the others. */
  share(lines: readonly number[]): void {
    if (lines.length === 0) return;
    this.giveBack(lines.length);
    neverRejects(this.#return(lines));
  }

  /**
   * Repeated until the gateway has the lines, or until the lease is released with them: this node renews the lease, so
   * that without it no node would run them before its last call here has ended.
   */
  async #return(lines: readonly number[]): Promise<void> {
    while (!this.#isOver) {
      try {
        await this.gateway.giveBack(this.lease, lines);
        this.#releasedLines -= lines.length;
        return;
      } catch (error) {
        // The lease has ended: its lines are free.
        if (error instanceof GatewayRefusalError && error.code === 'conflict') return;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  /** Commits the ready results. A failed commit is repeated until the gateway accepts or refuses the results. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
      this.#flushWhenDue();
    });
    return this.#sending;
  }

  /** Resolves when no result is uncommitted. */
  async settled(): Promise<void> {
    while (this.#waiting.length > 0 || this.#sending !== undefined) await this.flush();
  }

  /**
   * Returns the lease after all results are committed.
   * @param declined why this node cannot run the lease's function
   */
  async release(declined?: string): Promise<void> {
    await this.settled();
    this.#end();
    await this.gateway.release(this.lease, declined).catch(() => {});
  }

  async #send(): Promise<void> {
    const results = this.#waiting.splice(0, this.#commitLines());
    if (results.length === 0) return;
    const output = this.#output;
    this.#output = '';
    try {
      const { again, elsewhere: releasedLines = 0, ...lease } = await this.gateway.commit(this.lease, results, output);
      this.#proxyPages = 0;
      this.#releasedLines += releasedLines;
      this.#remaining -= results.length - again.length;
      this.#waitingBytes -= bytesOf(results);
      this.#applyState(lease);
      if (again.length > 0) this.#events.again(again);
      if (releasedLines > 0) this.#events.elsewhere?.();
      this.#endIfDone();
    } catch (error) {
      if (this.#isFinal(error)) {
        // The gateway would refuse every retry: the batch has ended, or another gateway now has its data.
        this.#events.log(`the gateway rejected the results of ${results.length} lines: ${String(error)}`);
        this.#waitingBytes -= bytesOf(results);
        this.#isValid = false;
        this.#remaining -= results.length;
        return this.#endIfDone();
      }
      this.#waiting.unshift(...results);
      this.#output = `${output}${this.#output}`.slice(-LOG_MAX.commit);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /**
   * True if the commit must not be repeated: the gateway would refuse it again, or proxies have answered
   * PROXY_PAGES_MAX commits.
   */
  #isFinal(error: unknown): boolean {
    if (!(error instanceof GatewayRefusalError)) return false;
    const { status, code } = error;
    if (status < 400 || status >= 500 || status === 408 || status === 429) return false;
    return code !== undefined || ++this.#proxyPages > PROXY_PAGES_MAX;
  }

  /** Number of results for one commit; at least one. */
  #commitLines(): number {
    let bytes = 0;
    const over = this.#waiting.findIndex(({ body }, i) => {
      bytes += body.length;
      return i > 0 && bytes > COMMIT_MAX_BYTES;
    });
    return over < 0 ? this.#waiting.length : over;
  }

  async #renew(): Promise<void> {
    try {
      this.#applyState(await this.gateway.renew(this.lease));
    } catch (error) {
      // The gateway answers with a conflict if the batch or its owner was deleted. Any other failure is ignored: the
      // lease stays valid until it expires at the gateway.
      if (error instanceof GatewayRefusalError && error.code === 'conflict')
        this.#applyState({ leased: false, stop: true });
    }
  }

  #applyState({ leased, stop = false, keep }: LeaseState): void {
    this.#leased = leased;
    this.#isValid &&= leased && !stop;
    if (keep !== undefined && this.#isValid) this.#events.share?.(keep);
    if (!stop || this.#stop.signal.aborted) return;
    this.#stop.abort();
    this.#events.stopped?.();
  }

  #endIfDone(): void {
    if (this.#remaining > 0 || this.#waiting.length > 0) return;
    this.#end();
    // Other nodes wait for the returned lines, or the batch was cancelled and waits for its last lease. So release the
    // lease before it expires.
    if (this.#leased && (this.#releasedLines > 0 || this.#stop.signal.aborted))
      this.gateway.release(this.lease).catch(() => {});
    this.#events.over();
  }

  get #isOver(): boolean {
    return this.#renewal === undefined;
  }

  #end(): void {
    clearTimeout(this.#timer);
    clearInterval(this.#renewal);
    this.#renewal = undefined;
  }
}

function unread(line: number): LineResult {
  const why = 'The node could not parse this line as the gateway sent it.';
  return { line, status_code: 0, request_id: '', body: '', error: 'engine_failed', why };
}

function bytesOf(results: readonly LineResult[]): number {
  return results.reduce((sum, { body }) => sum + body.length, 0);
}
