/** `otela-plan watch`: when it plans again, and when it leaves things alone. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { watchCommand } from '../../scheduler/cli/watch.ts';
import { EMPTY_STATE, readState } from '../../scheduler/controller/state.ts';
import { Triggers } from '../../scheduler/controller/triggers.ts';
import type { Io } from '../../shared/terminal/io.ts';
import { Jobs, ROW, Workplace } from './support/workplace.ts';

const place = new Workplace();
const { gateway } = place;
beforeAll(() => place.open());
beforeEach(() => place.renew());
afterAll(() => place.close());

describe('watching', () => {
  /** Runs `rounds` looks; `between` happens after each. */
  async function watch(rounds: number, between: (round: number) => void): Promise<string> {
    const lines: string[] = [];
    const io: Io = { out: (text) => void lines.push(text), log: (line) => void lines.push(line) };
    const over = new AbortController();
    let now = Date.parse('2026-01-01T00:00:00Z');
    let done = 0;
    const wait = async () => {
      between(++done);
      now += 60_000;
      if (done >= rounds) over.abort();
    };
    const code = await watchCommand([...place.argv, '--yes'], io, {
      launcher: place.jobs,
      now: () => now,
      signal: over.signal,
      wait,
    });
    expect(code).toBe(0);
    return lines.join('\n');
  }

  it('plans when a model has no replica, then leaves the plan alone, and starts a job that died again', async () => {
    let started = 0;
    const out = await watch(6, (at) => {
      if (at === 3) {
        started = place.jobs.scripts.size;
        place.jobs.alive.clear();
      }
    });
    expect(out.match(/plans again/g)?.length).toBe(2);
    expect(out).toMatch(/without a replica[\s\S]*ended unasked/);
    expect(place.jobs.scripts.size).toBe(2 * started);
  });

  it('plans when the load has been 20 % off for 10 minutes, not for a burst', async () => {
    const burst = await watch(8, (at) =>
      Object.assign(gateway, { workload: [{ ...ROW, requests_per_second: at === 3 ? 10 : 2 }] }),
    );
    expect(burst.match(/plans again/g)?.length).toBe(1);
    rmSync(place.state);
    place.jobs = new Jobs();
    const lasting = await watch(16, (at) =>
      Object.assign(gateway, { workload: [{ ...ROW, requests_per_second: at >= 2 ? 10 : 2 }] }),
    );
    expect(lasting).toMatch(/10\.0 requests\/s for 10 minutes, planned for 2\.00/);
  });

  it('without --yes starts nothing, writes nothing and says each thing once', async () => {
    const lines: string[] = [];
    const io: Io = { out: (text) => void lines.push(text), log: () => {} };
    let looks = 0;
    const over = new AbortController();
    const wait = async () => (++looks >= 5 ? over.abort() : undefined);
    await watchCommand(place.argv, io, { launcher: place.jobs, now: () => looks * 300_000, signal: over.signal, wait });
    expect(lines.join('\n').match(/plans again/g)?.length).toBe(1);
    expect(place.jobs.scripts.size).toBe(0);
    expect(readState(place.state)).toEqual(EMPTY_STATE);
  });

  it('goes on when the gateway is away, and everything runs on when it ends', async () => {
    const out = await watch(4, (at) => Object.assign(gateway, { down: at === 1 || at === 2 }));
    expect(out).toMatch(/answers 503; what runs goes on/);
    expect(place.jobs.alive.size).toBeGreaterThan(0);
    expect(place.jobs.stopped).toEqual([]);
  });
});

describe('triggers', () => {
  it('an idle node is news once, and again when it comes back', () => {
    const triggers = new Triggers();
    const seen = (idle: string[]) => triggers.look({ idle, without: [], rates: {} }, {}, 0).length;
    expect([seen(['a']), seen(['a']), seen([]), seen(['a'])]).toEqual([1, 0, 0, 1]);
  });
});
