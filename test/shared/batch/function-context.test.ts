import { describe, expect, it } from 'vitest';
import { contextMessage, readFunctionName } from '../../../shared/batch/function-context.ts';
import { nextFunctionBatch, type QueuedBatch, STARVED_AFTER_MS } from '../../../shared/batch/next-batch.ts';
import { leaseDelayMs, leaseRank, offerDelayMs } from '../../../shared/batch/node-lease-rank.ts';

describe('the name of a function', () => {
  it('is a file, and where the file has several, one of them', () => {
    expect(readFunctionName('function:file-abc')).toEqual({ file: 'file-abc' });
    expect(readFunctionName('function:file-abc:verify')).toEqual({ file: 'file-abc', name: 'verify' });
  });
  it.each(['llama', 'function:', 'function:abc', 'function:file-a/../b', 'function:file-a:1x', 'function:file-a:b:c'])(
    'is not %s',
    (model) => expect(readFunctionName(model)).toBeUndefined(),
  );
  it('is of one owner: the same file of two projects is two contexts', () => {
    expect(contextMessage('project:a', 'ff', undefined)).not.toBe(contextMessage('project:b', 'ff', undefined));
  });
});

describe('the node that hears of a waiting line first', () => {
  it('is one with the context ready, then one that loads it, then one with its file, then any node', () => {
    const ranks = (['ready', 'loading', 'stored', 'cold'] as const).map((warmth) => leaseRank(warmth, 'volatile'));
    expect(ranks).toEqual([...ranks].sort((a, b) => a - b));
    expect(new Set(ranks).size).toBe(4);
    expect(offerDelayMs(leaseRank('ready', 'volatile'))).toBe(0);
  });
  it('is a volatile node before a stable one of the same warmth, and a stable one that is ready before a volatile one that is not', () => {
    expect(leaseRank('ready', 'volatile')).toBeLessThan(leaseRank('ready', 'stable'));
    expect(leaseRank('ready', 'stable')).toBeLessThan(leaseRank('loading', 'volatile'));
  });
  it('holds a stable node back while a volatile one serves its model, and not where all are stable', () => {
    const stable = { session: 's', tier: 'stable' } as const;
    const volatile = { session: 'v', tier: 'volatile' } as const;
    expect(leaseDelayMs(stable, [stable, volatile])).toBeGreaterThan(0);
    expect(leaseDelayMs(stable, [stable, { session: 't', tier: 'stable' }])).toBe(0);
    expect(leaseDelayMs(volatile, [stable, volatile])).toBe(0);
  });
});

describe('the next batch of a node that runs functions', () => {
  const batch = (id: string, context: string, more: Partial<QueuedBatch> = {}): QueuedBatch => ({
    id,
    project: id,
    expiresMs: 86_400_000,
    waiting: 100,
    leased: 0,
    linesPerS: 0,
    context,
    ...more,
  });
  const held = { ready: ['warm'], loading: ['soon'], stored: ['known'], broken: [] as string[] };
  const all = [batch('d', 'far'), batch('c', 'known'), batch('b', 'soon'), batch('a', 'warm')];
  const next = (batches: QueuedBatch[], served = 0, more = {}) =>
    nextFunctionBatch(batches, { ...held, ...more }, served, () => 0)?.id;

  it('is of the project with the fewest other nodes, however warm the others are; equal projects by warmth', () => {
    const nodes: Record<string, number> = { a: 2, b: 1, c: 1, d: 2 };
    const fair = (batches: QueuedBatch[]) =>
      nextFunctionBatch(
        batches,
        held,
        0,
        () => 0,
        (project) => nodes[project] ?? 0,
      )?.id;
    expect(fair(all)).toBe('b');
    // Without lines that wait, a project has no share.
    expect(fair([batch('a', 'warm'), batch('b', 'soon', { waiting: 0 }), batch('d', 'far')])).toBe('a');
    // What this node cannot run has no share, either.
    expect(
      nextFunctionBatch(
        all,
        { ...held, broken: ['soon', 'known'] },
        0,
        () => 0,
        (project) => nodes[project] ?? 0,
      )?.id,
    ).toBe('a');
  });

  it('is that of the warmest context', () => {
    expect(next(all)).toBe('a');
    expect(next(all.slice(0, 3))).toBe('b');
    expect(next(all.slice(0, 2))).toBe('c');
    expect(next(all.slice(0, 1))).toBe('d');
  });
  it('is never one of a context that has just failed there', () => {
    expect(next([batch('a', 'warm')], 0, { broken: ['warm'] })).toBeUndefined();
  });
  it('is one that no node has served for a minute, even if cold: otherwise a node would never change its function', () => {
    const served = (id: string) => (id === 'd' ? 0 : STARVED_AFTER_MS);
    expect(nextFunctionBatch(all, held, STARVED_AFTER_MS, served)?.id).toBe('d');
    expect(nextFunctionBatch(all, held, STARVED_AFTER_MS - 1, served)?.id).toBe('a');
  });
  it('is one in danger of its deadline, however cold', () => {
    expect(next([...all, batch('e', 'far', { linesPerS: 1, expiresMs: 60_000 })])).toBe('e');
  });
});
