import { errorText } from '../../../shared/text/error-text.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { readTraceSettings } from '../../accounts/gateway-settings.ts';
import { installationSecret } from '../../accounts/installation-secret.ts';
import type { AttemptUse } from '../../accounts/limits/limiter.ts';
import type { AttemptSettlement } from '../../accounts/limits/limits-object.ts';
import {
  openIdentity,
  type Receipt,
  type ReceiptIdentity,
  readReceipt,
  receiptSealOf,
} from '../../accounts/payer-receipt.ts';
import type { Env } from '../../env.ts';
import { OBSERVE_NAME } from '../../observe/metrics-reporter.ts';
import type { ObjectContext } from '../../platform/object-context.ts';
import { learnAnswer } from '../../routing/predict-request-kind.ts';
import { PendingPrefixBlocks } from '../prefix-block-ids.ts';
import { type UsageRow, usageShardOf } from '../usage-row.ts';
import { ingressRow, markIngressDelivered, pendingIngressUsage } from './ingress-usage-table.ts';
import {
  countPendingUsage,
  deliveredRecord,
  markDelivered,
  oldestPendingUsage,
  type PendingUsage,
} from './usage-record-table.ts';

/** For this time, records are collected into one batch. */
const BATCH_DELAY_MS = 1_000;
/** Delay before a retry, if an object did not answer. */
const RETRY_MS = 5_000;
/** Maximum records in one batch: about 300 KiB. */
const BATCH = 500;
/** Maximum decrypted identities that are cached, because most requests at a node come from the same few keys. */
const IDENTITIES_MAX = 1_000;

/**
 * Forwards one node's records to the usage object of the hour, and to the limits objects that wait for them. The
 * records stay on disk here until both kinds of objects have acknowledged them; both recognize repeated records by
 * position or name.
 */
export class UsageOutbox {
  readonly #ctx: ObjectContext;
  readonly #env: Env;
  readonly #session: string;
  /** Name under which limits count the positions of records. Each process has its own records of a session. */
  readonly #source: string;
  readonly #identities = new Map<string, ReceiptIdentity>();
  readonly prefixes = new PendingPrefixBlocks();
  #scheduled = false;
  /** True if records still waited at the last report to operators. */
  #late = false;

  constructor(ctx: ObjectContext, env: Env, session: string) {
    this.#ctx = ctx;
    this.#env = env;
    this.#session = session;
    this.#source = env.PROCESSES === undefined ? session : `${session} ${env.PROCESSES.number}`;
  }

