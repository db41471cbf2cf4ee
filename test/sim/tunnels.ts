/**
 * The tunnel of each agent to each gateway, as far as gossip sees it: records, probes of the relay, and whether it is
 * open.
 */
import type { PathVerdict, PeerId } from '../../shared/gossip/index.ts';
import { encodeUpdate, type Update } from '../../shared/lattice/registry-update.ts';
import { type Agent, type Gateway, type Place, type Places, peerId } from './places.ts';

/** How long a relay waits for an agent until it answers `silent`. */
const RELAY_MS = 350;

export class Tunnels {
  readonly #places: Places;
  /** Sessions with a tunnel end that reached a gateway. */
  readonly #ended = new Set<string>();
  /** Arrival of the last record, by agent and gateway. */
  readonly #lastRecord = new Map<string, number>();

  constructor(places: Places) {
    this.#places = places;
  }

  knownClosed(session: string): boolean {
    return this.#ended.has(session);
  }

  open(agent: Agent, id: PeerId): void {
    const gateway = this.#places.byPeer.get(id);
    if (gateway?.node.status !== 'running' || agent.node.status === 'dead' || this.#places.isCut(agent, gateway))
      return;
    agent.tunnels.set(id, true);
    agent.node.take({ type: 'gateways', gateways: this.#places.gateways.map((known) => known.id) });
    this.#places.later(agent, gateway, () =>
      gateway.node.take({ type: 'tunnel', session: agent.membership.session, open: true }),
    );
  }

  close(agent: Agent, id: PeerId): void {
    if (agent.tunnels.get(id) !== true) return;
    agent.tunnels.set(id, false);
    const gateway = this.#places.byPeer.get(id);
    if (gateway === undefined) return;
    const { session } = agent.membership;
    this.#places.clock.after(this.#places.network.delay(this.#places.network.options.gatewayMs), () => {
      this.#ended.add(session);
      gateway.node.take({ type: 'tunnel', session, open: false });
    });
  }

  /** Frame RECORD of the tunnel: reliable while it is open. */
  record(agent: Agent, id: PeerId, updates: Update[]): void {
    const gateway = this.#places.byPeer.get(id);
    if (gateway === undefined || agent.tunnels.get(id) !== true || this.#places.isCut(agent, gateway)) return;
    agent.node.count(updates.reduce((sum, update) => sum + encodeUpdate(update).length, 0));
    // In order, because it is one socket.
    const key = `${peerId(agent)} ${id}`;
    const at = Math.max(
      this.#places.clock.now + this.#places.network.delay(this.#places.network.options.gatewayMs),
      this.#lastRecord.get(key) ?? 0,
    );
    this.#lastRecord.set(key, at);
    this.#places.clock.at(at, () => gateway.node.take({ type: 'local', updates }));
  }

  /** PROBE over the asker's tunnel, to the target's tunnel object, to the target and back. */
  ask(from: Place, target: string): void {
    const answer = (verdict: PathVerdict, ms: number) =>
      this.#places.clock.after(ms, () => from.node.take({ type: 'gatewayAnswered', target, verdict }));
    if (from.kind === 'gateway') return this.#relayAt(from, target, answer);
    from.node.count(40);
    const open = this.#places.gateways.filter(({ id }) => from.tunnels.get(id) === true);
    const gateway = open[0];
    if (gateway === undefined) return answer('unknown', 0.1);
    const there = this.#places.network.travel(from.host, gateway.host, this.#places.network.options.gatewayMs);
    const back = this.#places.network.travel(gateway.host, from.host, this.#places.network.options.gatewayMs);
    if (there === undefined || gateway.node.status !== 'running') return;
    this.#places.clock.after(there, () =>
      this.#relayAt(gateway, target, (verdict, ms) => {
        if (back !== undefined) answer(verdict, ms + back);
      }),
    );
  }

  #relayAt(gateway: Gateway, target: string, answer: (verdict: PathVerdict, ms: number) => void): void {
    const agent = this.#places.byPeer.get(target);
    if (agent?.kind !== 'agent' || agent.tunnels.get(gateway.id) !== true) return answer('unknown', 0.2);
    const there = this.#places.network.travel(gateway.host, agent.host, this.#places.network.options.gatewayMs);
    const back = this.#places.network.travel(agent.host, gateway.host, this.#places.network.options.gatewayMs);
    if (there === undefined || back === undefined) return answer('silent', RELAY_MS);
    this.#places.clock.after(there, () => {
      if (agent.node.status !== 'running') return answer('silent', RELAY_MS - there);
      agent.node.count(20);
      answer('alive', back + 0.5);
    });
  }
}
