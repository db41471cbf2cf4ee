/** All tunnels of one agent as one thing. */
import type { Refusal, Tunnel, TunnelOptions } from '../tunnel/types.ts';
import { within } from './wait.ts';

export interface GatewayStatus {
  url: string;
  connected: boolean;
  in_flight: number;
  refused?: string;
}

export interface GatewaysOptions {
  urls: readonly URL[];
  openTunnel(options: TunnelOptions): Tunnel;
  /** What every tunnel shares. */
  shared: Omit<TunnelOptions, 'gateway' | 'log' | 'onRefused' | 'onConnected' | 'onDisconnected'>;
  log(line: string): void;
  /** No gateway will have this agent. */
  onAllRefused(refusal: Refusal): void;
}

/** A gateway that does not take a record within this is not waited for: the next connection brings it. */
const PUBLISH_WAIT_MS = 1000;

/** Closing says good-bye; a peer that does not answer is left. */
const CLOSE_WAIT_MS = 1000;

interface Member {
  url: URL;
  tunnel: Tunnel;
  refusal?: Refusal;
}

export class Gateways {
  readonly #members: Member[] = [];
  readonly #options: GatewaysOptions;

  constructor(options: GatewaysOptions) {
    this.#options = options;
    for (const url of options.urls) {
      const log = lessRepeated(options.log);
      const tunnel = options.openTunnel({
        ...options.shared,
        gateway: url,
        log,
        onRefused: (refusal) => this.#refused(url, refusal),
        onConnected: () => log(`gateway ${url.host}: connected`),
        onDisconnected: () => log(`gateway ${url.host}: connection lost, trying again`),
      });
      this.#members.push({ url, tunnel });
    }
  }

  open(): void {
    for (const { tunnel } of this.#members) tunnel.open();
  }

  status(): GatewayStatus[] {
    return this.#members.map(({ url, tunnel, refusal }) => ({
      url: url.href,
      connected: tunnel.connected,
      in_flight: tunnel.inFlight,
      ...(refusal ? { refused: `${refusal.status} ${refusal.message}` } : {}),
    }));
  }

  get inFlight(): number {
    return this.#members.reduce((sum, { tunnel }) => sum + tunnel.inFlight, 0);
  }

  /** Sends the record to all; resolves when all have it or have had their time. Never rejects. */
  async publish(): Promise<void> {
    await within(
      PUBLISH_WAIT_MS,
      this.#all((tunnel) => tunnel.publish()),
    );
  }

  /** Resolves when no tunnel has anything in flight. Never rejects. */
  async drain(): Promise<void> {
    await this.#all((tunnel) => tunnel.drain());
  }

  async close(): Promise<void> {
    await within(
      CLOSE_WAIT_MS,
      this.#all((tunnel) => tunnel.close()),
    );
  }

  async #all(act: (tunnel: Tunnel) => Promise<void>): Promise<void> {
    const live = this.#members.filter(({ refusal }) => !refusal);
    const results = await Promise.allSettled(live.map(({ tunnel }) => act(tunnel)));
    for (const result of results) {
      if (result.status === 'rejected') this.#options.log(`tunnel: ${String(result.reason)}`);
    }
  }

  #refused(url: URL, refusal: Refusal): void {
    this.#options.log(`gateway ${url.host} refuses this agent: ${refusal.status} ${refusal.message}`);
    const member = this.#members.find((one) => one.url === url);
    if (member) member.refusal = refusal;
    if (this.#members.every((one) => one.refusal)) this.#options.onAllRefused(refusal);
  }
}

/** A gateway away for a night is tried thousands of times; each try says the same. */
const REPEAT_MS = 60_000;

/** Passes a line on unless the same one, numbers apart, was passed on within the last minute. */
function lessRepeated(log: (line: string) => void): (line: string) => void {
  let last = { text: '', at: 0 };
  return (line) => {
    const text = line.replace(/\d+/g, '#');
    const now = performance.now();
    if (text === last.text && now - last.at < REPEAT_MS) return;
    last = { text, at: now };
    log(line);
  };
}
