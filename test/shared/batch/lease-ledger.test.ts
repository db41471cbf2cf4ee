import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ChunkRange } from '../../../shared/batch/batch-input-check.ts';
import { ENGINE_FAILURES_MAX, type Grant, LeaseLedger } from '../../../shared/batch/lease-ledger.ts';

const TTL_MS = 60_000;
const any = () => true;

function ranges(sizes: readonly number[], demands = 0): ChunkRange[] {
  let first = 0;
  return sizes.map((lines, i) => {
    const range = { offset: first * 10, bytes: lines * 10, first, lines, prefix: i % 2, demands };
    first += lines;
    return range;
  });
}
const ledgerOf = (...sizes: number[]) => new LeaseLedger(LeaseLedger.chunksOf(ranges(sizes)));
const refOf = ({ chunk, lease }: Grant) => ({ node: lease.node, chunk: chunk.id, epoch: lease.epoch });
function granted(ledger: LeaseLedger, node: string, nowMs = 0, prefix?: number): Grant {
  const grant = ledger.grant(node, nowMs, TTL_MS, any, prefix);
  if (grant === undefined) throw new Error('no chunk was granted');
  return grant;
}

describe('leases', () => {
  it('gives a chunk to one node at a time, in the order of the file', () => {
    const ledger = ledgerOf(3, 2);
    expect(granted(ledger, 'a').chunk.first).toBe(0);
    expect(granted(ledger, 'b').chunk.first).toBe(3);
    expect(ledger.grant('c', 0, TTL_MS, any)).toBeUndefined();
  });

  it('prefers the prefix that the node has just worked on', () => {
    expect(granted(ledgerOf(1, 1, 1), 'a', 0, 1).chunk.id).toBe(1);
    expect(granted(ledgerOf(1), 'a', 0, 1).chunk.id).toBe(0);
  });

  it('keeps a chunk with a line that failed at a node from that node for a while, and from no other', () => {
    const ledger = ledgerOf(2);
    const grant = granted(ledger, 'a');
    expect(ledger.engineFailed(refOf(grant), 0)).toBe('again');
    ledger.avoid(refOf(grant), 1_000);
    ledger.release(refOf(grant));
    expect(ledger.grant('a', 10_999, TTL_MS, any)).toBeUndefined();
    expect(granted(ledger, 'b', 1_001).open).toEqual([0, 1]);
    const alone = ledgerOf(1);
    const only = granted(alone, 'a');
    alone.avoid(refOf(only), 0);
    alone.release(refOf(only));
    expect(granted(alone, 'a', 10_000).open).toEqual([0]);
  });

  it('grants no chunk whose demands the node does not meet', () => {
    const ledger = new LeaseLedger(
      LeaseLedger.chunksOf([...ranges([1], 0), ...ranges([1], 1)].map((one, id) => ({ ...one, id }))),
    );
    expect(ledger.grant('a', 0, TTL_MS, (demands) => demands === 1)?.chunk.demands).toBe(1);
    expect(ledger.grant('a', 0, TTL_MS, (demands) => demands === 1)).toBeUndefined();
  });

  it('ends a lease that is renewed for two hours and brings nothing, and keeps one that brings results', () => {
    const ledger = ledgerOf(4, 4);
    const [idle, busy] = [granted(ledger, 'a'), granted(ledger, 'b')];
    const minutes = Array.from({ length: 130 }, (_, minute) => (minute + 1) * 60_000);
    const ended = minutes.find((at) => !ledger.renew(refOf(idle), at, TTL_MS));
    expect(ended).toBe(120 * 60_000);
    for (const [line, at] of [119, 238, 357].entries()) {
      expect(ledger.renew(refOf(busy), at * 60_000, TTL_MS)).toBe(true);
      ledger.commit(refOf(busy), [line], at * 60_000);
    }
    expect(granted(ledger, 'c', 121 * 60_000).chunk.id).toBe(idle.chunk.id);
  });

  it('gives a node that works time to be heard after the gateway stood still, and one that is gone no more than that', () => {
    const ledger = ledgerOf(1, 1);
    const [working, gone] = [granted(ledger, 'a'), granted(ledger, 'b')];
    ledger.expire(5_000);
    ledger.expire(90_000);
    expect(ledger.renew(refOf(working), 91_000, TTL_MS)).toBe(true);
    expect(ledger.renew(refOf(gone), 91_000, TTL_MS)).toBe(true);
    for (let at = 95_000; at <= 140_000; at += 5_000) {
      ledger.expire(at);
      expect(ledger.renew(refOf(working), at, TTL_MS)).toBe(true);
    }
    ledger.expire(151_000);
    expect(ledger.leases.map(({ lease }) => lease.node)).toEqual(['a']);
  });

  it('stores a renewal twice a life, so that a lease whose node works outlives a restart', () => {
    const ledger = ledgerOf(2);
    const grant = granted(ledger, 'a');
    ledger.changed.clear();
    const stored: number[] = [];
    let rows = structuredClone(ledger.chunks);
    for (let at = 10_000; at <= 180_000; at += 10_000) {
      ledger.renew(refOf(grant), at, TTL_MS);
      if (ledger.changed.size === 0) continue;
      stored.push(at);
      rows = structuredClone(ledger.chunks);
      ledger.changed.clear();
    }
    expect(stored).toEqual([30_000, 60_000, 90_000, 120_000, 150_000, 180_000]);
    const restarted = new LeaseLedger(rows);
    restarted.expire(200_000);
    expect(restarted.renew(refOf(grant), 200_000, TTL_MS)).toBe(true);
  });

  it('puts the open lines of a lease that has ended back, and only those', () => {
    const ledger = ledgerOf(4);
    const first = granted(ledger, 'a');
    expect(ledger.commit(refOf(first), [0, 2], 1)).toEqual([0, 2]);
    expect(ledger.expire(TTL_MS - 1)).toBe(TTL_MS);
    expect(ledger.expire(TTL_MS)).toBeUndefined();
    expect(ledger.requeued).toBe(2);
    expect(granted(ledger, 'b', TTL_MS).open).toEqual([1, 3]);
  });

  it('keeps a lease that is renewed, and tells a node whose lease has ended', () => {
    const ledger = ledgerOf(1);
    const grant = granted(ledger, 'a');
    expect(ledger.renew(refOf(grant), 50_000, TTL_MS)).toBe(true);
    expect(ledger.expire(TTL_MS)).toBe(110_000);
    ledger.releaseNode('a');
    expect(ledger.renew(refOf(grant), 60_000, TTL_MS)).toBe(false);
  });

  it('leases a late chunk a second time, to another node, and never a third time', () => {
    const ledger = ledgerOf(1, 1, 1, 1, 1, 1);
    for (let i = 0; i < 5; i++) {
      const grant = granted(ledger, 'fast', i * 10);
      ledger.commit(refOf(grant), [0], i * 10 + 10);
    }
    const slow = granted(ledger, 'slow', 100);
    expect(ledger.grant('fast', 110, TTL_MS, any)).toBeUndefined();
    expect(ledger.grant('slow', 200, TTL_MS, any)).toBeUndefined();
    const second = granted(ledger, 'fast', 121);
    expect(second).toMatchObject({ chunk: { id: slow.chunk.id } });
    expect(ledger.grant('third', 999, TTL_MS, any)).toBeUndefined();
    expect(ledger.commit(refOf(second), [0], 130)).toEqual([0]);
    expect(ledger.commit(refOf(slow), [0], 140)).toEqual([]);
  });
});

