/** The machine's clock jumps by ten minutes. What a process keeps for seconds still holds for seconds. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HangWatch } from '../../shared/attempts/hang-watch.ts';
import { TokenBucket } from '../../shared/collections/token-bucket.ts';
import { BusyNodes } from '../../shared/routing/busy-nodes.ts';
import { CircuitBreakers } from '../../shared/routing/circuit-breakers.ts';
import { LiveNodes } from '../../shared/routing/live-nodes.ts';
import { RetryBudget } from '../../shared/routing/retry-budget.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';

const TEN_MINUTES_MS = 600_000;
const START = Date.parse('2026-11-24T12:00:00Z');
const SETTINGS = [-TEN_MINUTES_MS, TEN_MINUTES_MS] as const;

describe.each(SETTINGS)('the clock is set by %d ms', (by) => {
  it('an open circuit breaker lets a request try its node within a minute, and the request that succeeds closes it', () => {
    const live = new LiveNodes();
    const breakers = new CircuitBreakers(live);
    for (let n = 0; n < 5; n++) breakers.ended('node', 'failed', false, START);
    expect(breakers.avoided(START, true)).toEqual(['node']);
    const now = START + by + 60_001;
    expect(breakers.avoided(now, true)).toEqual([]);
    const isProbe = breakers.started('node', now);
    expect(isProbe).toBe(true);
    breakers.ended('node', 'complete', isProbe, now);
    expect(breakers.avoided(now + 1, true)).toEqual([]);
  });

  it('a circuit breaker opens for a node that fails afterwards', () => {
    const breakers = new CircuitBreakers(new LiveNodes());
    for (let n = 0; n < 5; n++) breakers.ended('node', 'failed', false, START);
    breakers.ended('node', 'complete', breakers.started('node', START + 5_000), START + 5_000);
    const now = START + by + 6_000;
    for (let n = 0; n < 5; n++) breakers.ended('node', 'failed', false, now);
    expect(breakers.avoided(now + 1, true)).toEqual(['node']);
  });

  it('a node is asked again a quarter of a second after it said that it is busy', () => {
    const busy = new BusyNodes();
    busy.mark('node', START);
    expect(busy.has('node', START)).toBe(true);
    expect(busy.has('node', START + by + 251)).toBe(false);
    expect(busy.isEmpty(START + by + 251)).toBe(true);
  });

  it('the load that a node tells afterwards counts, and one from before is forgotten', () => {
    const live = new LiveNodes();
    live.setLoad('node', { running: 9, waiting: 0, at: START, open: 9 });
    live.setLoad('silent', { running: 9, waiting: 0, at: START, open: 9 });
    const now = START + by + 6_000;
    live.setLoad('node', { running: 1, waiting: 0, at: now, open: 1 });
    live.expire(now);
    expect(live.loadOf('node')?.running).toBe(1);
    expect(live.loadOf('silent')).toBeUndefined();
  });

  it('the retry budget is neither spent nor unlimited', () => {
    const budget = new RetryBudget();
    const taken = (now: number) => Array.from({ length: 1_000 }, () => budget.take(now)).filter(Boolean).length;
    expect(taken(START)).toBe(100);
    expect(taken(START + by + 20_000)).toBe(100);
  });

  it('a token bucket gives its burst and its rate, and no more', () => {
    const bucket = new TokenBucket(10, 20, START);
    const taken = (now: number) => Array.from({ length: 100 }, () => bucket.take(1, now)).filter(Boolean).length;
    expect(taken(START)).toBe(20);
    expect(taken(START + by)).toBeLessThanOrEqual(20);
    expect(taken(START + by + 1_000)).toBeLessThanOrEqual(20);
    expect(taken(START + by + 3_000)).toBeGreaterThanOrEqual(10);
  });

  it('an engine that was taken to hang before a restart is tried within its pause', () => {
    const suspicion = { since: START, until: START + 5_000, pauseMs: 10_000 };
    let now = START + by;
    const watch = new HangWatch({ now: () => now, compare: () => {}, onSuspicion: () => {} }, suspicion);
    now += 10_000;
    expect(watch.admits({ endpoint: 1, movable: true })).toBe(true);
  });
});

it('an interval that is measured with a clock is never longer than the interval that was asked for', () => {
  fc.assert(
    fc.property(fc.nat(1_000_000), fc.integer({ min: -2_000_000, max: 2_000_000 }), (ms, passed) => {
      expect(isRecent(ms, START, START + passed)).toBe(passed >= 0 && passed < ms);
    }),
  );
});
