import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BATCH_TURN_EVERY, FairQueue, type QueueItem } from '../../../shared/routing/fair-queue.ts';

let made = 0;

function item(more: Partial<QueueItem> = {}): QueueItem {
  return { name: `r${++made}`, project: 'p', key: 'k', scope: 's', priority: 'interactive', weight: 1, ...more };
}

const anybody = () => true;

/** Takes `count` turns; each served entry enters again, so that every owner always has one waiting. */
function shares(queue: FairQueue<QueueItem>, count: number, by: (item: QueueItem) => string): Record<string, number> {
  const served: Record<string, number> = {};
  for (let n = 0; n < count; n++) {
    const next = queue.dequeue(anybody);
    if (next === undefined) throw new Error('nobody waits');
    served[by(next)] = (served[by(next)] ?? 0) + 1;
    queue.enqueue({ ...next, name: `r${++made}` });
  }
  return served;
}

describe('a fair queue', () => {
  it('serves one key in the order of coming', () => {
    const queue = new FairQueue<QueueItem>(10);
    const items = [item(), item(), item()];
    for (const one of items) queue.enqueue(one);
    expect([queue.dequeue(anybody), queue.dequeue(anybody), queue.dequeue(anybody)]).toEqual(items);
    expect(queue.dequeue(anybody)).toBeUndefined();
    expect(queue.size).toBe(0);
  });

  it('tells each of one key how many go before it', () => {
    const queue = new FairQueue<QueueItem>(10);
    const items = [item(), item(), item({ scope: 'other' }), item()];
    for (const one of items) queue.enqueue(one);
    expect(items.map(({ name }) => queue.ahead(name))).toEqual([0, 1, 0, 2]);
    queue.remove(items[0]?.name ?? '');
    expect(items.map(({ name }) => queue.ahead(name))).toEqual([undefined, 0, 0, 1]);
  });

  it('tells newcomers only the turns that others have by their shares, not all waiting requests', () => {
    const queue = new FairQueue<QueueItem>(2_000);
    for (let n = 0; n < 100; n++) queue.enqueue(item({ project: 'flood' }));
    for (let n = 0; n < 100; n++) queue.enqueue(item({ project: 'heavy', weight: 3 }));
    const [mine, later, batch] = [item(), item(), item({ priority: 'batch' })];
    for (const one of [mine, later, batch]) queue.enqueue(one);
    expect(queue.ahead(mine.name)).toBe(1 + 3);
    expect(queue.ahead(later.name)).toBe(1 + 2 + 6);
    expect(queue.ahead(batch.name)).toBe(BATCH_TURN_EVERY - 1);
  });

  it('estimates the order in which a fresh queue serves, with an error of at most the turns of one round', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ project: fc.constantFrom('a', 'b', 'c'), key: fc.constantFrom('k', 'l') }), {
          minLength: 1,
          maxLength: 40,
        }),
        (wanted) => {
          const queue = new FairQueue<QueueItem>(100);
          const items = wanted.map((one) => item(one));
          for (const one of items) queue.enqueue(one);
          const told = new Map(items.map(({ name }) => [name, queue.ahead(name) ?? -1]));
          for (let n = 0; n < items.length; n++) {
            const name = queue.dequeue(anybody)?.name ?? '';
            expect(Math.abs((told.get(name) ?? -1) - n)).toBeLessThanOrEqual(6);
          }
        },
      ),
    );
  });

  it('gives projects turns by their weights, however many requests each has waiting', () => {
    const queue = new FairQueue<QueueItem>(2_000);
    for (let n = 0; n < 1_000; n++) queue.enqueue(item({ project: 'flood' }));
    for (let n = 0; n < 3; n++) queue.enqueue(item({ project: 'small' }));
    for (let n = 0; n < 8; n++) queue.enqueue(item({ project: 'heavy', weight: 3 }));
    expect(shares(queue, 500, ({ project }) => project)).toEqual({ flood: 100, small: 100, heavy: 300 });
  });

  it('gives the keys of one project turns alike', () => {
    const queue = new FairQueue<QueueItem>(2_000);
    for (let n = 0; n < 1_000; n++) queue.enqueue(item({ key: 'flood' }));
    queue.enqueue(item({ key: 'small' }));
    expect(shares(queue, 200, ({ key }) => key)).toEqual({ flood: 100, small: 100 });
  });

  it('a key gains nothing by spreading its requests over scopes', () => {
    const queue = new FairQueue<QueueItem>(2_000);
    for (let n = 0; n < 50; n++) queue.enqueue(item({ key: 'spread', scope: `s${n}` }));
    for (let n = 0; n < 50; n++) queue.enqueue(item({ key: 'plain' }));
    expect(shares(queue, 200, ({ key }) => key)).toEqual({ spread: 100, plain: 100 });
  });

  it('a key that was absent saves no turns', () => {
    const queue = new FairQueue<QueueItem>(100);
    for (let n = 0; n < 5; n++) queue.enqueue(item({ project: 'here' }));
    shares(queue, 300, ({ project }) => project);
    for (let n = 0; n < 5; n++) queue.enqueue(item({ project: 'back' }));
    const served = shares(queue, 100, ({ project }) => project);
    expect(Math.abs((served.here ?? Number.NaN) - (served.back ?? Number.NaN))).toBeLessThanOrEqual(1);
  });

  it('a key that returns immediately with one request each time gets only its share', () => {
    const queue = new FairQueue<QueueItem>(100);
    for (let n = 0; n < 50; n++) queue.enqueue(item({ project: 'backlog' }));
    queue.enqueue(item({ project: 'looping' }));
    const served = shares(queue, 100, ({ project }) => project);
    expect(served).toEqual({ backlog: 50, looping: 50 });
  });

  it('interactive goes first, and batch has its turn among so many', () => {
    const queue = new FairQueue<QueueItem>(1_000);
    for (let n = 0; n < 100; n++) queue.enqueue(item({ priority: 'batch' }));
    for (let n = 0; n < 100; n++) queue.enqueue(item({ priority: 'interactive' }));
    expect(queue.dequeue(anybody)?.priority).toBe('interactive');
    const served = shares(queue, BATCH_TURN_EVERY * 10, ({ priority }) => priority);
    expect(served).toEqual({ interactive: (BATCH_TURN_EVERY - 1) * 10, batch: 10 });
  });

  it('passes over those whose scope is not eligible', () => {
    const queue = new FairQueue<QueueItem>(10);
    queue.enqueue(item({ scope: 'a' }));
    const other = item({ scope: 'b' });
    queue.enqueue(other);
    expect(queue.dequeue((scope) => scope === 'b')).toBe(other);
    expect(queue.dequeue((scope) => scope === 'b')).toBeUndefined();
    expect(queue.size).toBe(1);
  });

  it('a turn that came to nothing costs nothing, and its place is the first again', () => {
    const queue = new FairQueue<QueueItem>(10);
    const first = item({ project: 'a' });
    queue.enqueue(first);
    queue.enqueue(item({ project: 'a' }));
    queue.enqueue(item({ project: 'b' }));
    expect(queue.dequeue(anybody)).toBe(first);
    queue.requeue(first);
    expect(queue.dequeue(anybody)).toBe(first);
  });
});

