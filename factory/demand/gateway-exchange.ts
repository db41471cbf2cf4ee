/**
 * Gets the gateway's demand by `POST /factory/exchange`. Requests are sequential, and the gateway holds each until the
 * demand changes.
 */

import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Agent, type Dispatcher, fetch } from 'undici';
import { GatewayClient, GatewayRefusalError } from '../../node/gateway-client.ts';
import { readPrivateFile } from '../../node/private-file.ts';
import { DEPLOYMENT_LABEL } from '../../shared/deployment/deployment-labels.ts';
import {
  EXCHANGE_MAX_BYTES,
  EXCHANGE_PATH,
  EXCHANGE_WAIT_MAX_MS,
  type ExchangeAnswer,
  FACTORY_LABEL,
  FACTORY_TOKEN_PATTERN,
  type FactoryReport,
  jobNamePrefix,
  NODES_MAX,
  parseExchangeAnswer,
} from '../../shared/factory/factory-exchange.ts';
import { Backoff } from '../../shared/timing/backoff.ts';
import { errorLine, FactoryError } from '../factory-error.ts';
import type { DemandReading, GatewaySource } from './demand-source.ts';

/** Timeout of an exchange, above the time for which the gateway may hold it. */
const EXCHANGE_TIMEOUT_MS = EXCHANGE_WAIT_MAX_MS + 20_000;
/** An answer that is older than this is outdated. Without a newer answer no job is ended. */
const STALE_MS = 90_000;
const BACKOFF = { minMs: 1_000, maxMs: 60_000 };
/** Minimum time between two reports that interrupt a held exchange. */
const REPORT_MIN_MS = 1_000;
/**
 * Minimum time between two exchanges. Without it, the factory would ask in a loop while the demand changes all the
 * time.
 */
const EXCHANGE_MIN_MS = 500;
/** Maximum age of an answer at which its time spans, such as a node's idle time, are still used. */
const FRESH_MS = 2_000;

interface GatewayExchangeOptions {
  gateway: string;
  tokenFile: string;
  caFile?: string;
  now(): number;
  /** Called if the gateway refuses with 401 or 403, which retries do not fix. */
  refused(why: string): void;
}

/** @throws FactoryError `config` if the file is missing, readable by others, or not a token */
export function readToken(path: string): string {
  let text: string;
  try {
    text = readPrivateFile(path).trim();
  } catch (cause) {
    throw new FactoryError('config', `the factory's token ${path}: ${errorLine(cause)}`, { cause });
  }
  if (!FACTORY_TOKEN_PATTERN.test(text))
    throw new FactoryError('config', `${path} does not contain a factory token (otf_ and 43 characters)`);
  return text;
}

export class GatewayExchange implements GatewaySource {
  readonly #options: GatewayExchangeOptions;
  #certificate: Buffer | undefined;
  #dispatcher: Dispatcher;
  readonly #client: GatewayClient;
  readonly #closed = new AbortController();
  /** Aborts the exchange that the gateway currently holds. */
  #heldExchange: AbortController | undefined;
  #loop: Promise<void> = Promise.resolve();
  #report: FactoryReport | undefined;
  #sent = '';
  #sentAt = 0;
  #answer: ExchangeAnswer | undefined;
  #receivedAt = 0;
  #fault: string | undefined = 'no exchange has succeeded yet';
  #reported = Promise.withResolvers<void>();

  constructor(options: GatewayExchangeOptions) {
    this.#options = options;
    readToken(options.tokenFile);
    this.#certificate = this.#readCertificate();
    this.#dispatcher = dispatcherWith(this.#certificate);
    this.#client = new GatewayClient({
      url: options.gateway,
      // The token file is read for each request, so that a replaced token needs no restart.
      key: () => readToken(options.tokenFile),
      fetch: (url, init) => fetch(url, { ...init, dispatcher: this.#dispatcher }),
      timeout: { leastMs: EXCHANGE_TIMEOUT_MS, mostMs: EXCHANGE_TIMEOUT_MS },
      maxBytes: EXCHANGE_MAX_BYTES,
    });
  }

  open(changed: () => void): void {
    this.#loop = this.#run(changed);
  }

