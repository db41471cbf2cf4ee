/** The primary's answers to its followers: `POST /gateway/…`, signed. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type * as z from 'zod';
import { ApiError, errorBody } from '../../../../shared/openai/api-errors.ts';
import { BODY_STALL_MS, BodyPace } from '../../../../shared/proxy/body-pace.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { parseJson } from '../../../../shared/text/parse-json.ts';
import type { AttemptSettlement, LimitsObject } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace } from '../../../platform/object-context.ts';
import { nowS } from '../../../platform/unix-time.ts';
import { waitClock } from '../../../platform/wait-clock.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import type { UsageRow } from '../../../usage/usage-row.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { FollowerTable } from './follower-table.ts';
import { IdempotentCalls } from './idempotent-calls.ts';
import {
  budgetsSchema,
  epochSchema,
  type FollowAnswer,
  followSchema,
  limitCallSchema,
  recordsSchema,
  subjectCountsSchema,
} from './messages.ts';
import type { MonthCounts, MonthCountsPage } from './month-counts.ts';
import type { GatewayRole } from './role-file.ts';
import {
  CLOCK_SKEW_S,
  claimedDigest,
  digestOf,
  type GatewayIdentity,
  SIGNED_HEADER,
  SignatureError,
  signRequest,
  type VerifiedRequest,
  verifyHeader,
  verifyRequest,
} from './signed-request.ts';
import type { QueuedRecord } from './usage-record-queue.ts';

export const PRIMARY_PATH = '/gateway/';
const BODY_MAX_BYTES = 16 * 1024 * 1024;
/**
 * Maximum bodies of one gateway that are read concurrently. A gateway opens at most this many connections to another
 * gateway.
 */
const READING_MAX = 8;
/**
 * Name under which requests of gateways of an earlier version are counted. Such a request has no digest in its signed
 * header, so its body must be read before its signature can be checked. At most UNPROVEN_MAX such bodies are read
 * concurrently.
 */
const UNPROVEN = '';
const UNPROVEN_MAX = 2;
/** Maximum time for a body to arrive. */
const READING_MS = 60_000;
/**
 * How long nonces are remembered. A signature is accepted if its time differs from this gateway's clock by at most an
 * hour.
 */
const NONCE_RETENTION_MS = 2 * CLOCK_SKEW_S * 1_000;
/** Maximum nonces: two hours of eight followers that ask once a second. */
const NONCES_MAX = 60_000;
/**
 * If a follower's clock is wrong by more seconds than this, it is logged, because the times of the follower's records
 * are wrong too.
 */
const CLOCK_LOGGED_S = 30;
/** Matches the name of an hour's usage object. */
const HOUR = /^\d{4}-\d{2}-\d{2}T\d{2}$/;

interface PrimaryServerOptions {
  identity: GatewayIdentity;
  role(): GatewayRole;
  feed: ChangeFeed;
  members: FollowerTable;
  /** The limits objects without shares: followers' requests count against the whole limit. */
  limits: ObjectNamespace<LimitsObject>;
  budgets: MonthCounts;
  usage: ObjectNamespace<UsageObject>;
  /** Called with a promoted gateway's statement. @returns the epoch that is now valid here */
  acceptStatement(statement: string): number;
  log(line: string): void;
}

/** The gateway that sent a request: the name of its key, and how many seconds its clock is ahead. */
interface VerifiedSender {
  from: string;
  aheadS: number;
}

export class PrimaryServer {
  readonly #options: PrimaryServerOptions;
  /** Number of bodies that are being read, by the name of the gateway's key. */
  readonly #reading = new Map<string, number>();
  /** Nonces and the times at which they were received, oldest first. */
  readonly #nonces = new Map<string, number>();
  readonly #idempotentCalls = new IdempotentCalls(() => performance.now());
  /** Pending work by follower: the messages of one follower are processed one after another. */
  readonly #taking = new Map<string, Promise<unknown>>();
  /** Followers for which a wrong clock was logged. Bounded by the number of followers. */
  readonly #wrongClocks = new Set<string>();

  constructor(options: PrimaryServerOptions) {
    this.#options = options;
  }

