import { type RegistryEntry, SESSION_STATES } from '../../../shared/lattice/node-record.ts';
import { isVersion } from '../../../shared/release/release-manifest.ts';
import { breakerAt, LOAD_KNOWN_MS } from '../../../shared/routing/node-load.ts';
import { precisionName } from '../../../shared/routing/requirement-facts.ts';
import type { RegistryCounters } from '../registry-counters.ts';
import type { SessionTable } from '../session-table.ts';

/** Maximum models that are counted separately. In a larger registry only the first ones are. */
const MODELS_MAX = 500;
/**
 * Maximum agent versions that are counted separately. Usually there are one or two versions; further versions and
 * malformed ones count as `other`.
 */
const VERSIONS_MAX = 20;

/** Maximum number of different values of one model's fact that are counted. */
const VALUES_MAX = 32;

type NodeState = 'ready' | 'suspected' | 'loading';

/** Numbers of sessions and models in the registry at one moment. */
export interface NodeCensus {
  states: Record<string, number>;
  suspected: number;
  tunnels: number;
  breakers: Record<'closed' | 'open' | 'half-open', number>;
  /** Sums over engines that reported within seconds. `open`: requests of this gateway on those nodes. */
  load: { running: number; waiting: number; open: number };
  models: ({ model: string } & Record<NodeState, number>)[];
  /** Models with ready sessions that publish different precisions or contexts, and the number of different values. */
  differing: { model: string; precision: number; context: number }[];
  /** Number of sessions that are not LEFT, by their agent's version. */
  versions: Record<string, number>;
  /** When models are retired according to the catalog, in seconds since 1970. */
  sunsets: Record<string, number>;
  /** Models that the catalog marks as always on. */
  alwaysOn: string[];
  counters: RegistryCounters;
}

export function takeCensus(
  sessions: Pick<SessionTable, 'entries' | 'store'>,
  now: number,
): Omit<NodeCensus, 'counters' | 'sunsets' | 'alwaysOn'> {
  const states: Record<string, number> = Object.fromEntries(SESSION_STATES.map((state) => [state, 0]));
  const models = new Map<string, Record<NodeState, number>>();
  const values = new Map<string, { precision: Set<string>; context: Set<number> }>();
  const versions = new Map<string, number>();
  const breakers = { closed: 0, open: 0, 'half-open': 0 };
  const load = { running: 0, waiting: 0, open: 0 };
  let suspected = 0;
  let tunnels = 0;
  for (const entry of sessions.entries()) {
    states[entry.state] = (states[entry.state] ?? 0) + 1;
    if (entry.state === 'LEFT') continue;
    const version = versionLabel(entry.agent_version, versions);
    versions.set(version, (versions.get(version) ?? 0) + 1);
    if (entry.suspected) suspected++;
    if (entry.connected) tunnels++;
    const live = sessions.store.liveOf(entry.session);
    breakers[breakerAt(live.breaker, now)]++;
    if (live.load !== undefined && now - live.load.at <= LOAD_KNOWN_MS) {
      load.running += live.load.running;
      load.waiting += live.load.waiting;
      load.open += live.load.open ?? 0;
    }
    for (const { id, state, quantization, context_length: context } of entry.models) {
      const use = stateOf(entry, state);
      if (use === undefined) continue;
      let known = models.get(id);
      if (known === undefined && models.size >= MODELS_MAX) continue;
      if (known === undefined) {
        known = { ready: 0, suspected: 0, loading: 0 };
        models.set(id, known);
      }
      known[use]++;
      if (use !== 'ready') continue;
      const told = values.get(id) ?? { precision: new Set(), context: new Set() };
      values.set(id, told);
      if (quantization !== undefined && told.precision.size < VALUES_MAX)
        told.precision.add(precisionName(quantization));
      if (context !== undefined && told.context.size < VALUES_MAX) told.context.add(context);
    }
  }
  return {
    states,
    suspected,
    tunnels,
    breakers,
    load,
    models: Array.from(models, ([model, standings]) => ({ model, ...standings })),
    differing: [...values]
      .map(([model, { precision, context }]) => ({ model, precision: precision.size, context: context.size }))
      .filter(({ precision, context }) => precision > 1 || context > 1),
    versions: Object.fromEntries(versions),
  };
}

/** Returns the label of a version. Agents report their version themselves, so only a valid one becomes a label. */
function versionLabel(version: string, known: ReadonlyMap<string, number>): string {
  if (known.has(version)) return version;
  return isVersion(version) && known.size < VERSIONS_MAX ? version : 'other';
}

/** Returns the model's state at a node. Undefined: the node neither serves the model nor loads it. */
function stateOf(
  { state, suspected, connected }: RegistryEntry,
  model: RegistryEntry['models'][number]['state'],
): NodeState | undefined {
  if (state === 'DOWN' || state === 'LEFT' || model === 'on-disk' || model === 'asleep') return undefined;
  if (state === 'JOIN' || model === 'loading') return 'loading';
  return suspected || !connected ? 'suspected' : 'ready';
}
