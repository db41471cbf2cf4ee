import { describe, expect, it } from 'vitest';
import { CircuitBreakers } from '../../../shared/routing/circuit-breakers.ts';
import { LiveNodes } from '../../../shared/routing/live-nodes.ts';
import { type BreakerState, breakerAt } from '../../../shared/routing/node-load.ts';
import type { RequestOutcome } from '../../../shared/routing/retry-policy.ts';

/** Isolates of one gateway: a state that any isolate reports reaches all immediately. The test moves `now`. */
class Gateway {
  now = 1_000_000;
  readonly told: [string, BreakerState][] = [];
  readonly isolates: { live: LiveNodes; breakers: CircuitBreakers }[];

  constructor(isolates = 1) {
    this.isolates = Array.from({ length: isolates }, () => {
      const live = new LiveNodes();
      return { live, breakers: new CircuitBreakers(live) };
    });
  }

  #at(isolate: number): { live: LiveNodes; breakers: CircuitBreakers } {
    const found = this.isolates[isolate];
    if (found === undefined) throw new Error('no such isolate');
    return found;
  }

  begin(session: string, isolate = 0): (ending: RequestOutcome) => void {
    const { breakers } = this.#at(isolate);
    const probe = breakers.started(session, this.now);
    return (ending) => {
      const news = breakers.ended(session, ending, probe, this.now);
      if (news === undefined) return;
      this.told.push([session, news]);
      for (const { live } of this.isolates) live.apply({ [session]: { breaker: news } });
    };
  }

  ask(session: string, ending: RequestOutcome, times = 1, isolate = 0): void {
    for (let n = 0; n < times; n++) this.begin(session, isolate)(ending);
  }

  avoids(session: string, mayProbe = true, isolate = 0): boolean {
    return this.#at(isolate).breakers.avoided(this.now, mayProbe).includes(session);
  }

  state(session: string): string {
    return breakerAt(this.#at(0).live.of(session).breaker, this.now);
  }
}

describe('a node leaves the candidates', () => {
  it('after five failures in a row, and of no other', () => {
    const gateway = new Gateway();
    gateway.ask('bad', 'failed', 4);
    expect(gateway.avoids('bad')).toBe(false);
    gateway.ask('bad', 'failed');
    expect(gateway.avoids('bad')).toBe(true);
    expect(gateway.avoids('good')).toBe(false);
    expect(gateway.state('bad')).toBe('open');
  });

  it('when half of what it does fails', () => {
    const gateway = new Gateway();
    gateway.ask('good', 'complete', 20);
    for (let n = 0; n < 12 && !gateway.avoids('bad'); n++) {
      gateway.ask('bad', 'failed');
      gateway.ask('bad', 'complete');
      gateway.now += 100;
    }
    expect(gateway.avoids('bad')).toBe(true);
  });

  it('not for a failure now and then', () => {
    const gateway = new Gateway();
    for (let n = 0; n < 1_000; n++) {
      gateway.ask('a', n % 4 === 0 ? 'failed' : 'complete');
      gateway.now += 50;
    }
    expect(gateway.told).toEqual([]);
  });

  it.each(['busy', 'slow', 'left'] as const)('not for being %s', (ending) => {
    const gateway = new Gateway();
    gateway.ask('a', ending, 100);
    expect(gateway.avoids('a')).toBe(false);
  });

  it('not while all the others fail as well: none of them is to blame', () => {
    const gateway = new Gateway();
    for (let n = 0; n < 30; n++) for (const session of ['a', 'b', 'c', 'd']) gateway.ask(session, 'failed');
    // There is no node yet that the first one can be compared with.
    expect(gateway.told.length).toBeLessThanOrEqual(1);
  });

  it('in every isolate, once one has found out', () => {
    const gateway = new Gateway(3);
    gateway.ask('bad', 'failed', 5, 1);
    expect([0, 1, 2].map((isolate) => gateway.avoids('bad', true, isolate))).toEqual([true, true, true]);
  });
});

describe('a node comes back', () => {
  const opened = () => {
    const gateway = new Gateway(2);
    gateway.ask('bad', 'failed', 5);
    return gateway;
  };

  it('by one request at a time, after five seconds', () => {
    const gateway = opened();
    gateway.now += 4_999;
    expect(gateway.avoids('bad')).toBe(true);
    gateway.now += 1;
    expect(gateway.state('bad')).toBe('half-open');
    expect(gateway.avoids('bad')).toBe(false);
    const end = gateway.begin('bad');
    expect(gateway.avoids('bad')).toBe(true);
    end('complete');
    expect(gateway.avoids('bad')).toBe(false);
    expect(gateway.avoids('bad', true, 1)).toBe(false);
    expect(gateway.state('bad')).toBe('closed');
  });

  it('and is left alone for twice as long each time that fails, up to a minute', () => {
    const gateway = opened();
    const waits: number[] = [];
    for (let n = 0; n < 6; n++) {
      const from = gateway.now;
      while (gateway.avoids('bad')) gateway.now += 100;
      waits.push(gateway.now - from);
      gateway.ask('bad', 'failed');
    }
    expect(waits).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
  });

  it('never by a request that could not be sent again', () => {
    const gateway = opened();
    gateway.now += 60_000;
    expect(gateway.avoids('bad', false)).toBe(true);
    expect(gateway.avoids('bad', true)).toBe(false);
  });

  it('by another request where the one that tried said nothing, or has been gone for long', () => {
    const gateway = opened();
    gateway.now += 5_000;
    gateway.begin('bad')('left');
    expect(gateway.avoids('bad')).toBe(false);
    gateway.begin('bad');
    expect(gateway.avoids('bad')).toBe(true);
    gateway.now += 30_000;
    expect(gateway.avoids('bad')).toBe(false);
  });

  it('not by what began before it was left alone', () => {
    const gateway = new Gateway();
    const early = gateway.begin('bad');
    gateway.ask('bad', 'failed', 5);
    gateway.now += 6_000;
    early('complete');
    expect(gateway.state('bad')).toBe('half-open');
    gateway.begin('bad')('complete');
    gateway.ask('bad', 'failed', 4);
    expect(gateway.state('bad')).toBe('closed');
  });
});

it('what is remembered is bounded, however many nodes fail', () => {
  const gateway = new Gateway();
  for (let n = 0; n < 20_000; n++) {
    gateway.ask(`node-${n}`, 'failed', 2);
    gateway.ask('well', 'complete', 5);
  }
  expect(gateway.told).toEqual([]);
  gateway.ask('node-1', 'failed', 5);
  expect(gateway.avoids('node-1')).toBe(true);
});