  /** Schedules the forwarding of waiting records. */
  schedule(ms = BATCH_DELAY_MS): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#ctx.waitUntil(this.#ring(ms));
  }

  /** Sets the alarm. If that fails, it is tried again later, while the object is in memory. */
  async #ring(ms: number): Promise<void> {
    try {
      await this.#ctx.storage.setAlarm(Date.now() + ms);
    } catch (error) {
      console.error(`cannot set the alarm for the usage of ${this.#session}: ${errorText(error)}`);
      this.#ctx.clock.after(RETRY_MS, () => {
        this.#scheduled = false;
        this.schedule();
      });
    }
  }

  /**
   * Reports usage to the limits immediately, which releases reservations for which other requests may wait. Failures
   * are ignored, because `settle` follows.
   */
  async reportToLimits(records: readonly UsageRecord[]): Promise<void> {
    const secret = await installationSecret(this.#env);
    const subjects = new Map<string, AttemptUse[]>();
    for (const record of records) {
      const receipt = await this.#receipt(secret, record.receipt);
      if (receipt.subject !== '') push(subjects, receipt.subject, usedBy(record, receipt));
    }
    await Promise.all([...subjects].map(([subject, items]) => this.#env.LIMITS.getByName(subject).correct(items)));
  }

  /** Called when the object wakes: records that waited before it slept or was killed still wait. */
  wake(): void {
    const { sql } = this.#ctx.storage;
    if (oldestPendingUsage(sql, 1).length === 0 && pendingIngressUsage(sql, 1).length === 0) return;
    // The alarm may have woken the object. Setting another alarm now would cancel its handler.
    const armed = this.#ctx.storage.getAlarm().then((at) => {
      if (at === null) this.schedule();
    });
    this.#ctx.waitUntil(armed);
  }

  async onAlarm(): Promise<void> {
    this.#scheduled = false;
    // While the disk is full, records that were forwarded cannot be deleted here, so each alarm would forward the same
    // records again.
    if (this.#ctx.health.failure !== undefined) return this.schedule(RETRY_MS);
    try {
      const more = await this.#forward();
      const moreOfIngress = await this.#forwardIngress();
      await this.#forwardPrefixes();
      if (more || moreOfIngress) this.schedule(0);
      else if (this.#late) this.#logWaiting();
      else if (!this.prefixes.idle) this.schedule();
    } catch (error) {
      this.#logWaiting();
      console.error(`cannot deliver the usage of ${this.#session} yet: ${errorText(error)}`);
      this.schedule(RETRY_MS);
    }
  }

  /**
   * Reports to operators how many records wait. This is only done if forwarding failed, so that it normally costs
   * nothing.
   */
  #logWaiting(): void {
    const waiting = countPendingUsage(this.#ctx.storage.sql);
    this.#late = waiting > 0;
    const reported = this.#env.OBSERVE.getByName(OBSERVE_NAME).outbox(this.#session, waiting);
    this.#ctx.waitUntil(Promise.resolve(reported).catch(() => {}));
  }

  async #forward(): Promise<boolean> {
    const { sql } = this.#ctx.storage;
    const pending = oldestPendingUsage(sql, BATCH);
    const last = pending.at(-1);
    if (last === undefined) return false;
    const secret = await installationSecret(this.#env);
    const shards = new Map<string, UsageRow[]>();
    const subjects = new Map<string, { position: number; settlement: AttemptSettlement }[]>();
    for (const one of pending) {
      const receipt = await this.#receipt(secret, one.record.receipt);
      if (!receipt.untracked) push(shards, usageShardOf(one.record.at), rowOf(one, receipt));
      const { complete, estimated, course, prompt, completion } = one.record;
      // Only models with kinds learn lengths, and only from exact records. A record that replaces an estimate is
      // skipped.
      if (receipt.kind !== undefined && complete && !estimated && one.settled === undefined)
        learnAnswer({ ...receipt, endpoint: course?.endpoint ?? 0, prompt, completion });
      if (receipt.subject !== '') push(subjects, receipt.subject, settlementOf(one, receipt));
    }
    await Promise.all([
      ...[...shards].map(([shard, rows]) => this.#env.USAGE.getByName(shard).add(rows)),
      ...[...subjects].map(([subject, items]) => this.#env.LIMITS.getByName(subject).settle(this.#source, items)),
    ]);
    markDelivered(sql, last.position);
    return pending.length === BATCH;
  }

  /** Forwards the usage of the node's own ingress, for which no limit waits. */
  async #forwardIngress(): Promise<boolean> {
    const { sql } = this.#ctx.storage;
    const waiting = pendingIngressUsage(sql, BATCH);
    if (waiting.length === 0) return false;
    const traced = (await readTraceSettings(this.#env)).all;
    const shards = new Map<string, UsageRow[]>();
    for (const one of waiting) push(shards, usageShardOf(one.at), ingressRow(one, this.#session, traced));
    await Promise.all([...shards].map(([shard, rows]) => this.#env.USAGE.getByName(shard).add(rows)));
    markIngressDelivered(sql, waiting);
    return waiting.length === BATCH;
  }

  async #forwardPrefixes(): Promise<void> {
    if (this.prefixes.idle) return;
    const secret = await installationSecret(this.#env);
    const record = (stream: number) => deliveredRecord(this.#ctx.storage.sql, stream);
    await this.prefixes.handOn(this.#env, secret, this.#session, { record, now: Date.now() });
  }

  async #receipt(secret: string, text: string): Promise<Receipt> {
    const seal = receiptSealOf(text);
    let identity = this.#identities.get(seal);
    if (identity === undefined) {
      identity = await openIdentity(secret, seal);
      if (this.#identities.size >= IDENTITIES_MAX) this.#identities.clear();
      this.#identities.set(seal, identity);
    }
    return readReceipt(text, identity);
  }
}

function push<T>(map: Map<string, T[]>, name: string, item: T): void {
  const known = map.get(name);
  if (known === undefined) map.set(name, [item]);
  else known.push(item);
}

function usedBy(record: UsageRecord, { keyId, userId, model, counted }: Receipt): AttemptSettlement {
  const { requestId: name, attempt, at, prompt, completion, complete, aborted, estimated, course, expiresAt } = record;
  return {
    name,
    attempt,
    at,
    keyId,
    ...(counted.user && { userId }),
    ...(counted.model && { model }),
    ...(counted.gpu && course?.gpuMs !== undefined && { gpuMs: course.gpuMs }),
    ...mediaOf(record),
    prompt,
    completion,
    isComplete: complete && !aborted && !estimated && (course?.status ?? 0) < 400,
    // `expiresAt` is set for late reports with a proof. The limits no longer have a reservation for their requests.
    isReserved: expiresAt === undefined,
  };
}

function settlementOf({ position, record, settled }: PendingUsage, receipt: Receipt) {
  const use = usedBy(record, receipt);
  // The gateway measures GPU time, so a later report of tokens does not change the GPU time.
  return { position, settlement: settled === undefined ? use : { ...use, gpuMs: undefined, before: settled } };
}

function mediaOf({ audioMs, images }: UsageRecord): Pick<UsageRow, 'audioMs' | 'images'> {
  return { ...(audioMs !== undefined && { audioMs }), ...(images !== undefined && { images }) };
}

function rowOf({ record, replaces, provider }: PendingUsage, receipt: Receipt): UsageRow {
  const {
    endpoint = 0,
    streamed = false,
    status = null,
    firstMs = null,
    totalMs = null,
    queueMs,
    gpuMs,
  } = record.course ?? {};
  return {
    endpoint,
    streamed,
    status,
    firstMs,
    totalMs,
    ...(queueMs === undefined ? {} : { queueMs }),
    ...(gpuMs === undefined ? {} : { gpuMs }),
    ...mediaOf(record),
    ...(replaces === undefined ? {} : { replaces }),
    ...(receipt.sampling === undefined ? {} : { sampling: receipt.sampling }),
    ...(receipt.kind === undefined ? {} : { kind: receipt.kind }),
    session: record.session,
    stream: record.stream,
    at: record.at,
    request: record.requestId,
    attempt: record.attempt,
    provider,
    key: receipt.keyId,
    user: receipt.userId,
    project: receipt.projectId,
    model: receipt.model,
    prompt: record.prompt,
    completion: record.completion,
    cached: record.cached,
    reasoning: record.reasoning,
    aborted: record.aborted,
    estimated: record.estimated,
    complete: record.complete,
    bytes: record.answerBytes,
    traced: receipt.traced,
  };
}
