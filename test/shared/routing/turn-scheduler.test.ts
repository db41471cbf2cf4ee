import { describe, expect, it } from 'vitest';
import type { QueueItem } from '../../../shared/routing/fair-queue.ts';
import { TURN_LEASE_MS, TURN_PROBE_MS, TurnScheduler } from '../../../shared/routing/turn-scheduler.ts';

let made = 0;

function item(more: Partial<QueueItem> = {}): QueueItem {
  return { name: `t${++made}`, project: 'p', key: 'k', scope: 's', priority: 'interactive', weight: 1, ...more };
}

/** `count` entries wait since 0, each refused by node `n1`. */
function waiting(count: number, more: Partial<QueueItem> = {}): TurnScheduler<QueueItem> {
  const turns = new TurnScheduler<QueueItem>(1_000);
  for (let n = 0; n < count; n++) turns.enqueue(item(more), ['n1'], 0);
  return turns;
}

describe('turns', () => {
  it('one is let try after a while, and no other before it is known what came of that', () => {
    const turns = waiting(5);
    expect(turns.due(0)).toEqual([]);
    expect(turns.wakeAt).toBe(TURN_PROBE_MS);
    expect(turns.due(TURN_PROBE_MS)).toHaveLength(1);
    expect(turns.due(TURN_PROBE_MS + 1)).toEqual([]);
  });

  it('a try that finds nothing is the first again, and the next try is after a while', () => {
    const turns = waiting(2);
    const [first] = turns.due(TURN_PROBE_MS);
    if (first === undefined) throw new Error('nobody');
    turns.requeue(first.item, ['n1'], TURN_PROBE_MS + 50);
    expect(turns.due(TURN_PROBE_MS + 51)).toEqual([]);
    expect(turns.due(2 * TURN_PROBE_MS + 50)[0]?.item).toBe(first.item);
  });

  it('more and more requests may try while none returns', () => {
    const turns = waiting(100);
    let now = TURN_PROBE_MS;
    const counts: number[] = [];
    for (let n = 0; n < 5; n++) {
      counts.push(turns.due(now).length);
      now += TURN_LEASE_MS;
    }
    expect(counts).toEqual([1, 2, 4, 8, 16]);
  });

  it('tries that take a second to find nothing, as on a slow machine, are soon no successes any more', () => {
    const turns = waiting(200);
    const trying: { item: QueueItem; since: number }[] = [];
    const atOnce: number[] = [];
    for (let now = TURN_PROBE_MS; now < 30_000; now += 50) {
      for (const { item, since } of trying.filter(({ since }) => now - since >= 1_000)) {
        trying.splice(
          trying.findIndex((one) => one.item === item && one.since === since),
          1,
        );
        turns.requeue(item, ['n1'], now);
      }
      for (const turn of turns.due(now)) trying.push({ item: turn.item, since: now });
      if (now > 10_000) atOnce.push(trying.length);
    }
    expect(Math.max(...atOnce)).toBe(1);
  });

  it('each end at a busy node immediately gives a turn to a request that waits for it', () => {
    const turns = waiting(5);
    turns.freed('n1', 2);
    expect(turns.due(1)).toMatchObject([{ session: 'n1' }, { session: 'n1' }]);
    turns.freed('elsewhere', 3);
    expect(turns.due(2)).toEqual([]);
    expect(turns.size).toBe(3);
  });

  it('ends that keep coming hold up no tries: nodes that came meanwhile are found as fast', () => {
    const turns = waiting(500);
    let untargeted = 0;
    for (let now = 1; now <= TURN_PROBE_MS + 4 * TURN_LEASE_MS; now += 10) {
      turns.freed('n1', 1);
      untargeted += turns.due(now).filter(({ session }) => session === undefined).length;
    }
    expect(untargeted).toBeGreaterThanOrEqual(1 + 2 + 4 + 8);
  });

  it('a request with a second turn before the first ends counts once', () => {
    const turns = waiting(0);
    const again = item();
    turns.enqueue(again, ['n1'], 0);
    expect(turns.due(TURN_PROBE_MS)).toHaveLength(1);
    turns.enqueue(again, ['n1'], TURN_PROBE_MS + 1);
    turns.freed('n1', 1);
    expect(turns.due(TURN_PROBE_MS + 2)).toMatchObject([{ session: 'n1' }]);
    turns.enqueue(item(), ['n1'], TURN_PROBE_MS + 3);
    expect(turns.due(TURN_PROBE_MS + 4)).toMatchObject([{ session: undefined }]);
  });

  it('a place that was told of opens no window', () => {
    const turns = waiting(50);
    for (let n = 0; n < 10; n++) {
      turns.freed('n1', 1);
      turns.due(n);
    }
    turns.due(TURN_LEASE_MS + 20);
    expect(turns.due(TURN_LEASE_MS + 21)).toEqual([]);
  });

  it('a request that finds no node does not delay requests for other nodes', () => {
    const turns = new TurnScheduler<QueueItem>(10);
    turns.enqueue(item({ scope: 'nobody', project: 'a' }), [], 0);
    turns.enqueue(item({ scope: 'some', project: 'b' }), ['n2'], 0);
    turns.freed('n2', 1);
    expect(turns.due(1).map((turn) => turn.item.scope)).toEqual(['some']);
  });

  it('an end is forgotten if no request waits for it', () => {
    const turns = waiting(1);
    turns.due(TURN_PROBE_MS);
    turns.freed('n1', 1);
    turns.enqueue(item(), ['n1'], TURN_PROBE_MS);
    expect(turns.due(TURN_PROBE_MS + 1)).toEqual([]);
  });

  it.each([1, 3])(
    'a node that speaks of places and has none does not keep anybody from trying the others: %i wait',
    (count) => {
      const turns = waiting(count);
      for (let now = 1; now < TURN_PROBE_MS; now += 10) {
        turns.freed('n1', 1_000_000);
        for (const { item, session } of turns.due(now)) {
          expect(session).toBe('n1');
          turns.requeue(item, ['n1'], now + 1);
        }
      }
      expect(turns.due(TURN_PROBE_MS)).toMatchObject([{ session: undefined }]);
      expect(turns.size).toBe(count - 1);
    },
  );

  it('a request that names ever other nodes gets no more tries', () => {
    const turns = new TurnScheduler<QueueItem>(1_000);
    for (let n = 0; n < 500; n++) turns.enqueue(item({ scope: `s${n}` }), [], 0);
    const tries = turns.due(TURN_PROBE_MS);
    expect(tries.length).toBeLessThanOrEqual(17);
    for (const { item } of tries) turns.requeue(item, [], TURN_PROBE_MS + 1);
    expect(turns.due(TURN_PROBE_MS + 2)).toEqual([]);
    expect(turns.size).toBe(500);
  });

  it('no state remains of requests that left', () => {
    const turns = waiting(1);
    const one = item({ scope: 'other' });
    turns.enqueue(one, ['n9'], 0);
    expect(turns.hasWaiterFor('n9')).toBe(true);
    expect(turns.remove(one.name)).toBe(true);
    expect(turns.remove(one.name)).toBe(false);
    expect(turns.hasWaiterFor('n9')).toBe(false);
    turns.due(TURN_PROBE_MS);
    turns.due(TURN_PROBE_MS + TURN_LEASE_MS);
    expect(turns.idle).toBe(true);
    expect(turns.wakeAt).toBeUndefined();
  });
});