  async handle(message: IncomingMessage, response: ServerResponse, stallMs = BODY_STALL_MS): Promise<void> {
    const { identity, log } = this.#options;
    try {
      const path = message.url ?? '/';
      if (message.method !== 'POST') throw new ApiError('method_not_allowed', 'These routes accept only POST.');
      const { body, certificate, nonce, aheadS } = await this.#read(message, `POST ${path}`, stallMs);
      if (path === '/gateway/follow') this.#requireNew(nonce);
      const answer = Buffer.from(JSON.stringify(await this.#answer(path, { from: certificate.keyName, aheadS }, body)));
      const { header } = signRequest(identity, { about: nonce, body: answer }, nowS());
      response.writeHead(200, {
        'content-type': 'application/json',
        'content-length': answer.length,
        [SIGNED_HEADER]: header,
      });
      response.end(answer);
    } catch (error) {
      const api = errorOf(error);
      if (api.status === 503) log(`a request of a follower failed: ${api.message}`);
      response.writeHead(api.status, { 'content-type': 'application/json', connection: 'close' });
      response.end(errorBody(api));
    }
  }

  /**
   * Refuses a repeated nonce. A replay of a disconnected follower's messages must not make the follower seem connected:
   * it uses its share of limits, so the primary must not use the whole limit.
   */
  #requireNew(nonce: string): void {
    const now = performance.now();
    for (const [old, at] of this.#nonces) {
      if (now - at < NONCE_RETENTION_MS && this.#nonces.size < NONCES_MAX) break;
      this.#nonces.delete(old);
    }
    if (this.#nonces.has(nonce)) throw new ApiError('conflict', 'This message was already received.');
    this.#nonces.set(nonce, now);
  }

  /**
   * Reads a body. Checks the signature of the header first, which covers the body's digest: the body of an
   * unauthenticated peer is not read and does not count against READING_MAX.
   * @throws ApiError, SignatureError
   */
  async #read(message: IncomingMessage, about: string, stallMs: number): Promise<VerifiedRequest & { body: Buffer }> {
    const { identity } = this.#options;
    const header = String(message.headers[SIGNED_HEADER] ?? '');
    const digest = claimedDigest(header);
    if (digest === undefined) {
      const body = await this.#inPlace(UNPROVEN, UNPROVEN_MAX, () => bodyOf(message, stallMs));
      return { ...verifyRequest(identity, header, { about, body }, nowS()), body };
    }
    const verified = verifyHeader(identity, header, { about, digest }, nowS());
    const { keyName } = verified.certificate;
    const body = await this.#inPlace(keyName, READING_MAX, () => bodyOf(message, stallMs));
    if (digestOf(body) !== digest) throw new SignatureError('the signature is not valid');
    return { ...verified, body };
  }

  /** Calls `read` if fewer than `most` bodies of this gateway are being read. @throws ApiError 503 */
  async #inPlace<T>(name: string, most: number, read: () => Promise<T>): Promise<T> {
    const reading = this.#reading.get(name) ?? 0;
    if (reading >= most)
      throw new ApiError('server_is_overloaded', 'This gateway sends too many requests concurrently.');
    this.#reading.set(name, reading + 1);
    try {
      return await read();
    } finally {
      const left = (this.#reading.get(name) ?? 1) - 1;
      if (left > 0) this.#reading.set(name, left);
      else this.#reading.delete(name);
    }
  }

  async #answer(path: string, { from, aheadS }: VerifiedSender, body: Buffer): Promise<object> {
    const { limits, role } = this.#options;
    if (path === '/gateway/epoch') {
      const epoch = this.#options.acceptStatement(parse(epochSchema, body).statement);
      return { epoch, statement: role().statement };
    }
    const { role: mine, follow } = role();
    if (mine === 'follower')
      throw new ApiError('conflict', `This gateway is a follower of ${follow}: send the request there.`);
    switch (path) {
      case '/gateway/follow':
        return this.#follow({ from, aheadS }, body);
      case '/gateway/limits': {
        const { subject, method, args, once: idempotentCalls } = parse(limitCallSchema, body);
        const stub = limits.getByName(subject);
        const call = async () => Reflect.apply(stub[method] as (...args: unknown[]) => unknown, stub, args);
        const result: unknown = await (idempotentCalls === undefined
          ? call()
          : this.#idempotentCalls.do(`${from} ${idempotentCalls}`, call));
        return { result: result ?? null };
      }
      case '/gateway/budgets':
        return this.#answerBudgets(body);
      case '/gateway/records': {
        // The position is stored under the follower's origin and not its key's name: after a crash, a follower with a
        // new key may send again what is already here.
        const { items, origin = from } = parse(recordsSchema, body);
        return { position: await this.#inTurn(origin, () => this.#take({ from, origin }, items)) };
      }
      default:
        throw new ApiError('not_found', `There is no ${path.slice(0, 64)} here.`);
    }
  }

  #answerBudgets(body: Buffer): Promise<MonthCountsPage> {
    const { budgets, limits } = this.#options;
    const { seq, after } = parse(budgetsSchema, body);
    return budgets.since(seq, limits, after);
  }

  #follow({ from, aheadS }: VerifiedSender, body: Buffer): FollowAnswer {
    const { feed, members, role } = this.#options;
    const { url, version, cursor, waiting, silence_ms } = parse(followSchema, body);
    if (!members.update(from, url, version, waiting, silence_ms))
      throw new ApiError(
        'conflict',
        'This gateway already has its maximum number of followers. Remove one: otela-gateway gateways remove KEY',
      );
    this.#logClock(from, url, aheadS);
    const anew = cursor === null || cursor.feed !== feed.id || cursor.seq > feed.last;
    const page = feed.since(anew ? 0 : cursor.seq);
    const { epoch, statement } = role();
    return {
      feed: feed.id,
      epoch,
      ...(statement === undefined ? {} : { statement }),
      anew,
      ...page,
      budgets: this.#options.budgets.last,
      followers: members.list().map(({ key, url: at }) => ({ key, url: at })),
    };
  }

  /** Logs when a follower's clock becomes wrong, and when it is right again. */
  #logClock(from: string, url: string, aheadS: number): void {
    const isWrong = Math.abs(aheadS) > CLOCK_LOGGED_S;
    if (isWrong === this.#wrongClocks.has(from)) return;
    if (isWrong) this.#wrongClocks.add(from);
    else this.#wrongClocks.delete(from);
    const how = isWrong ? `${Math.abs(aheadS)} s ${aheadS > 0 ? 'ahead of' : 'behind'}` : 'again equal to';
    this.#options.log(`the clock of gateway ${url} is ${how} this one's`);
  }

  async #take({ from, origin }: { from: string; origin: string }, sent: readonly QueuedRecord[]): Promise<number> {
    const { members, usage, limits, budgets } = this.#options;
    let done = members.taken(origin);
    for (const { position, kind, name, body: text } of sent) {
      if (position <= done) continue;
      const content: unknown = parseJson(text);
      if (kind === 'usage') {
        if (!HOUR.test(name))
          throw new ApiError('invalid_request', 'The hour of the records must have the form 2026-11-25T09.');
        await usage.getByName(name).add((content as UsageRow[]).map((row) => renamed(row, from)));
      } else if (kind === 'months') await budgets.store(subjectCountsSchema.parse(content), limits);
      else {
        const { source, items } = content as { source: string; items: QueuedSettlement[] };
        budgets.note(name);
        await limits.getByName(name).settle(`${source}@${origin}`, items.flatMap(complete), origin);
      }
      done = position;
    }
    // Both calls above recognize repetitions, so a crash before this line is harmless.
    members.take(origin, done);
    return done;
  }

