/**
 * What lies between nodes. Latencies, jitter and loss are drawn per message; loss drops a whole message, which is harsher than TCP: a real
 * channel would bring it late. A cut drops silently, as a firewall does.
 */
import { exponential, type Rng } from './random.ts';

/** TCP, IP and WebSocket around one message (20 + 20 + 6 + Ethernet's 14 and the TCP timestamps). */
export const HEADER_BYTES = 66;

export interface NetworkOptions {
  /** One way, ms. */
  clusterMs: number;
  gatewayMs: number;
  /** Latency is multiplied by 1 to 1 + this. */
  jitter: number;
  /** Share of messages that are late by an exponential time of this mean. */
  spikes: number;
  spikeMs: number;
  /** Share of messages lost. */
  loss: number;
  /** The same between agents and gateways; undefined: as inside a cluster. */
  gatewayLoss: number | undefined;
  /** After this a dial into a void is given up. */
  dialTimeoutMs: number;
}

export const DEFAULT_NETWORK: NetworkOptions = {
  clusterMs: 0.5,
  gatewayMs: 5,
  jitter: 0.3,
  spikes: 0.005,
  spikeMs: 10,
  loss: 0,
  gatewayLoss: undefined,
  dialTimeoutMs: 1000,
};

export class Network {
  readonly options: NetworkOptions;
  readonly #rng: Rng;
  /** Whether what `from` sends reaches `to`; ids of hosts. Replaced by faults. */
  cut: (from: string, to: string) => boolean = () => false;

  constructor(options: NetworkOptions, rng: Rng) {
    this.options = options;
    this.#rng = rng;
  }

  delay(baseMs: number): number {
    const late = this.#rng() < this.options.spikes ? exponential(this.#rng, this.options.spikeMs) : 0;
    return baseMs * (1 + this.#rng() * this.options.jitter) + late;
  }

  /** Undefined: it never arrives. */
  travel(from: string, to: string, baseMs: number): number | undefined {
    const { gatewayLoss, gatewayMs, loss } = this.options;
    const lost = this.#rng() < (baseMs === gatewayMs ? (gatewayLoss ?? loss) : loss);
    const delay = this.delay(baseMs);
    return lost || this.cut(from, to) ? undefined : delay;
  }
}