describe('leases of unequal length', () => {
  /** A ledger with a last chunk, and with finished leases of these numbers of lines. Each line took a second. */
  const finished = (sizes: readonly number[], last: number) => {
    const ledger = ledgerOf(...sizes, last);
    for (const lines of sizes) {
      const grant = granted(ledger, 'fast');
      ledger.commit(refOf(grant), grant.open, lines * 1_000);
    }
    return ledger;
  };
  /** The second from which another node may run the last chunk, too. */
  const lateAt = (ledger: LeaseLedger) => {
    granted(ledger, 'slow');
    return Array.from({ length: 300 }, (_, second) => second).find((second) => ledger.isLate(second * 1_000));
  };

  it('compares the time of a line, if the finished leases were shorter or longer than this one', () => {
    expect(lateAt(finished([1, 1, 1, 50, 50], 50))).toBe(100);
    expect(lateAt(finished([50, 50, 50, 1, 1], 1))).toBe(2);
  });

  it('expects no lease to be shorter than most finished ones: engines run lines at the same time', () => {
    expect(lateAt(finished([50, 50, 50, 50, 50], 1))).toBe(100);
  });

  it('counts no line that the node returned', () => {
    const ledger = finished([1, 1, 1, 1, 1], 50);
    const grant = granted(ledger, 'slow');
    ledger.giveBack(refOf(grant), grant.open.slice(10));
    const rest = granted(ledger, 'other');
    ledger.commit(refOf(rest), rest.open, 40_000);
    expect([ledger.isLate(19_999), ledger.isLate(20_000)]).toEqual([false, true]);
  });
});

