/**
 * Reads what nodes that serve the same models observe of their engines. This is only needed to decide about a node
 * whose engine answers no request.
 */
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { PeerEvidence } from '../../shared/routing/hang/hang-detector.ts';
import type { Env } from '../env.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';

/** Maximum nodes that are asked. A few answers are enough, and a model may have a thousand nodes. */
const PEERS_MAX = 8;
/** Maximum nodes of a model among which peers are chosen. */
const LISTED_MAX = 100;
/** Maximum models of the node for which peers are chosen. */
const MODELS_MAX = 4;

/**
 * Asks nodes that serve the same models. Nodes that do not answer are omitted, because a missing answer says nothing
 * about the engine.
 */
export async function readReplicaEvidence(
  env: Pick<Env, 'REGISTRY' | 'TUNNEL'>,
  session: string,
): Promise<PeerEvidence[]> {
  const sessions = await replicasOf(env, session);
  const seen = await Promise.all(
    sessions.map((peer) =>
      env.TUNNEL.getByName(peer)
        .firstBytes()
        .catch(() => undefined),
    ),
  );
  return seen.filter((evidence) => evidence !== undefined);
}

/** Returns other sessions that serve one of the node's models and have a tunnel to this gateway. */
async function replicasOf({ REGISTRY }: Pick<Env, 'REGISTRY'>, session: string): Promise<string[]> {
  const registry = REGISTRY.getByName(REGISTRY_OBJECT_NAME);
  const { nodes: own } = await registry.look({ session, limit: 1 });
  const models = own.flatMap(({ entry }) => readyModels(entry)).slice(0, MODELS_MAX);
  const found = new Set<string>();
  for (const model of models) {
    const { nodes } = await registry.look({ model, state: 'SERVING', limit: LISTED_MAX });
    for (const { entry } of nodes) {
      const serves = entry.connected && !entry.suspected && readyModels(entry).includes(model);
      if (serves && entry.session !== session && found.size < PEERS_MAX) found.add(entry.session);
    }
  }
  return [...found];
}

function readyModels({ models }: Pick<RegistryEntry, 'models'>): string[] {
  return models.filter(({ state }) => state === 'ready').map(({ id }) => id);
}