  #inTurn<T>(origin: string, work: () => Promise<T>): Promise<T> {
    const before = this.#taking.get(origin) ?? Promise.resolve();
    const done = before.catch(() => {}).then(work);
    this.#taking.set(origin, done);
    return done;
  }
}

type Always = 'name' | 'keyId' | 'prompt' | 'completion';

interface QueuedSettlement {
  position: number;
  settlement: Partial<AttemptSettlement> & Pick<AttemptSettlement, Always> & { repeated?: boolean };
}

/** Completes a settlement of a follower of an earlier version, which does not contain the attempt's number and end. */
function complete({ position, settlement: { repeated, ...given } }: QueuedSettlement) {
  if (repeated === true) return [];
  return [{ position, settlement: { at: Date.now(), attempt: 1, isComplete: true, isReserved: true, ...given } }];
}

/**
 * Adds the gateway to a row's session. Each gateway numbers its own streams, so a node that both use may have two
 * attempts with the same number.
 */
function renamed(row: UsageRow, gateway: string): UsageRow {
  return row.session === '' ? row : { ...row, session: `${row.session}@${gateway.slice(0, 8)}` };
}

/** @throws ApiError 408, 413 */
async function bodyOf(message: IncomingMessage, stallMs: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const body: AsyncIterator<Buffer, undefined> = message[Symbol.asyncIterator]();
  const pace = new BodyPace(stallMs, { steadyNow: () => waitClock.now(), after: waitClock.after });
  const until = waitClock.now() + READING_MS;
  for (;;) {
    const piece = await pace.next(body.next().then(({ value }) => value));
    if (piece === undefined) return Buffer.concat(chunks);
    bytes += piece.length;
    if (bytes > BODY_MAX_BYTES)
      throw new ApiError('request_too_large', `A message may have at most ${BODY_MAX_BYTES} bytes.`);
    if (waitClock.now() > until) throw new ApiError('request_timeout', 'The message took too long.');
    chunks.push(piece);
  }
}

function parse<T>(schema: z.ZodType<T>, body: Buffer): T {
  let value: unknown;
  try {
    value = parseJson(body.toString());
  } catch {
    throw new ApiError('invalid_request', 'The body is not JSON.');
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success)
    throw new ApiError('invalid_request', `The body is not valid: ${parsed.error.issues[0]?.message ?? ''}`);
  return parsed.data;
}

function errorOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const message = errorText(error);
  return new ApiError(error instanceof SignatureError ? 'permission_denied' : 'server_is_overloaded', message);
}
