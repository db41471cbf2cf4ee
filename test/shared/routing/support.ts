import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';

/** A node that serves `m`, changed by `more`. */
export function entry(session: string, more: Partial<RegistryEntry> = {}): RegistryEntry {
  return {
    session,
    issuer: 'local',
    state: 'SERVING',
    version: 1,
    connected: true,
    suspected: false,
    provider: 'lab',
    cluster: 'alps',
    tier: 'volatile',
    labels: {},
    models: [{ id: 'm', state: 'ready' }],
    hardware: { gpus: [], cpus: 1, memory_mib: 1 },
    agent_version: 'test',
    joined_at: '2026-01-01T00:00:00.000Z',
    updated_at: '2026-01-01T00:00:00.000Z',
    ...more,
  };
}
