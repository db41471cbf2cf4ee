import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ActionBatch } from '../../../shared/gossip/action-batch.ts';
import { ClusterRing } from '../../../shared/gossip/cluster-ring.ts';
import { GOSSIP_MESSAGE_MAX_BYTES } from '../../../shared/gossip/gossip-messages.ts';
import { TimerQueue } from '../../../shared/gossip/timer-queue.ts';

describe('the timerQueue', () => {
  it('does everything once, in order of time, and a newer task of one name instead of the older', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat({ max: 30 }), fc.nat({ max: 500 }), fc.boolean()), { maxLength: 120 }),
        (tasks) => {
          const timerQueue = new TimerQueue();
          const done: [string, number][] = [];
          const expected = new Map<string, number>();
          for (const [name, at, keep] of tasks) {
            const key = `task-${name}`;
            if (keep) {
              expected.set(key, at);
              timerQueue.set(key, at, () => done.push([key, at]));
            } else {
              expected.delete(key);
              timerQueue.cancel(key);
            }
          }
          expect(timerQueue.next()).toBe(expected.size === 0 ? undefined : Math.min(...expected.values()));
          for (let now = 0; now <= 500; now += 50) timerQueue.run(now);
          expect(new Map(done)).toEqual(expected);
          expect(done).toHaveLength(expected.size);
          const times = done.map(([, at]) => at);
          expect(times).toEqual([...times].sort((a, b) => a - b));
          expect(timerQueue.next()).toBeUndefined();
        },
      ),
    );
  });

  it('tells a task by how much it is late', () => {
    const timerQueue = new TimerQueue();
    let late = -1;
    timerQueue.set('x', 100, (ms) => {
      late = ms;
    });
    timerQueue.run(350);
    expect(late).toBe(250);
  });
});

describe('the ring', () => {
  it('is the same for all, and neighbourhood on it is mutual', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.stringMatching(/^[a-z]{4}$/), { minLength: 2, maxLength: 40 }), (ids) => {
        const ring = new ClusterRing();
        for (const id of ids) expect(ring.add(id)).toBe(true);
        for (const id of ids) expect(ring.add(id)).toBe(false);
        for (const id of ids) {
          const [next] = ring.from(id, 1);
          const [back] = ring.from(next ?? '', -1);
          expect(back).toBe(id);
          expect([...ring.from(id, 1)]).toHaveLength(ids.length - 1);
          expect([...ring.from(id, -1)].reverse()).toEqual([...ring.from(id, 1)]);
        }
      }),
    );
  });

  it('shows a node that is not a member the place it would have', () => {
    const ring = new ClusterRing();
    for (const id of ['b', 'd', 'f']) ring.add(id);
    expect([...ring.from('c', 1)]).toEqual(['d', 'f', 'b']);
    expect([...ring.from('c', -1)]).toEqual(['b', 'f', 'd']);
  });
});

describe('what is sent', () => {
  it('travels in one message per peer, and in more where one would be too large', () => {
    const out = new ActionBatch();
    for (let i = 0; i < 5; i++) out.send('a', { type: 'done', more: false });
    for (let i = 0; i < 5; i++) out.send('b', new Uint8Array(20_000));
    const sends = out.take().flatMap((action) => (action.type === 'send' ? [action] : []));
    expect(sends.filter(({ peer }) => peer === 'a').map(({ bytes }) => bytes.length)).toEqual([10]);
    expect(sends.filter(({ peer }) => peer === 'b').map(({ bytes }) => bytes.length)).toEqual([60_000, 40_000]);
    expect(Math.max(...sends.map(({ bytes }) => bytes.length))).toBeLessThanOrEqual(GOSSIP_MESSAGE_MAX_BYTES);
    expect(out.take()).toEqual([]);
  });
});
