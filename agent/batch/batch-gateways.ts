import { inBackground } from '../../shared/timing/in-background.ts';
import type { BatchGateway } from './batch-gateway-client.ts';

/** The maximum of an agent's tunnels. */
const GATEWAYS_MAX = 16;

interface BatchGatewaysOptions {
  /** Gateways that this agent works for now: the configured and the learned ones. */
  named(): readonly URL[];
  open(url: URL): BatchGateway;
  /** Takes leases of the gateway until `signal`. */
  begin(gateway: BatchGateway, signal: AbortSignal): void;
  /** True if leases of the gateway are still here. */
  busy(gateway: BatchGateway): boolean;
  log(line: string): void;
}

interface Entry {
  gateway: BatchGateway;
  stop: AbortController;
}

/**
 * The gateways from which lines are leased. A gateway that is no longer named is dropped when none of its leases is
 * here.
 */
export class BatchGateways {
  readonly #options: BatchGatewaysOptions;
  /** By URL. At most `GATEWAYS_MAX`. */
  readonly #entries = new Map<string, Entry>();

  constructor(options: BatchGatewaysOptions) {
    this.#options = options;
  }

  /** Reads the list of gateways again. Called once a second. */
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
      // A gateway that was dropped a moment ago, and is named again, starts again when its last leases have ended.
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

  /** Takes no more leases. */
  stop(): void {
    for (const { stop } of this.#entries.values()) stop.abort();
  }

  async close(): Promise<void> {
    this.stop();
    await Promise.all([...this.#entries.values()].map(({ gateway }) => gateway.close()));
  }
}
