/**
 * The network between nodes. Latencies, jitter and loss are drawn per message; loss drops a whole message, which is
 * harsher than TCP: a real channel would deliver it late. A cut drops silently, as a firewall does.
 */
import { exponential, type Rng } from './random.ts';

/** TCP, IP and WebSocket around one message (20 + 20 + 6 + Ethernet's 14 and the TCP timestamps). */
export const HEADER_BYTES = 66;

export interface NetworkOptions {
  /** One way, in milliseconds. */
  clusterMs: number;
  gatewayMs: number;
  /** Latency is multiplied by 1 to 1 + this. */
  jitter: number;
  /** Fraction of messages that are late, by an exponential time with the mean `spikeMs`. */
  spikes: number;
  spikeMs: number;
  /** Fraction of messages lost. */
  loss: number;
  /** The same between agents and gateways; undefined: like inside a cluster. */
  gatewayLoss: number | undefined;
  /** A dial without an answer is given up after this time. */
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
  /** True if messages from `from` to `to` are dropped, by host id. Faults replace it. */
  cut: (from: string, to: string) => boolean = () => false;

  constructor(options: NetworkOptions, rng: Rng) {
    this.options = options;
    this.#rng = rng;
  }

  delay(baseMs: number): number {
    const late = this.#rng() < this.options.spikes ? exponential(this.#rng, this.options.spikeMs) : 0;
    return baseMs * (1 + this.#rng() * this.options.jitter) + late;
  }

  /** Returns milliseconds; undefined: the message never arrives. */
  travel(from: string, to: string, baseMs: number): number | undefined {
    const { gatewayLoss, gatewayMs, loss } = this.options;
    const lost = this.#rng() < (baseMs === gatewayMs ? (gatewayLoss ?? loss) : loss);
    const delay = this.delay(baseMs);
    return lost || this.cut(from, to) ? undefined : delay;
  }
}
