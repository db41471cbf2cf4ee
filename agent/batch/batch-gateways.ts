import { inBackground } from '../../shared/timing/in-background.ts';
import type { BatchGatewayClient } from './batch-gateway-client.ts';

/** Maximum number of gateways: the maximum number of an agent's tunnels. */
const GATEWAYS_MAX = 16;

interface BatchGatewaysOptions {
  /**
   * Gateways for which this agent currently works: the configured gateways, and further gateways that a gateway listed.
   */
  named(): readonly URL[];
  open(url: URL): BatchGatewayClient;
  /** Takes leases from the gateway until `signal` is aborted. */
  begin(gateway: BatchGatewayClient, signal: AbortSignal): void;
  /** True if this agent still holds leases of the gateway. */
  busy(gateway: BatchGatewayClient): boolean;
  log(line: string): void;
}

interface Entry {
  gateway: BatchGatewayClient;
  stop: AbortController;
}

/**
 * The gateways from which lines are leased. A gateway that is no longer listed is dropped when this agent holds none of
 * its leases.
 */
export class BatchGateways {
  readonly #options: BatchGatewaysOptions;
  /** Gateways by URL. At most GATEWAYS_MAX. */
  readonly #entries = new Map<string, Entry>();

  constructor(options: BatchGatewaysOptions) {
    this.#options = options;
  }

  /** Updates the list of gateways. Called once a second. */
  look(): void {
    const { named, open, begin, busy, log } = this.#options;
    const urls = new Map(named().map((url) => [url.href, url]));
    for (const [href, { gateway, stop }] of this.#entries) {
      if (urls.has(href)) continue;
      stop.abort();
      if (busy(gateway)) continue;
      this.#entries.delete(href);
      inBackground(`batches of ${href}`, gateway.close(), log);
    }
    for (const [href, url] of urls) {
      const known = this.#entries.get(href);
      // If a gateway is listed again while leases from before are still held, its work starts again when they have
      // ended.
      if (known?.stop.signal.aborted === true && !busy(known.gateway)) {
        this.#entries.delete(href);
        inBackground(`batches of ${href}`, known.gateway.close(), log);
      }
      if (this.#entries.has(href) || this.#entries.size >= GATEWAYS_MAX) continue;
      const entry = { gateway: open(url), stop: new AbortController() };
      this.#entries.set(href, entry);
      begin(entry.gateway, entry.stop.signal);
    }
  }

  /** Takes no further leases. */
  stop(): void {
    for (const { stop } of this.#entries.values()) stop.abort();
  }

  async close(): Promise<void> {
    this.stop();
    await Promise.all([...this.#entries.values()].map(({ gateway }) => gateway.close()));
  }
}
