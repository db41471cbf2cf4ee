/** (A) Open loop below capacity while nodes fail: no non-streaming request and no resumable stream sees an error. */
import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../../bench/stats.ts';
import type { Kind, Result, Verdict } from './client.ts';
import type { Fault } from './faults.ts';
import type { Fleet } from './fleet.ts';
import { type Accounts, audit } from './ledger.ts';
import { TOKENS_MEAN, Traffic } from './traffic.ts';
import { type Strike, Victims } from './victims.ts';

interface PartAOptions {
  /** Seconds without faults, at the beginning. */
  calmSeconds: number;
  seconds: number;
  /** Fraction of the capacity of all replicas. */
  load: number;
  every: readonly [least: number, most: number];
  atOnce: number;
  faults: readonly Fault[];
  random: () => number;
  log(line: string): void;
}

interface Tally {
  kind: Kind;
  requests: number;
  verdicts: Record<Verdict, number>;
  /** Responses for which more than one node was tried. */
  retried: number;
  continued: number;
}

interface Sample {
  /** Seconds since the part began. */
  at: number;
  serving: number;
  tokens: number;
  ended: number;
  errors: number;
}

export interface PartA {
  seconds: number;
  /** Requests per second, and their load as a fraction of the serving replicas' capacity. */
  perSecond: number;
  load: number;
  tallies: Tally[];
  strikes: Strike[];
  troubles: string[];
  /** Milliseconds; `calm` is without faults. */
  latency: { what: string; calm: { p50: number; p99: number }; chaos: { p50: number; p99: number } }[];
  accounts: Accounts;
  /** Epoch milliseconds. */
  beginAt: number;
  samples: Sample[];
  problems: string[];
}

/** Number of errors that a client of a non-streaming response or of a resumable stream must not see. */
export function clientErrors({ tallies }: PartA): number {
  const bad = tallies.map(({ kind, verdicts }) => {
    const wrong = verdicts.failed + verdicts.false;
    return kind === 'plain' ? verdicts.false : wrong + verdicts.broken;
  });
  return bad.reduce((sum, count) => sum + count, 0);
}

/** Cancellations arrive for a moment after the last client has disconnected. */
const SETTLE_MS = 3_000;
const PROBLEMS_MAX = 30;

export async function partA(fleet: Fleet, options: PartAOptions): Promise<PartA> {
  const { calmSeconds, seconds, load, every, atOnce, faults, random, log } = options;
  const perSecond = (fleet.capacity * load) / TOKENS_MEAN;
  const traffic = new Traffic('a', { port: fleet.gateway.port, key: fleet.key }, random);
  const victims = new Victims({ fleet, faults, random, every, atOnce });
  const servings: number[] = [];
  const beginAt = Date.now();
  const watch = setInterval(() => servings.push(fleet.serving), 1_000);
  const going = traffic.openLoop(perSecond);
  await sleep(calmSeconds * 1_000);
  const chaosAt = Date.now();
  victims.start();
  await sleep(seconds * 1_000);
  log('A: no more victims');
  await victims.stop();
  const endAt = Date.now();
  clearInterval(watch);
  log(`A: ${traffic.underWay} requests are still under way`);
  await traffic.end();
  await going;
  await sleep(SETTLE_MS);
  const { results } = traffic;
  const meanServing = servings.reduce((sum, count) => sum + count, 0) / Math.max(1, servings.length);
  return {
    seconds: (endAt - beginAt) / 1_000,
    perSecond,
    load: (load * fleet.replicas.length) / meanServing,
    tallies: (['unary', 'resumable', 'plain'] as const).map((kind) => tally(kind, results)),
    strikes: victims.strikes,
    troubles: victims.troubles,
    latency: latencies(results, chaosAt),
    accounts: audit(fleet.replicas, results),
    beginAt,
    samples: servings.map((serving, at) => sample(at, serving, beginAt, traffic)),
    problems: results
      .filter(({ problem, verdict }) => problem !== '' && verdict !== 'left')
      .slice(0, PROBLEMS_MAX)
      .map(tell),
  };
}

function tally(kind: Kind, results: readonly Result[]): Tally {
  const mine = results.filter(({ wish }) => wish.kind === kind);
  const count = (verdict: Verdict) => mine.filter((result) => result.verdict === verdict).length;
  return {
    kind,
    requests: mine.length,
    verdicts: {
      ok: count('ok'),
      failed: count('failed'),
      broken: count('broken'),
      false: count('false'),
      left: count('left'),
    },
    retried: mine.filter(({ attempts }) => attempts > 1).length,
    continued: mine.filter(({ continued }) => continued).length,
  };
}

function latencies(results: readonly Result[], chaosAt: number): PartA['latency'] {
  const row = (what: string, of: (result: Result) => number | undefined) => {
    const at = (calm: boolean) => {
      const values = results
        .filter(({ verdict, startedAt }) => verdict === 'ok' && startedAt < chaosAt === calm)
        .flatMap((result) => of(result) ?? []);
      return { p50: quantile(values, 0.5), p99: quantile(values, 0.99) };
    };
    return { what, calm: at(true), chaos: at(false) };
  };
  return [
    row('first token of a stream', (result) => (result.wish.kind === 'unary' ? undefined : result.firstMs)),
    row('time per token of a whole answer', ({ startedAt, endedAt, wish }) => (endedAt - startedAt) / wish.tokens),
  ];
}

function sample(at: number, serving: number, beginAt: number, traffic: Traffic): Sample {
  const from = beginAt + at * 1_000;
  const ended = traffic.results.filter(({ endedAt }) => endedAt >= from && endedAt < from + 1_000);
  const errors = ended.filter(
    ({ verdict, wish }) =>
      verdict === 'failed' || verdict === 'false' || (verdict === 'broken' && wish.kind !== 'plain'),
  );
  const tokens = traffic.tokensBySecond.get(Math.floor(from / 1_000)) ?? 0;
  return { at, serving, tokens, ended: ended.length, errors: errors.length };
}

export function tell({ wish, verdict, startedAt, endedAt, status, attempts, node, problem }: Result): string {
  return `${new Date(startedAt).toISOString()} ${wish.kind} ${wish.path} ${wish.marker} ${verdict} after ${endedAt - startedAt} ms: ${problem} (status ${status}, attempts ${attempts}, node ${node})`;
}
