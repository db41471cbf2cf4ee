import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { LIFECYCLE } from '../../shared/lattice/node.ts';
import type { Book } from '../../shared/metrics/book.ts';
import type { RegistryCounters } from '../registry/object.ts';
import {
  CERTIFICATE_END,
  DELEGATES,
  FROZEN,
  MODEL_NODES,
  NODES,
  REGISTRY_EVENTS,
  SUSPECTED,
  TUNNELS,
} from './families.ts';

/** Models told one by one; a registry of more tells of the first so many. */
const MODELS_MAX = 500;

type Standing = 'ready' | 'suspected' | 'loading';

/** The registry in numbers, at one moment. */
export interface Census {
  states: Record<string, number>;
  suspected: number;
  tunnels: number;
  models: ({ model: string } & Record<Standing, number>)[];
  counters: RegistryCounters;
}

export function takeCensus(entries: Iterable<RegistryEntry>): Omit<Census, 'counters'> {
  const states: Record<string, number> = Object.fromEntries(LIFECYCLE.map((state) => [state, 0]));
  const models = new Map<string, Record<Standing, number>>();
  let suspected = 0;
  let tunnels = 0;
  for (const entry of entries) {
    states[entry.state] = (states[entry.state] ?? 0) + 1;
    if (entry.state === 'LEFT') continue;
    if (entry.suspected) suspected++;
    if (entry.connected) tunnels++;
    for (const { id, state } of entry.models) {
      let known = models.get(id);
      if (known === undefined && models.size >= MODELS_MAX) continue;
      if (known === undefined) {
        known = { ready: 0, suspected: 0, loading: 0 };
        models.set(id, known);
      }
      known[standing(entry, state)]++;
    }
  }
  return { states, suspected, tunnels, models: Array.from(models, ([model, standings]) => ({ model, ...standings })) };
}

function standing({ state, suspected, connected }: RegistryEntry, model: string): Standing {
  if (state !== 'SERVING' || model !== 'ready') return 'loading';
  return suspected || !connected ? 'suspected' : 'ready';
}

export function addCensus(book: Book, { states, suspected, tunnels, models, counters }: Census): void {
  for (const [state, n] of Object.entries(states)) book.set(NODES, [state], n);
  book.set(SUSPECTED, [], suspected);
  book.set(TUNNELS, [], tunnels);
  for (const { model, ...standings } of models)
    for (const [state, n] of Object.entries(standings)) book.set(MODEL_NODES, [model, state], n);
  book.set(DELEGATES, [], counters.delegates);
  book.set(FROZEN, [], counters.frozen.length);
  book.set(CERTIFICATE_END, [], counters.certificateEnds);
  for (const kind of ['snapshots', 'words', 'messages', 'alarms', 'probes'] as const)
    book.set(REGISTRY_EVENTS, [kind], counters[kind]);
}
