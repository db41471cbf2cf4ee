import type { BatchGateway } from './gateway-client.ts';

/** As many as an agent has tunnels to. */
const GATEWAYS_MAX = 16;

interface BatchGatewaysOptions {
  /** Those that this agent works for now: its configuration's, and those that it has learned of since. */
  named(): readonly URL[];
  open(url: URL): BatchGateway;
  /** Takes leases of the gateway until `signal`. */
  begin(gateway: BatchGateway, signal: AbortSignal): void;
  /** Whether leases of the gateway are here still. */
  busy(gateway: BatchGateway): boolean;
}

interface Entry {
  gateway: BatchGateway;
  stop: AbortController;
}

/** The gateways that lines are taken from. One that is no longer named is left when nothing of it is here. */
export class BatchGateways {
  readonly #options: BatchGatewaysOptions;
  /** By address. At most `GATEWAYS_MAX`. */
  readonly #entries = new Map<string, Entry>();

  constructor(options: BatchGatewaysOptions) {
    this.#options = options;
  }

  /** Reads again which gateways there are. Once a second. */
  look(): void {
    const { named, open, begin, busy } = this.#options;
    const urls = new Map(named().map((url) => [url.href, url]));
    for (const [href, { gateway, stop }] of this.#entries) {
      if (urls.has(href)) continue;
      stop.abort();
      if (busy(gateway)) continue;
      this.#entries.delete(href);
      void gateway.close();
    }
    for (const [href, url] of urls) {
      const known = this.#entries.get(href);
      // One that was left a moment ago, and whose leases end yet, is begun anew when they have ended.
      if (known?.stop.signal.aborted === true && !busy(known.gateway)) {
        this.#entries.delete(href);
        void known.gateway.close();
      }
      if (this.#entries.has(href) || this.#entries.size >= GATEWAYS_MAX) continue;
      const entry = { gateway: open(url), stop: new AbortController() };
      this.#entries.set(href, entry);
      begin(entry.gateway, entry.stop.signal);
    }
  }

  /** Takes nothing more. */
  stop(): void {
    for (const { stop } of this.#entries.values()) stop.abort();
  }

  async close(): Promise<void> {
    this.stop();
    await Promise.all([...this.#entries.values()].map(({ gateway }) => gateway.close()));
  }
}
