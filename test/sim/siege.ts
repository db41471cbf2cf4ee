/** A cluster with one hostile member; the test writes its bytes. */
import { concat } from '../../shared/collections/concat.ts';
import { encodeMessagePart, type MessagePart } from '../../shared/gossip/gossip-messages.ts';
import { peersOf, session } from './observe.ts';
import { type Agent, World } from './world.ts';

/** A cluster of honest nodes, and one node for which the test writes the bytes. */
export function siege(nodes = 12, seed = 41) {
  const world = new World({ seed, clusters: [nodes] });
  world.run(12_000);
  const villain = world.agent(0);
  const [peer] = peersOf(villain.node.state);
  const target = world.agents.find((agent) => session(agent) === peer);
  if (target === undefined) throw new Error('the villain has no neighbour');
  const send = (bytes: Uint8Array) => target.node.take({ type: 'message', peer: session(villain), bytes });
  const say = (...parts: MessagePart[]) => send(concat(parts.map(encodeMessagePart)));
  return { world, villain, target, send, say, roots: () => world.fingerprint(target.node.replica) };
}

/** Reasons with which `by` ended its channels to `on`, in order. */
export function hungUp(world: World, by: Agent, on: Agent): string[] {
  return world.told.flatMap(({ node, action }) =>
    node === session(by) && action.type === 'hangUp' && action.peer === session(on) ? [action.reason] : [],
  );
}

/** Flips two bits near its end, inside the signatures. */
export function flip(bytes: Uint8Array | undefined): Uint8Array {
  const copy = (bytes ?? new Uint8Array(1)).slice();
  copy[copy.length - 70] = (copy[copy.length - 70] ?? 0) ^ 1;
  copy[copy.length - 3] = (copy[copy.length - 3] ?? 0) ^ 1;
  return copy;
}