  latest(now: number): DemandReading {
    const fresh = this.#answer !== undefined && now - this.#receivedAt < STALE_MS;
    return {
      demand: new Map((this.#answer?.demand ?? []).map((one) => [one.model, one])),
      nodes: fresh ? this.#answer?.nodes : undefined,
    };
  }

  fault(): string | undefined {
    return this.#fault;
  }

  report(report: FactoryReport): void {
    this.#report = report;
    this.#reported.resolve();
    // Time spans in a report change all the time, so only a change of its other parts interrupts an exchange.
    const essence = essenceOf(report);
    if (essence === this.#sent || this.#options.now() - this.#sentAt < REPORT_MIN_MS) return;
    // Interrupt only an exchange that the gateway holds. Any other exchange is answered immediately.
    this.#heldExchange?.abort();
  }

  async close(): Promise<void> {
    this.#closed.abort();
    this.#reported.resolve();
    this.#heldExchange?.abort();
    await this.#loop;
    await this.#dispatcher.destroy();
  }

  async #run(changed: () => void): Promise<void> {
    const backoff = new Backoff(BACKOFF, Math.random);
    await this.#reported.promise;
    while (!this.#closed.signal.aborted) {
      const report = this.#report;
      if (report === undefined) return;
      const before = this.#answer?.revision;
      const begun = this.#options.now();
      // If the last answer is older than FRESH_MS, send no `after`, so that the gateway answers immediately. Otherwise
      // reports that interrupt every held exchange would leave the factory without an answer.
      const known = this.#fault === undefined && before !== undefined && begun - this.#receivedAt < FRESH_MS;
      try {
        const answer = await this.#ask({ ...report, ...(known ? { after: before } : {}) });
        backoff.reset();
        // The exchange was interrupted, because there is a new report to send.
        if (answer === undefined) continue;
        this.#answer = answer;
        this.#receivedAt = this.#options.now();
        const news = this.#fault !== undefined || answer.revision !== before;
        this.#fault = undefined;
        if (news) changed();
        await pause(Math.max(0, EXCHANGE_MIN_MS - (this.#receivedAt - begun)), this.#closed.signal);
      } catch (error) {
        const first = this.#fault === undefined;
        this.#fault = errorLine(error);
        if (error instanceof FactoryError && error.code === 'gateway') this.#options.refused(this.#fault);
        if (first) changed();
        await pause(backoff.next(), this.#closed.signal);
      }
    }
  }

  #readCertificate(): Buffer | undefined {
    const { caFile } = this.#options;
    return caFile === undefined ? undefined : readFileSync(caFile);
  }

  /**
   * Reads the certificate authority again, because it may have changed. Open connections were verified with the
   * previous one and are closed.
   */
  async #readTrustAgain(): Promise<void> {
    const certificate = this.#readCertificate();
    if (certificate === undefined || this.#certificate?.equals(certificate) === true) return;
    const previous = this.#dispatcher;
    this.#certificate = certificate;
    this.#dispatcher = dispatcherWith(certificate);
    await previous.destroy();
  }

  /**
   * Sends a report and returns the answer.
   * @throws FactoryError `gateway` if the gateway refused, Error if it did not answer
   */
  async #ask(report: FactoryReport): Promise<ExchangeAnswer | undefined> {
    const heldExchange = new AbortController();
    this.#heldExchange = report.after === undefined ? undefined : heldExchange;
    this.#sent = essenceOf(report);
    this.#sentAt = this.#options.now();
    try {
      if (this.#fault !== undefined) await this.#readTrustAgain();
      const signal = AbortSignal.any([heldExchange.signal, this.#closed.signal]);
      return whole(parseExchangeAnswer(await this.#client.post(EXCHANGE_PATH, report, signal)), report.factory);
    } catch (error) {
      if (heldExchange.signal.aborted) return undefined;
      const isRefused = error instanceof GatewayRefusalError && (error.status === 401 || error.status === 403);
      throw isRefused ? new FactoryError('gateway', `the gateway rejects this factory: ${error.message}`) : error;
    } finally {
      this.#heldExchange = undefined;
    }
  }
}

function dispatcherWith(certificate: Buffer | undefined): Dispatcher {
  const ca = certificate === undefined ? {} : { connect: { ca: certificate } };
  return new Agent({ ...ca, headersTimeout: EXCHANGE_TIMEOUT_MS, bodyTimeout: EXCHANGE_TIMEOUT_MS });
}

/**
 * Checks that the answer has all nodes of this factory.
 * @throws Error if nodes may be missing, because a job whose node is missing would count as lost
 */
function whole(answer: ExchangeAnswer, factory: string): ExchangeAnswer {
  const { nodes } = answer;
  const { labels = {} } = nodes.at(-1) ?? {};
  const isOwn =
    labels[FACTORY_LABEL] === factory || labels[DEPLOYMENT_LABEL]?.startsWith(jobNamePrefix(factory)) === true;
  if (nodes.length >= NODES_MAX && isOwn)
    throw new Error(`this factory has more nodes than the ${NODES_MAX} that the gateway lists`);
  return answer;
}

/** Returns the parts of a report whose change is worth another exchange. */
function essenceOf({ models, jobs, clusters, drain, config_revision, decisions }: FactoryReport): string {
  return JSON.stringify([
    config_revision,
    models.map(({ id, state, pending, running, ready, reason }) => [
      id,
      state,
      pending,
      running,
      ready,
      state === 'ready' ? '' : reason,
    ]),
    jobs.map(({ cluster, id, state }) => [cluster, id, state]),
    clusters.map(({ id, reachable }) => [id, reachable]),
    drain.map(({ session }) => session),
    decisions.at(-1),
  ]);
}

/** Resolves after `ms`, or when `signal` aborts. */
const pause = (ms: number, signal: AbortSignal): Promise<void> => delay(ms, undefined, { signal }).catch(() => {});
