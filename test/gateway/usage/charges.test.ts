/**
 * What a provider's reports can charge: only requests that were opened at its node, each once, each up to its bound.
 */

import { env } from 'cloudflare:workers';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  OPENING_LIFE_MS,
  signOpeningProof,
  verifyOpeningProof,
} from '../../../gateway/accounts/attempt-opening-proof.ts';
import { createUsageTable, markDelivered, storeUsage } from '../../../gateway/usage/outbox/usage-record-table.ts';
import { newAcceptTimeout } from '../../../shared/attempts/accept-timeout.ts';
import { buildOpenFrame } from '../../../shared/attempts/open-frame.ts';
import { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import { UNSEEN_TOKENS_MAX } from '../../../shared/attempts/token-bound.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { isNamed, UsageSettlement } from '../../../shared/usage/usage-settlement.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { ReportName } from '../../../shared/wire/frames.ts';
import { Link } from '../../../shared/wire/link.ts';
import { NO_USAGE, type ReportedTimings, type ReportedUsage } from '../../../shared/wire/reported-usage.ts';
import { runInDurableObject } from '../support/durable.ts';

const SECRET = 'the secret of this installation';
const SESSION = 'a'.repeat(26);
const START = Date.parse('2026-11-24T12:00:00Z');

function inAnObject<T>(name: string, run: (sql: SqlStorage) => T): Promise<T> {
  return runInDurableObject(env.LIMITS.getByName(name), (_, { storage }) => run(storage.sql));
}

/** A gateway's records of one node, which its provider may attack. Each step advances the time by two seconds. */
class Books {
  readonly #sql: SqlStorage;
  #now = START;
  #stream = 1;
  #settlement: UsageSettlement;
  #open = new Map<number, OutboundAttempt>();
  /** The openings that the node was sent, oldest first. */
  readonly sent: { stream: number; name: ReportName }[] = [];
  /** By key: the most that its requests here can cost. */
  readonly bounds = new Map<string, number>();
  readonly refused: string[] = [];

  constructor(sql: SqlStorage) {
    this.#sql = sql;
    sql.exec('DROP TABLE IF EXISTS usage; DROP TABLE IF EXISTS pending; DROP TABLE IF EXISTS usage_expired');
    createUsageTable(sql);
    this.#settlement = this.#begin();
  }

  #begin(): UsageSettlement {
    return new UsageSettlement(SESSION, {
      opening: (name) => verifyOpeningProof(SECRET, SESSION, name, this.#now),
      nextStream: () => this.#stream++,
      running: (name) => [...this.#open.values()].find((upstream) => isNamed(upstream, name)),
    });
  }

  open(key: string, bound: { prompt: number; completion: number }, session = SESSION): void {
    const receipt = `${key}\n+\nm`;
    const [requestId, attempt, endpoint] = [`r${this.#stream}`, 1, 1];
    const proven = { session, requestId, attempt, receipt, endpoint, streamed: true, bound };
    const proof = signOpeningProof(SECRET, proven, this.#now);
    const limits = { firstByteMs: 0, stallMs: 0, acceptMs: 1_000 };
    const how = { resume: false, answerOffset: 0, headers: [], edits: [], streaming: true, dropUsage: false };
    const request = { requestId, attempt, receipt, proof, bound, endpoint, ...how, ...limits, bodyLength: 0 };
    const stream = this.#stream++;
    const frame = buildOpenFrame(request, { stream, resume: false, from: 0, bodyLength: 0 });
    this.sent.push({ stream, name: { requestId, attempt, receipt: frame.receipt } });
    if (session !== SESSION) return;
    const host = {
      now: () => this.#now,
      patientNow: () => this.#now,
      accepts: newAcceptTimeout(),
      onOver: () => {},
      onFirstByte: () => {},
      renumber: () => stream,
    };
    const upstream = new OutboundAttempt(stream, request, null, host);
    const port = { send: () => {}, busy: () => false, schedule: () => {}, stuck: () => {} };
    upstream.connect(new Link(port, { send: 0, receive: 0 }, new FrameMeter(() => this.#now)));
    this.#open.set(stream, upstream);
    this.bounds.set(key, (this.bounds.get(key) ?? 0) + bound.prompt + bound.completion);
  }

  report(stream: number, usage: ReportedUsage, name?: ReportName, timings?: ReportedTimings): void {
    const open = this.#open.get(stream);
    if (name === undefined) this.#settlement.report(stream, usage, open, this.#now);
    else this.#settlement.named({ stream, usage, name, timings }, open, this.#now);
    this.step();
  }

  end(stream: number, failure?: 'cancelled' | 'refused' | 'lost'): void {
    const upstream = this.#open.get(stream);
    this.#open.delete(stream);
    if (upstream !== undefined) this.#settlement.ended(upstream, failure, this.#now);
    this.step();
  }

  /** The gateway is killed: its memory is lost. */
  restart(): void {
    this.#open.clear();
    this.#settlement = this.#begin();
  }

  step(): void {
    this.#now += 2_000;
    this.refused.push(...this.#settlement.takeAnomalies());
    storeUsage(this.#sql, this.#settlement.take(this.#now).records);
  }

  /** Each kept record. */
  records(): UsageRecord[] {
    this.#now += 60_000;
    this.step();
    const rows = this.#sql.exec<{ record: string }>('SELECT record FROM usage').toArray();
    return rows.map(({ record }) => JSON.parse(record) as UsageRecord);
  }

  charged(): Map<string, number> {
    const sums = new Map<string, number>();
    for (const { receipt, prompt, completion } of this.records()) {
      const [key = ''] = receipt.split('\n');
      sums.set(key, (sums.get(key) ?? 0) + prompt + completion);
    }
    return sums;
  }
}

const tokens = fc.oneof(fc.nat(100), fc.constant(Number.MAX_SAFE_INTEGER), fc.maxSafeNat());
const usage: fc.Arbitrary<ReportedUsage> = fc.record({
  prompt: tokens,
  completion: tokens,
  cached: tokens,
  reasoning: tokens,
  estimated: fc.boolean(),
  complete: fc.boolean(),
  aborted: fc.boolean(),
});
const key = fc.constantFrom('key_a', 'key_b');
const bound = fc.record({ prompt: fc.nat(1_000), completion: fc.nat(1_000) });
/** Index of an opening, modulo their number. */
const which = fc.nat(1_000);

type Act = (books: Books) => void;
const pick = (books: Books, n: number) => books.sent[n % Math.max(1, books.sent.length)];
const act: fc.Arbitrary<Act> = fc.oneof(
  fc.tuple(key, bound).map(
    ([k, b]): Act =>
      (books) =>
        books.open(k, b),
  ),
  // A request that was opened at the same provider's other node.
  fc.tuple(key, bound).map(
    ([k, b]): Act =>
      (books) =>
        books.open(k, b, 'b'.repeat(26)),
  ),
  fc.tuple(which, usage).map(
    ([n, u]): Act =>
      (books) =>
        books.report(pick(books, n)?.stream ?? n, u),
  ),
  fc.tuple(which, usage).map(([n, u]): Act => {
    return (books) => books.report(pick(books, n)?.stream ?? n, u, pick(books, n)?.name);
  }),
  // Under any number, with any id, attempt and receipt that the node has seen, or a receipt that it invented.
  fc.tuple(which, which, which, which, usage, fc.constantFrom('', 'x', '\nkey_b\n+\nm')).map(
    ([stream, id, attempt, receipt, u, more]): Act =>
      (books) =>
        books.report(stream, u, {
          requestId: pick(books, id)?.name.requestId ?? 'invented',
          attempt: attempt % 3,
          receipt: more + (pick(books, receipt)?.name.receipt ?? ''),
        }),
  ),
  fc.tuple(which, fc.constantFrom(undefined, 'cancelled', 'refused', 'lost')).map(([n, failure]): Act => {
    return (books) => books.end(pick(books, n)?.stream ?? n, failure);
  }),
  fc.constant((books: Books) => books.restart()),
);

test('for any report of a node, no key is charged above the bound of its requests there, and each attempt once', async () => {
  await inAnObject('charges', (sql) => {
    fc.assert(
      fc.property(fc.array(act, { maxLength: 40 }), (acts) => {
        const books = new Books(sql);
        for (const one of acts) one(books);
        for (const [who, sum] of books.charged()) expect(sum).toBeLessThanOrEqual(books.bounds.get(who) ?? 0);
        const names = books.records().map(({ requestId, attempt }) => `${requestId}/${attempt}`);
        expect(new Set(names).size).toBe(names.length);
      }),
      { numRuns: 1500 },
    );
  });
});

const USED = { ...NO_USAGE, prompt: 30, completion: 40, complete: true };
const BOUND = { prompt: 100, completion: 200 };

test('a report that comes after the gateway was restarted counts once; how the request went is unknown, and no failure', async () => {
  const records = await inAnObject('restarted', (sql) => {
    const books = new Books(sql);
    books.open('key_a', BOUND);
    books.restart();
    for (let n = 0; n < 3; n++) books.report(7, USED, books.sent[0]?.name);
    return books.records();
  });
  const unknown = { endpoint: 1, streamed: true, status: null, firstMs: null, totalMs: null };
  expect(records).toEqual([expect.objectContaining({ prompt: 30, completion: 40, course: unknown })]);
});

test('how a request went that the restarted gateway had forgotten is what its agent says', async () => {
  const records = await inAnObject('timed', (sql) => {
    const books = new Books(sql);
    books.open('key_a', BOUND);
    books.restart();
    books.step();
    books.report(7, USED, books.sent[0]?.name, { status: 200, firstMs: 300, totalMs: 1_900 });
    return books.records();
  });
  const course = { endpoint: 1, streamed: true, status: 200, firstMs: 300, totalMs: 1_900 };
  expect(records).toEqual([expect.objectContaining({ course })]);
});

test('no node can say of a forgotten request that it took longer than the time since its opening, and one that does is told', async () => {
  const { records, refused } = await inAnObject('too-long', (sql) => {
    const books = new Books(sql);
    books.open('key_a', BOUND);
    books.restart();
    books.step();
    books.report(7, USED, books.sent[0]?.name, { status: 200, firstMs: 86_400_000, totalMs: 86_400_000 });
    return { records: books.records(), refused: books.refused };
  });
  const course = { endpoint: 1, streamed: true, status: 200, firstMs: 2_000, totalMs: 2_000 };
  expect(records).toEqual([expect.objectContaining({ course })]);
  expect(refused).toEqual(['over_bound']);
});

test('invented requests, replayed receipts and those opened at another node charge no key, and are reported', async () => {
  const { charged, refused } = await inAnObject('invented', (sql) => {
    const books = new Books(sql);
    books.open('key_a', BOUND);
    books.open('key_a', BOUND, 'b'.repeat(26));
    books.restart();
    const [own, others] = books.sent;
    for (let n = 0; n < 200; n++)
      books.report(1_000 + n, USED, { requestId: `made-up-${n}`, attempt: 1, receipt: own?.name.receipt ?? '' });
    books.report(2_000, USED, others?.name);
    books.report(2_001, USED, { requestId: 'r1', attempt: 2, receipt: own?.name.receipt ?? '' });
    books.report(2_002, USED, {
      requestId: 'r1',
      attempt: 1,
      receipt: own?.name.receipt.replace('\nm', '\ndear') ?? '',
    });
    return { charged: [...books.charged()], refused: books.refused };
  });
  expect(charged).toEqual([]);
  expect(refused).toEqual(new Array(203).fill('unproven'));
});

test('a count above what the request can have used is cut, and told', async () => {
  const { charged, refused } = await inAnObject('cut', (sql) => {
    const books = new Books(sql);
    const wide = { prompt: 100, completion: 1_000_000 };
    books.open('key_a', wide);
    books.open('key_b', wide);
    const [seen, unseen] = books.sent;
    // None of the response arrived, so it has what an engine may count without sending it.
    books.report(seen?.stream ?? 0, { ...USED, prompt: 101, completion: Number.MAX_SAFE_INTEGER });
    books.restart();
    books.report(9, { ...USED, completion: Number.MAX_SAFE_INTEGER }, unseen?.name);
    return { charged: [...books.charged()], refused: books.refused };
  });
  expect(charged).toEqual([
    ['key_a', 100 + UNSEEN_TOKENS_MAX],
    ['key_b', 30 + 1_000_000],
  ]);
  expect(refused).toEqual(['over_bound', 'over_bound']);
});

test('a request that a node refused is not charged for, although the node says so later', async () => {
  const charged = await inAnObject('refused', (sql) => {
    const books = new Books(sql);
    books.open('key_a', BOUND);
    const [one] = books.sent;
    books.end(one?.stream ?? 0, 'refused');
    books.report(9, USED, one?.name);
    return [...books.charged()];
  });
  expect(charged).toEqual([]);
});

/**
 * HMAC-SHA-256 of RFC 2104 cut to 128 bits, as computed by node:crypto: agents hold proofs from a gateway of the
 * previous version.
 */
test.each([
  ['', 'hPxZHi8myihPzUvU89_xDw'],
  ['ünïcode ✓', 'ZmdLYTAFPjkr0oQSACsUKg'],
])('the proof of an opening is written as ever: %j', (receipt, mac) => {
  const bound = { prompt: 5, completion: 6 };
  const opening = { session: 's', requestId: 'r', attempt: 2, receipt, endpoint: 1, streamed: true, bound };
  expect(signOpeningProof('a secret', opening, 1_000)).toBe(`1.1ffvfs.1.1.5.6.${mac}`);
});

test('a proof is good for a day', () => {
  const opening = {
    session: SESSION,
    requestId: 'r',
    attempt: 1,
    receipt: 'k\n+\nm',
    endpoint: 3,
    streamed: false,
    bound: BOUND,
  };
  const name = { requestId: 'r', attempt: 1, receipt: `${signOpeningProof(SECRET, opening, START)}\nk\n+\nm` };
  const { session: _, requestId: __, attempt: ___, ...facts } = opening;
  const times = { openedAt: START, expiresAt: START + OPENING_LIFE_MS };
  expect(verifyOpeningProof(SECRET, SESSION, name, START)).toEqual({ ...facts, ...times });
  expect(verifyOpeningProof(SECRET, SESSION, name, START + OPENING_LIFE_MS)).toBeUndefined();
  expect(verifyOpeningProof('another', SESSION, name, START)).toBeUndefined();
  for (const receipt of ['', '\n', '1.\n', '.'.repeat(40), 'ü'.repeat(30), `1.${'ü'.repeat(22)}\nx`])
    expect(verifyOpeningProof(SECRET, SESSION, { ...name, receipt }, START)).toBeUndefined();
});

test('where a record is no longer kept, nothing that it may be of is counted again', async () => {
  const [late, refused] = await inAnObject('forgotten', (sql) => {
    createUsageTable(sql);
    const name = { attempt: 1, session: SESSION, receipt: 'k\n+\nm', answerBytes: 1, at: START };
    const record = (stream: number): UsageRecord => ({
      ...USED,
      ...name,
      requestId: `r${stream}`,
      stream,
      repeated: false,
    });
    for (let from = 1; from <= 40_100; from += 1_000) {
      markDelivered(sql, from); // undelivered records are kept longer
      storeUsage(
        sql,
        Array.from({ length: 1_000 }, (_, n) => record(from + n)),
      );
    }
    const again = (expiresAt: number): UsageRecord => ({
      ...record(50_000),
      requestId: 'r1',
      repeated: true,
      expiresAt,
    });
    const counts = () =>
      sql.exec<{ n: number }>("SELECT count(*) AS n FROM usage WHERE record ->> 'requestId' = 'r1'").one().n;
    const kept = [counts()];
    const told = [storeUsage(sql, [again(START + OPENING_LIFE_MS)])];
    kept.push(counts());
    told.push(storeUsage(sql, [again(START + OPENING_LIFE_MS + 1)]));
    kept.push(counts());
    return [kept, told];
  });
  expect(late).toEqual([0, 0, 1]);
  expect(refused).toEqual([1, 0]);
});