describe('parts of chunks', () => {
  const openOf = (grant: Grant | undefined) => grant?.open;

  it('grants the lines that a node returned to the next nodes, and no line twice', () => {
    const ledger = ledgerOf(6);
    const first = granted(ledger, 'a');
    expect(ledger.commit(refOf(first), [0], 1)).toEqual([0]);
    expect(ledger.giveBack(refOf(first), [3, 4, 5])).toBe(3);
    expect([ledger.waiting, ledger.requeued]).toEqual([3, 0]);
    const second = ledger.grant('b', 2, TTL_MS, any, undefined, 2);
    const third = ledger.grant('c', 2, TTL_MS, any);
    expect([openOf(second), openOf(third)]).toEqual([[3, 4], [5]]);
    expect(ledger.grant('d', 2, TTL_MS, any)).toBeUndefined();
    if (second === undefined || third === undefined) throw new Error('nothing was granted');
    // A lease ends with its own lines.
    ledger.commit(refOf(third), [5], 3);
    expect(ledger.leases.map(({ lease }) => lease.node)).toEqual(['a', 'b']);
    ledger.release(refOf(second));
    expect([ledger.waiting, ledger.requeued]).toEqual([2, 2]);
    expect(openOf(ledger.grant('d', 4, TTL_MS, any))).toEqual([3, 4]);
  });

  it('ends a lease whose lines are all returned, and returns nothing for one that has ended', () => {
    const ledger = ledgerOf(2);
    const grant = granted(ledger, 'a');
    expect(ledger.giveBack({ ...refOf(grant), node: 'b' }, [0])).toBe(0);
    expect(ledger.giveBack(refOf(grant), [-1, 0.5, 7])).toBe(0);
    expect(ledger.giveBack(refOf(grant), [0, 1])).toBe(2);
    expect(ledger.renew(refOf(grant), 1, TTL_MS)).toBe(false);
    expect(ledger.giveBack(refOf(grant), [0, 1])).toBe(0);
    expect(granted(ledger, 'b').open).toEqual([0, 1]);
  });

  it('grants a bounded part of a chunk, and the rest to others', () => {
    const ledger = ledgerOf(5);
    expect(openOf(ledger.grant('a', 0, TTL_MS, any, undefined, 2))).toEqual([0, 1]);
    expect(openOf(ledger.grant('b', 0, TTL_MS, any, undefined, 2))).toEqual([2, 3]);
    expect(ledger.waiting).toBe(1);
    expect(openOf(ledger.grant('c', 0, TTL_MS, any))).toEqual([4]);
  });

  it('takes results of each lease of a chunk that has more leases than it remembers of ended ones', () => {
    const ledger = ledgerOf(20);
    const grants = Array.from({ length: 20 }, (_, i) => ledger.grant(`node-${i}`, 0, TTL_MS, any, undefined, 1));
    for (const [line, grant] of grants.entries())
      expect(grant && ledger.commit(refOf(grant), [line], 1)).toEqual([line]);
    expect(ledger.open).toBe(0);
  });
});

