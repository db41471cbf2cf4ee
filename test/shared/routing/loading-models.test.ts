import { describe, expect, it } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { modelStart, remainingMs } from '../../../shared/routing/loading-models.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { decideTrust } from '../../../shared/routing/trusted-providers.ts';
import { entry } from './support.ts';

const trust = decideTrust({ own: 'local', lists: [['lab']], defaults: 'admitted', deleted: new Set(), policies: [] });
const at = (seconds: number) => new Date(Date.parse('2026-01-01T00:00:00Z') + seconds * 1_000).toISOString();
const NOW = Date.parse(at(1_000));

const loading = (session: string, since: number, more: Partial<RegistryEntry> = {}) =>
  entry(session, { state: 'JOIN', models: [{ id: 'm', state: 'loading' }], joined_at: at(since), ...more });
const gone = (session: string, took: number) =>
  entry(session, { state: 'LEFT', connected: false, joined_at: at(0), serving_since: at(took) });

function startWith(...entries: RegistryEntry[]) {
  const index = new NodeIndex();
  for (const one of entries) index.put(one);
  return modelStart(index.model('m'), trust, NOW);
}

describe('a model is being started', () => {
  it('where nodes load it and none serves it, since the first of them began', () => {
    expect(startWith(loading('a', 900), loading('b', 950))).toEqual({
      nodes: 2,
      runningMs: 100_000,
      usualMs: undefined,
    });
  });

  it('and takes as long as the longest known start; a session that follows one of the same agent is not a start', () => {
    const start = startWith(loading('a', 900), gone('x', 240), gone('y', 300), gone('z', 0.3));
    expect(start?.usualMs).toBe(300_000);
    expect(start && remainingMs(start)).toBe(200_000);
  });

  it('and has no estimate once it takes longer than any start before', () => {
    const start = startWith(loading('a', 100), gone('x', 240));
    expect(start && remainingMs(start)).toBeUndefined();
  });
});

describe('a model is not being started', () => {
  it('where a node serves it, or served it and starts its engine again', () => {
    expect(startWith(loading('a', 900), entry('b'))).toBeUndefined();
    expect(startWith(loading('a', 900), entry('b', { models: [{ id: 'm', state: 'loading' }] }))).toBeUndefined();
  });

  it('for callers that may not use the node that loads it', () => {
    expect(startWith(loading('a', 900, { provider: 'other' }))).toBeUndefined();
    expect(startWith(loading('a', 900), entry('b', { provider: 'other' }))).toBeDefined();
  });

  it('if it is unknown', () => expect(startWith()).toBeUndefined());
});
