/** Channels between agents, and from delegates to gateways: dialed, cut, closed, and ended with either process. */
import type { PeerId } from '../../shared/gossip/index.ts';
import { type Place, type Places, peerId } from './places.ts';

/** Round trips before a channel is open: TCP, TLS with tickets. */
const HANDSHAKE_TRIPS = 2.5;

interface Channel {
  a: Place;
  b: Place;
  open: boolean;
  /** True if a cut lost something that was sent on it. */
  broken: boolean;
}

export class Links {
  readonly #places: Places;
  readonly #channels = new Map<string, Channel>();

  constructor(places: Places) {
    this.#places = places;
  }

  #key(a: PeerId, b: PeerId): string {
    return a < b ? `${a} ${b}` : `${b} ${a}`;
  }

  has(a: PeerId, b: PeerId): boolean {
    return this.#channels.has(this.#key(a, b));
  }

  send(from: Place, to: PeerId, bytes: Uint8Array, at: number): void {
    const channel = this.#channels.get(this.#key(peerId(from), to));
    if (channel === undefined) return;
    const target = channel.a === from ? channel.b : channel.a;
    from.node.count(bytes.length);
    const delay = this.#places.network.travel(from.host, target.host, this.#places.distance(from, target));
    if (this.#places.network.cut(from.host, target.host)) channel.broken = true;
    if (delay === undefined) return;
    this.#places.clock.at(at + delay, () => {
      if (!channel.open) return;
      target.node.received.messages++;
      target.node.take({ type: 'message', peer: peerId(from), bytes });
    });
  }

  dial(from: Place, to: PeerId): void {
    const target = this.#places.byPeer.get(to);
    const fail = (ms: number) => this.#places.clock.after(ms, () => from.node.take({ type: 'dialFailed', peer: to }));
    const { dialTimeoutMs } = this.#places.network.options;
    if (target === undefined) return fail(1);
    const trip = 2 * this.#places.distance(from, target);
    if (this.#places.isCut(from, target) || target.hidden) return fail(dialTimeoutMs);
    if (target.node.status === 'dead') return fail(this.#places.network.delay(trip));
    if (target.node.status === 'hung') return fail(dialTimeoutMs);
    this.#places.clock.after(this.#places.network.delay(trip * HANDSHAKE_TRIPS), () => {
      const key = this.#key(peerId(from), to);
      if (from.node.status === 'dead') return;
      if (target.node.status !== 'running' || this.#places.isCut(from, target)) return fail(dialTimeoutMs);
      // Both dialed: the first channel stays.
      if (this.#channels.has(key)) return;
      this.#channels.set(key, { a: from, b: target, open: true, broken: false });
      from.node.take({ type: 'opened', peer: to, inbound: false });
      target.node.take({ type: 'opened', peer: peerId(from), inbound: true });
    });
  }

  hangUp(from: Place, to: PeerId): void {
    const key = this.#key(peerId(from), to);
    const channel = this.#channels.get(key);
    if (channel === undefined) return;
    const other = channel.a === from ? channel.b : channel.a;
    channel.open = false;
    this.#channels.delete(key);
    from.node.take({ type: 'closed', peer: to });
    this.#places.later(from, other, () => this.#tellClosed(other, peerId(from)));
  }

  /** Drivers do not report the end of a channel that a newer one has replaced. */
  #tellClosed(node: Place, peer: PeerId): void {
    if (!this.has(peerId(node), peer)) node.node.take({ type: 'closed', peer });
  }

  /** A process ended: its machine closes its connections. */
  end(place: Place): void {
    for (const [key, channel] of this.#channels) {
      if (channel.a !== place && channel.b !== place) continue;
      this.#channels.delete(key);
      channel.open = false;
      const other = channel.a === place ? channel.b : channel.a;
      this.#places.later(place, other, () => this.#tellClosed(other, peerId(place)));
    }
  }

  /**
   * Sockets to gateways that lost something in a cut are reset when it ends; agents' channels continue without the lost
   * messages.
   */
  resetBroken(): void {
    for (const { a, b, broken } of [...this.#channels.values()]) {
      if (broken && (a.kind === 'gateway' || b.kind === 'gateway')) this.hangUp(a, peerId(b));
    }
  }
}
