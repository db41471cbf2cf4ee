import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import type { LiveState } from '../../../shared/routing/node-load.ts';
import type { SessionTable } from '../session-table.ts';

/** A filter for sessions. Undefined members are not checked. */
export interface SessionFilter {
  session?: string | undefined;
  provider?: string | undefined;
  state?: string | undefined;
  /** A model that the session serves or is loading. */
  model?: string | undefined;
  /** Only sessions whose id is after this one. */
  after?: string | undefined;
  limit: number;
}

export interface SessionPage {
  nodes: { entry: RegistryEntry; live: LiveState }[];
  more: boolean;
}

/** Returns a page of sessions, ordered by id. */
export function findSessions(
  sessions: Pick<SessionTable, 'entries' | 'get' | 'store'>,
  wanted: SessionFilter,
): SessionPage {
  const one = wanted.session === undefined ? undefined : sessions.get(wanted.session);
  const all = wanted.session === undefined ? [...sessions.entries()] : one === undefined ? [] : [one];
  const found = all.filter((entry) => matches(entry, wanted)).sort((a, b) => (a.session < b.session ? -1 : 1));
  const nodes = found.slice(0, wanted.limit).map((entry) => ({ entry, live: sessions.store.liveOf(entry.session) }));
  return { nodes, more: found.length > wanted.limit };
}

function matches(entry: RegistryEntry, { provider, state, model, after }: SessionFilter): boolean {
  if (provider !== undefined && entry.provider !== provider) return false;
  if (state !== undefined && entry.state !== state) return false;
  if (after !== undefined && entry.session <= after) return false;
  return model === undefined || entry.models.some(({ id }) => id === model);
}