describe('results', () => {
  it('takes results of each node among which a chunk was divided, after all of them were lost', () => {
    const ledger = ledgerOf(100);
    const part = (node: string) => ledger.grant(node, 0, TTL_MS, any, undefined, 1);
    const first = Array.from({ length: 100 }, (_, i) => part(`first-${i}`));
    ledger.expire(TTL_MS);
    for (let i = 0; i < 100; i++) part(`second-${i}`);
    for (const [line, grant] of first.entries())
      expect(grant && ledger.commit(refOf(grant), [line], 1)).toEqual([line]);
    expect(ledger.open).toBe(0);
  });

  it('remembers ended leases only while their lines are open', () => {
    const ledger = ledgerOf(100);
    for (let line = 0; line < 99; line++) {
      const grant = ledger.grant('a', 0, TTL_MS, any, undefined, 1);
      if (grant !== undefined) ledger.commit(refOf(grant), grant.open, 1);
    }
    expect(ledger.chunks[0]?.holders).toEqual([]);
    for (let i = 0; i < 150; i++) ledger.release(refOf(granted(ledger, `evicted-${i}`)));
    expect(ledger.chunks[0]?.holders).toHaveLength(101);
  });

  it('takes the first result of a line, also of a lease that has ended', () => {
    const ledger = ledgerOf(2);
    const old = granted(ledger, 'a');
    ledger.expire(TTL_MS);
    const second = granted(ledger, 'b', TTL_MS);
    expect(ledger.commit(refOf(old), [0], TTL_MS + 1)).toEqual([0]);
    expect(ledger.commit(refOf(second), [0, 1], TTL_MS + 2)).toEqual([1]);
    expect(ledger.open).toBe(0);
  });

  it('takes nothing of a node that never held the lease, nor lines outside of the chunk', () => {
    const ledger = ledgerOf(2, 2);
    const grant = granted(ledger, 'a');
    expect(ledger.commit({ ...refOf(grant), node: 'b' }, [0], 1)).toEqual([]);
    expect(ledger.commit({ ...refOf(grant), chunk: 1 }, [0], 1)).toEqual([]);
    expect(ledger.commit({ ...refOf(grant), epoch: 7 }, [0], 1)).toEqual([]);
    expect(ledger.commit({ ...refOf(grant), chunk: 99 }, [0], 1)).toEqual([]);
    expect(ledger.commit(refOf(grant), [-1, 0.5, 2, 100], 1)).toEqual([]);
    expect(ledger.open).toBe(4);
  });

  it('counts failures of the engine alone, and only of a lease that stands', () => {
    const ledger = ledgerOf(1);
    for (let i = 1; i < ENGINE_FAILURES_MAX; i++) {
      const grant = granted(ledger, 'a');
      expect(ledger.engineFailed(refOf(grant), 0)).toBe('again');
      ledger.release(refOf(grant));
      expect(ledger.engineFailed(refOf(grant), 0)).toBe('known');
    }
    for (let i = 0; i < 20; i++) ledger.release(refOf(granted(ledger, 'evicted')));
    expect(ledger.engineFailed(refOf(granted(ledger, 'a')), 0)).toBe('exhausted');
  });

  it('gives the lines of a chunk one at a time to a node after two engines ended with it', () => {
    const ledger = ledgerOf(3, 2);
    const crash = (node: string) => {
      expect(ledger.suspectLines(node)).toEqual([]);
      ledger.releaseNode(node, true);
    };
    expect(granted(ledger, 'a').open).toEqual([0, 1, 2]);
    crash('a');
    for (let i = 0; i < 20; i++) {
      granted(ledger, 'evicted');
      ledger.releaseNode('evicted');
    }
    expect(granted(ledger, 'b').open).toEqual([0, 1, 2]);
    crash('b');

    const first = granted(ledger, 'c');
    const [other, next] = [granted(ledger, 'd'), granted(ledger, 'c')];
    expect([first, other, next].map(({ chunk, open }) => [chunk.id, open])).toEqual([
      [0, [0]],
      [0, [1]],
      [1, [0, 1]],
    ]);
    expect(ledger.grant('c', 0, TTL_MS, any)).toBeUndefined();
    expect(ledger.suspectLines('c')).toEqual([{ ref: refOf(first), line: 0 }]);
    ledger.commit(refOf(first), [0], 1);
    expect(ledger.suspectLines('c')).toEqual([]);
    expect(granted(ledger, 'c').open).toEqual([2]);
  });

  it('runs no late line of a chunk that ended engines at a second node', () => {
    const ledger = ledgerOf(1, 1, 1, 1, 1, 1);
    for (const node of ['a', 'b']) {
      granted(ledger, node);
      ledger.releaseNode(node, true);
    }
    granted(ledger, 'slow');
    for (let i = 0; i < 5; i++) ledger.commit(refOf(granted(ledger, 'fast', i * 10)), [0], i * 10 + 10);
    expect(ledger.open).toBe(1);
    expect(ledger.grant('fast', 10_000, TTL_MS, any)).toBeUndefined();
  });

  it('names each changed chunk once until it is stored', () => {
    const ledger = ledgerOf(2, 2);
    const grant = granted(ledger, 'a');
    ledger.commit(refOf(grant), [0], 1);
    expect([...ledger.changed].map(({ id }) => id)).toEqual([0]);
  });

  it('gives every line one result, for any nodes, evictions and restarts', () => {
    const step = fc.record({
      node: fc.constantFrom('a', 'b', 'c'),
      what: fc.constantFrom('grant', 'commit', 'release', 'expire', 'fail', 'restart', 'dropNode', 'giveBack'),
      lines: fc.array(fc.nat(12), { maxLength: 6 }),
      at: fc.nat(9),
    });
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 10 }), { minLength: 1, maxLength: 6 }),
        fc.array(step, { maxLength: 120 }),
        (sizes, steps) => {
          let ledger = ledgerOf(...sizes);
          const grants: Grant[] = [];
          const results = new Map<string, number>();
          let nowMs = 0;
          const note = (chunk: number, lines: readonly number[]) => {
            for (const line of lines) results.set(`${chunk}/${line}`, (results.get(`${chunk}/${line}`) ?? 0) + 1);
          };
          for (const { node, what, lines, at } of steps) {
            nowMs += 7_000;
            const grant = grants[at % Math.max(1, grants.length)];
            if (what === 'grant') {
              const found = ledger.grant(node, nowMs, TTL_MS, any, undefined, at + 1);
              if (found !== undefined) grants.push(found);
            } else if (what === 'expire') ledger.expire(nowMs);
            else if (what === 'dropNode') ledger.releaseNode(node, at > 6);
            else if (what === 'restart') {
              const stored = ledger.chunks.map(({ done, ...row }) => ({ ...JSON.parse(JSON.stringify(row)), done }));
              ledger = new LeaseLedger(stored);
            } else if (grant !== undefined) {
              if (what === 'commit') note(grant.chunk.id, ledger.commit(refOf(grant), lines, nowMs));
              else if (what === 'release') ledger.release(refOf(grant));
              else if (what === 'giveBack') ledger.giveBack(refOf(grant), lines);
              else
                for (const line of lines)
                  if (ledger.engineFailed(refOf(grant), line) === 'exhausted')
                    note(grant.chunk.id, ledger.commit(refOf(grant), [line], nowMs));
            }
          }
          // One patient node finishes it.
          for (let at = nowMs; at < nowMs + TTL_MS * 3; at += 5_000) ledger.expire(at);
          for (nowMs += TTL_MS * 3; ledger.open > 0; nowMs += 1) {
            ledger.expire(nowMs);
            const grant = granted(ledger, 'last', nowMs);
            note(grant.chunk.id, ledger.commit(refOf(grant), grant.open, nowMs));
          }
          expect(results.size).toBe(sizes.reduce((sum, lines) => sum + lines, 0));
          expect([...results.values()].every((count) => count === 1)).toBe(true);
        },
      ),
      { numRuns: 300 },
    );
  });
});
