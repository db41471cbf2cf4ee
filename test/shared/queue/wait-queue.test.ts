import { expect, test } from 'vitest';
import { type TurnRequest, type TurnResult, WaitQueue } from '../../../shared/queue/wait-queue.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

/** Virtual time: `advance` fires the due timers in order. */
class TestClock {
  #now = 1_000_000;
  readonly #timers = new Set<{ at: number; ring: () => void }>();

  now = () => this.#now;

  after = (ms: number, ring: () => void) => {
    const timer = { at: this.#now + ms, ring };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  };

  get armed(): number {
    return this.#timers.size;
  }

  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    for (;;) {
      const [next] = [...this.#timers].sort((one, other) => one.at - other.at);
      if (next === undefined || next.at > until) break;
      this.#timers.delete(next);
      this.#now = next.at;
      next.ring();
      await Promise.resolve();
    }
    this.#now = until;
    await Promise.resolve();
  }
}

let made = 0;

function asked(more: Partial<TurnRequest> = {}): TurnRequest {
  const who = { name: `r${++made}`, project: 'p', key: 'k', scope: 's', priority: 'interactive' as const, weight: 1 };
  return { ...who, busy: [], waitMs: 20_000, back: false, places: 100, ...more };
}

/** A queue, and the result of each of its entries. */
function opened() {
  const clock = new TestClock();
  const line = new WaitQueue(clock);
  const told: Record<string, TurnResult> = {};
  const leave: Record<string, () => void> = {};
  const enter = (more: Partial<TurnRequest> = {}) => {
    const place = asked(more);
    const left = (call: () => void) => {
      leave[place.name] = call;
      return () => delete leave[place.name];
    };
    neverRejects(
      line.wait(place, left).then((answer) => {
        told[place.name] = answer;
      }),
    );
    return place;
  };
  return { clock, line, told, leave, enter };
}

test('a waiting request may try after a while; if it returns, it waits as long again', async () => {
  const { clock, told, line, enter } = opened();
  const one = enter();
  await clock.advance(240);
  expect(told).toEqual({});
  await clock.advance(20);
  expect(told).toEqual({ [one.name]: { kind: 'turn' } });
  delete told[one.name];
  const again = enter({ name: one.name, back: true });
  await clock.advance(240);
  expect(told).toEqual({});
  await clock.advance(20);
  expect(told[again.name]).toEqual({ kind: 'turn' });
  expect(line.depth.waiting).toBe(0);
});

test('an end at a node that was busy is a turn with its name, for a request that was turned away there', async () => {
  const { told, line, enter, clock } = opened();
  const [one, two] = [enter({ busy: ['n1'], scope: 'a' }), enter({ busy: ['n2'], scope: 'b' })];
  expect([line.hasWaiterFor('n1'), line.hasWaiterFor('n2'), line.hasWaiterFor('n3')]).toEqual([true, true, false]);
  line.freed('n2', 1);
  await clock.advance(0);
  expect(told).toEqual({ [two.name]: { kind: 'turn', session: 'n2' } });
  expect([line.hasWaiterIn('a'), line.hasWaiterIn('b')]).toEqual([true, false]);
  expect(one.name in told).toBe(false);
});

test('a request that waited its time is late, one that left is gone, and no timer remains', async () => {
  const { clock, told, leave, line, enter } = opened();
  const late = enter({ waitMs: 100 });
  const leaving = enter();
  await clock.advance(110);
  expect(told).toEqual({ [late.name]: { kind: 'late' } });
  leave[leaving.name]?.();
  await clock.advance(0);
  expect(told[leaving.name]).toEqual({ kind: 'late' });
  expect([line.depth.waiting, line.idle, clock.armed]).toEqual([0, true, 0]);
});

test('a full queue refuses the project that fills it, and makes room for another project', async () => {
  const { told, enter, clock } = opened();
  const [, second, third] = [enter({ places: 2 }), enter({ places: 2 }), enter({ places: 2 })];
  await clock.advance(0);
  expect(told).toEqual({ [third.name]: { kind: 'full', retryAfterMs: expect.any(Number) } });
  enter({ places: 2, project: 'other' });
  await clock.advance(0);
  expect(told[second.name]).toMatchObject({ kind: 'full' });
});

test('streams that broke off have half of the places, and their places go to the next of them', async () => {
  const { told, leave, line, enter, clock } = opened();
  const begun = { places: 4, begun: true, scope: 'broken' };
  const [one, two, three] = [enter(begun), enter(begun), enter(begun)];
  await clock.advance(0);
  expect(told).toEqual({ [three.name]: { kind: 'full', retryAfterMs: expect.any(Number) } });
  enter({ places: 4 });
  enter({ places: 4 });
  expect(line.depth.waiting).toBe(4);
  leave[one.name]?.();
  enter(begun);
  await clock.advance(0);
  expect(line.depth.waiting).toBe(4);
  expect([told[one.name]?.kind, two.name in told]).toEqual(['late', false]);
  // A request gets its place back if its turn did not succeed.
  await clock.advance(260);
  expect(told[two.name]).toEqual({ kind: 'turn' });
  enter(begun);
  const again = enter({ ...begun, name: two.name, back: true });
  await clock.advance(0);
  expect(again.name === two.name && line.depth.waiting).toBe(4);
});

test('a line that closes lets all go', async () => {
  const { told, line, enter, clock } = opened();
  const names = [enter(), enter(), enter()].map(({ name }) => name);
  line.close();
  await clock.advance(0);
  expect(Object.keys(told).sort()).toEqual(names.sort());
  expect([line.depth.waiting, clock.armed]).toEqual([0, 0]);
});
