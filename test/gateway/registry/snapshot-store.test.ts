import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import { type SnapshotDelta, SnapshotStore } from '../../../gateway/registry/snapshot-store.ts';
import { entry } from '../../shared/routing/support.ts';

const CARRIED = { issuers: [], gateway: 'gw:x' };

function holder() {
  const held = new Map<string, unknown>();
  let tag: string | null = null;
  return {
    held,
    ask(store: SnapshotStore): SnapshotDelta | null {
      const delta = store.since(tag);
      if (delta === null) return null;
      if (delta.whole) held.clear();
      for (const one of delta.entries) held.set(one.session, one);
      for (const session of delta.removed) held.delete(session);
      tag = delta.tag;
      return delta;
    },
  };
}

const step = fc.record({
  kind: fc.constantFrom('put' as const, 'delete' as const, 'ask' as const, 'relay' as const),
  session: fc.constantFrom('a', 'b', 'c'),
});

test('a holder that asks now and then, directly or through a relay, has what there is', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const registry = new SnapshotStore('registry');
      const relay = new SnapshotStore('relay');
      let relayTag: string | null = null;
      const [near, far] = [holder(), holder()];
      const refresh = () => {
        const delta = registry.since(relayTag);
        if (delta === null) return;
        relay.apply(delta);
        relayTag = delta.tag;
      };
      steps.forEach(({ kind, session }, version) => {
        if (kind === 'put') registry.put(entry(session, { version }));
        else if (kind === 'delete') registry.delete(session);
        else if (kind === 'relay') refresh();
        else {
          near.ask(registry);
          far.ask(relay);
        }
      });
      refresh();
      near.ask(registry);
      far.ask(relay);
      const truth = new Map([...registry.entries()].map((one) => [one.session, one]));
      expect(near.held).toEqual(truth);
      expect(far.held).toEqual(truth);
      expect(near.ask(registry)).toBeNull();
    }),
  );
});

test('a difference holds what changed and no more', () => {
  const store = new SnapshotStore('e');
  for (let n = 0; n < 1000; n++) store.put(entry(`s${n}`));
  store.set({ ...CARRIED, settings: NO_SETTINGS });
  const tag = store.since(null)?.tag ?? '';
  store.put(entry('s7', { version: 2 }));
  store.put(entry('s7', { version: 3 }));
  store.delete('s8');
  expect(store.since(tag)).toMatchObject({ whole: false, entries: [{ session: 's7', version: 3 }], removed: ['s8'] });
  expect(store.since(tag)).not.toHaveProperty('carried');
  store.set({ ...CARRIED, settings: { ...NO_SETTINGS, changed: { x: 1 } } });
  expect(store.since(tag)?.carried?.settings?.changed).toEqual({ x: 1 });
});

test('a tag of a former instance, an invented tag, or an old tag gets everything', () => {
  const store = new SnapshotStore('e');
  store.put(entry('a'));
  const old = store.since(null)?.tag ?? '';
  for (const tag of ['f:1', 'e:99', 'e:x', 'e:-1', '', 'e']) expect(store.since(tag)?.whole, tag).toBe(true);
  expect(store.since('e:0')?.whole).toBe(false);
  for (let n = 0; n < 50_000; n++) store.put(entry('a', { version: n }));
  expect(store.since(old)?.whole).toBe(true);
});

test('what lasts for seconds travels by itself, once, and goes with its session', () => {
  const [registry, relay] = [new SnapshotStore('registry'), new SnapshotStore('relay')];
  registry.put(entry('a'));
  registry.put(entry('b'));
  const { tag } = registry.since(null) ?? { tag: '' };
  const load = (running: number) => ({ load: { running, waiting: 0, at: running } });
  registry.setLive('a', load(1));
  registry.setLive('stranger', load(9));
  registry.setLive('a', { breaker: { state: 'open', since: 1, until: 2 } });
  const news = registry.since(tag);
  expect(news).toMatchObject({ whole: false, entries: [], removed: [] });
  expect(news?.live).toEqual({ a: { ...load(1), breaker: { state: 'open', since: 1, until: 2 } } });
  expect(registry.since(news?.tag ?? '')).toBeNull();
  const all = registry.since(null);
  if (all !== null) relay.apply(all);
  expect(relay.since(null)?.live).toEqual(news?.live);
  registry.delete('a');
  registry.setLive('b', load(2));
  expect(registry.since(null)?.live).toEqual({ b: load(2) });
});

test('a large difference arrives in parts of at most 128 changes, which together are the whole', () => {
  const store = new SnapshotStore('e');
  for (let n = 0; n < 3_000; n++) store.put(entry(`s${n}`));
  const start = store.since(null)?.tag ?? '';
  for (let n = 0; n < 3_000; n++) {
    store.setLive(`s${n}`, { load: { running: n, waiting: 0, at: n } });
    if (n % 3 === 0) store.put(entry(`s${n}`, { version: 2 }));
    if (n % 100 === 0) store.setLive('s0', { load: { running: -n, waiting: 0, at: n } });
  }
  store.delete('s2999');
  store.set({ ...CARRIED, settings: { ...NO_SETTINGS, changed: { x: 1 } } });
  const [live, entries, removed] = [new Map<string, unknown>(), new Map<string, unknown>(), [] as string[]];
  let [tag, parts, settings]: [string, number, unknown] = [start, 0, undefined];
  for (let more = true; more; parts++) {
    const delta = store.since(tag);
    if (delta === null) throw new Error('no delta');
    expect(delta.whole).toBe(false);
    expect(delta.entries.length).toBeLessThanOrEqual(128);
    expect(Object.keys(delta.live ?? {}).length).toBeLessThanOrEqual(128);
    for (const one of delta.entries) entries.set(one.session, one);
    for (const [session, state] of Object.entries(delta.live ?? {})) live.set(session, state);
    removed.push(...delta.removed);
    settings = delta.carried?.settings?.changed ?? settings;
    tag = delta.tag;
    more = delta.more === true;
  }
  expect(parts).toBeGreaterThan(5);
  expect(store.since(tag)).toBeNull();
  expect(entries.size).toBe(1_000);
  expect(removed).toEqual(['s2999']);
  expect(settings).toEqual({ x: 1 });
  for (let n = 0; n < 2_999; n++) expect(live.get(`s${n}`)).toEqual(store.liveOf(`s${n}`));
});
