/** Models that a running node knows and has not loaded. An order to the node loads them, faster than a new job. */
import type { RegistryEntry, ServedModel } from '../lattice/node-record.ts';
import type { ModelNodes } from './node-index.ts';
import { type Requirement, satisfies } from './requirements.ts';
import { isTrusted, type Trust } from './trusted-providers.ts';

export interface DormantModel {
  session: string;
  provider: string;
  /** The version of the node's record. */
  version: number;
  state: Extract<ServedModel['state'], 'asleep' | 'on-disk'>;
  /** For an adapter: the model that it changes. */
  parent: string | undefined;
  /** Milliseconds that loading last took. Undefined: not measured yet. */
  readyInMs: number | undefined;
}

/**
 * The node that loads the model fastest. Only nodes of this institution with a tunnel to this gateway are considered,
 * because only they obey its orders.
 */
export function dormantModel(
  nodes: ModelNodes | undefined,
  trust: Trust,
  require: readonly Requirement[],
  now: number,
): DormantModel | undefined {
  if (nodes === undefined) return undefined;
  let best: DormantModel | undefined;
  for (const entry of nodes.all) {
    const model = entry.models.find(({ id }) => id === nodes.id);
    if (
      model === undefined ||
      !isDormantState(model.state) ||
      !canLoad(entry, trust) ||
      !satisfies(entry, require, nodes.id, now)
    )
      continue;
    const { session, provider, version } = entry;
    const { state, parent, load_ms: readyInMs } = model;
    const found: DormantModel = { session, provider, version, state, parent, readyInMs };
    if (
      best === undefined ||
      (found.readyInMs ?? Number.POSITIVE_INFINITY) < (best.readyInMs ?? Number.POSITIVE_INFINITY)
    )
      best = found;
  }
  return best;
}

/** True if a running engine knows the model and an order loads it. */
function isDormantState(state: ServedModel['state']): state is DormantModel['state'] {
  return state === 'asleep' || state === 'on-disk';
}

function canLoad(entry: RegistryEntry, trust: Trust): boolean {
  const { state, connected, suspected, issuer } = entry;
  return state === 'SERVING' && connected && !suspected && issuer === trust.own && isTrusted(trust, entry);
}