describe('a full queue', () => {
  const full = (more: Partial<QueueItem>, max = 10) => {
    const queue = new FairQueue<QueueItem>(max);
    for (let n = 0; n < max; n++) queue.enqueue(item(more));
    return queue;
  };

  it('refuses the project that fills it', () => {
    expect(full({}).enqueue(item())).toEqual({ kind: 'full' });
  });

  it('lets another project in, in the place of the newest of the one that fills it', () => {
    const queue = full({ project: 'flood' });
    const newest = [...queue.items()].at(-1);
    expect(queue.enqueue(item({ project: 'small' }))).toEqual({ kind: 'in', evicted: newest });
    expect(queue.size).toBe(10);
    // until both have the same
    for (let n = 0; n < 4; n++) expect(queue.enqueue(item({ project: 'small' })).kind).toBe('in');
    expect(queue.enqueue(item({ project: 'small' }))).toEqual({ kind: 'full' });
  });

  it('lets another key of the same project in likewise', () => {
    const queue = full({ key: 'flood' });
    expect(queue.enqueue(item({ key: 'small' })).kind).toBe('in');
  });

  it('lets interactive in for batch, and not the other way round', () => {
    expect(full({ priority: 'batch' }).enqueue(item()).kind).toBe('in');
    expect(full({}).enqueue(item({ priority: 'batch', project: 'other' }))).toEqual({ kind: 'full' });
  });
});

it('after any events, each request is in the queue once, or was handed out, left, or was pushed out', () => {
  const letter = fc.constantFrom('a', 'b', 'c');
  const step = fc.oneof(
    fc.record({
      what: fc.constant('enter' as const),
      project: letter,
      key: letter,
      scope: letter,
      priority: fc.constantFrom<QueueItem['priority']>('interactive', 'batch'),
      weight: fc.constantFrom(0.5, 1, 4),
    }),
    fc.record({ what: fc.constant('next' as const), scope: letter }),
    fc.record({ what: fc.constant('leave' as const), nth: fc.nat(20) }),
    fc.record({ what: fc.constant('back' as const) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const queue = new FairQueue<QueueItem>(12);
      const inside = new Map<string, QueueItem>();
      let last: QueueItem | undefined;
      for (const one of steps) {
        if (one.what === 'enter') {
          const { what: _, ...rest } = one;
          const given = item(rest);
          const entered = queue.enqueue(given);
          if (entered.kind === 'full') continue;
          inside.set(given.name, given);
          if (entered.evicted !== undefined) expect(inside.delete(entered.evicted.name)).toBe(true);
        } else if (one.what === 'next') {
          const waited = [...inside.values()].some(({ scope }) => scope === one.scope);
          const next = queue.dequeue((scope) => scope === one.scope);
          expect(next !== undefined).toBe(waited);
          if (next !== undefined) expect(inside.delete(next.name)).toBe(true);
          last = next ?? last;
        } else if (one.what === 'leave') {
          const name = [...inside.keys()][one.nth];
          expect(queue.remove(name ?? 'nobody') !== undefined).toBe(name !== undefined);
          if (name !== undefined) inside.delete(name);
        } else if (last !== undefined && !inside.has(last.name)) {
          queue.requeue(last);
          inside.set(last.name, last);
          last = undefined;
        }
        expect(queue.size).toBe(inside.size);
        expect(queue.count('interactive') + queue.count('batch')).toBe(inside.size);
      }
    }),
    { numRuns: 400 },
  );
});
