/** Queries that tests make of a world. */

import type { PeerId } from '../../shared/gossip/gossip-events.ts';
import { type GossipState, livenessOf } from '../../shared/gossip/index.ts';
import type { Agent, Told, World } from './world.ts';

export function session(agent: Agent): string {
  return agent.membership.session;
}

/** Changes of a liveness to `liveness` at any node since `from`. */
export function said(world: World, liveness: string, from = 0): Told[] {
  return world.told.filter(
    ({ at, action }) => at >= from && action.type === 'liveness' && action.liveness === liveness,
  );
}

export function suspectedSessions(world: World, from = 0): Set<string> {
  return new Set(said(world, 'suspected', from).map(({ action }) => ('session' in action ? action.session : '')));
}

export function evicted(world: World): string[] {
  return world.told.flatMap(({ action }) => (action.type === 'evict' ? [action.session] : []));
}

export function notices(world: World): string[] {
  return world.told.flatMap(({ action }) => (action.type === 'notice' ? [action.notice.what] : []));
}

export function stateAt(world: World, agent: Agent): string | undefined {
  return world.gateway.node.replica.get(session(agent))?.state;
}

/** True if every running replica has this state of a session. */
export function everywhere(world: World, agent: Agent, state: string): boolean {
  return world.running().every(({ node }) => node.replica.get(session(agent))?.state === state);
}

/** Running agents that suspect this agent. */
export function believers(world: World, agent: Agent): Agent[] {
  return world.running().filter(({ node }) => livenessOf(node.state, session(agent)) === 'suspected');
}

/** True if no running agent and no gateway suspects a running agent. */
export function atPeace(world: World): boolean {
  const living = world.running();
  const nodes = [...living, ...world.gateways.filter(({ node }) => node.status === 'running')];
  return nodes.every(({ node }) =>
    living.every((agent) => agent.node === node || livenessOf(node.state, session(agent)) !== 'suspected'),
  );
}

/** Peers with an open channel. */
export function peersOf(state: GossipState): PeerId[] {
  return [...state.core.channels.open.keys()];
}
