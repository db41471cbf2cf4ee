import type { GpuGroup, NodePayload } from '../lattice/node-payload.ts';
import type { Gpu, RegistryEntry } from '../lattice/node-record.ts';
import type { Entry } from '../lattice/replica-entry.ts';
import { providerId } from './trusted-providers.ts';

interface EntryReading {
  /** Local name of the entry's issuer. */
  issuer: string;
  /** Local name of our own issuer. Ids of its providers contain no `@`. */
  own: string;
  /** True if this replica can reach the session. */
  connected: boolean;
  suspected: boolean;
  /** When this replica last saw the entry change, in milliseconds since the epoch. */
  updatedAt: number;
  /**
   * What this function returned for the session before. The models of a LEFT session are taken from it, because the
   * session has no payload any more.
   */
  before: RegistryEntry | undefined;
}

const NOTHING: Pick<NodePayload, 'tier' | 'labels' | 'models' | 'hardware' | 'agent_version'> = {
  tier: 'volatile',
  labels: {},
  models: [],
  hardware: { gpus: [], cpus: 0, memory_mib: 0 },
  agent_version: '',
};

/**
 * Converts a replica's entry to the form that routing and the registry's views read. Undefined if the session is alive
 * and this version cannot decode its payload.
 */
export function registryEntry(entry: Entry, reading: EntryReading): RegistryEntry | undefined {
  const { issuer, own, connected, suspected, updatedAt, before } = reading;
  const { ticket, payload, state, version, session } = entry;
  if (payload === undefined && state !== 'LEFT') return undefined;
  const updated_at = timestamp(updatedAt);
  if (payload === undefined && before !== undefined)
    return { ...before, state, version, connected: false, suspected: false, updated_at };
  const { tier, labels, models, hardware, agent_version } = payload ?? NOTHING;
  return {
    session,
    issuer,
    provider: providerId({ provider: ticket.provider, issuer }, own),
    cluster: ticket.cluster,
    state,
    version,
    connected: connected && state !== 'LEFT',
    suspected,
    tier,
    labels,
    models: eachOnce(models),
    hardware: { ...hardware, gpus: oneByOne(hardware.gpus) },
    agent_version,
    ...(payload?.region === undefined ? {} : { region: payload.region }),
    ...(payload?.job === undefined ? {} : { job: payload.job }),
    ...(payload?.seal === undefined || payload.encryption_key === undefined
      ? {}
      : { seal: { ...payload.seal, key: payload.encryption_key } }),
    ...(payload?.gpu_state === undefined ? {} : { gpu_state: payload.gpu_state }),
    ...(payload?.weights === undefined ? {} : { weights: payload.weights }),
    ...(payload?.leaving === undefined ? {} : { leaving: payload.leaving }),
    joined_at: timestamp(ticket.birth * 1000),
    ...servingSince(state, updated_at, before),
    updated_at,
  };
}

/**
 * When the session began to serve. Undefined if this replica did not see it in the state JOIN before, because it may
 * have begun long before.
 */
function servingSince(
  state: Entry['state'],
  now: string,
  before: RegistryEntry | undefined,
): Pick<RegistryEntry, 'serving_since'> {
  if (before?.serving_since !== undefined) return { serving_since: before.serving_since };
  return state === 'SERVING' && before?.state === 'JOIN' ? { serving_since: now } : {};
}

/** Removes repeated models, because a node that lists a model twice is still one replica of it. */
function eachOnce(models: NodePayload['models']): NodePayload['models'] {
  const names = new Set(models.map(({ id }) => id));
  return names.size === models.length
    ? models
    : [...names].flatMap((name) => models.find(({ id }) => id === name) ?? []);
}

function oneByOne(groups: readonly GpuGroup[]): Gpu[] {
  return groups.flatMap(({ count, ...gpu }) => Array<Gpu>(count).fill(gpu));
}

/** Formats milliseconds since the epoch as RFC 3339 UTC. */
function timestamp(ms: number): string {
  // biome-ignore lint/style/noRestrictedGlobals: writes a time that was handed in, reads no clock
  return new Date(ms).toISOString();
}
