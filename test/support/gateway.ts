/** A gateway on the host under test, used as by its operators. */
import { GatewayClient } from './gateway-client.ts';
import { HOST, type RunningHost } from './host.ts';
import { freePort, type Managed, temporaryDirectory } from './processes.ts';

export interface GatewayOptions {
  /** Data directory; default: a temporary one. */
  data?: string;
  host?: string;
  /** Port; default: a free one. */
  port?: number;
  /** Additional flags of `serve`. */
  args?: string[];
  env?: Record<string, string>;
  /** File of the gateway's program; default: the one in this clone. */
  main?: string;
  /** The queue's settings; `false`: requests do not wait for a node. Default: the shipped settings. */
  queue?: false | Record<string, unknown>;
  /** Prepended to the command, e.g. `ip netns exec gateway`. */
  prefix?: string[];
  /** The host that clients use, if it differs from the printed one. */
  publicHost?: string;
}

export type { RegisteredNode } from './gateway-client.ts';

export class Gateway extends GatewayClient {
  readonly #options: GatewayOptions;
  readonly data: string;
  readonly port: number;
  #running: RunningHost;

  private constructor(options: GatewayOptions, data: string, port: number) {
    super(`http://${options.publicHost ?? options.host ?? '127.0.0.1'}:${port}`, '');
    this.#options = options;
    this.data = data;
    this.port = port;
    this.#running = this.#spawn();
  }

  get process(): Managed {
    return this.#running.process;
  }

  static async start(options: GatewayOptions = {}): Promise<Gateway> {
    const data = options.data ?? (await temporaryDirectory('otela-gateway'));
    const port = options.port || (await freePort(options.prefix === undefined ? options.host : '127.0.0.1'));
    const gateway = new Gateway(options, data, port);
    await gateway.#ready();
    const { queue } = options;
    if (queue !== undefined)
      await gateway.admin('PATCH', 'settings', { queue: queue || { unary_ms: 0, stream_ms: 0 } });
    return gateway;
  }

  #spawn(): RunningHost {
    const { prefix, host = '127.0.0.1', args = [], env, main } = this.#options;
    return HOST.start({ data: this.data, host, port: this.port, args, env, main, prefix });
  }

  async #ready(): Promise<void> {
    const scheme = await this.#running.ready();
    this.url = this.url.replace(/^https?/, scheme);
    this.adminKey = await this.#running.adminKey();
  }

  /** Starts it again on the same port and data, after it ended. */
  async restart(): Promise<void> {
    this.#running = this.#spawn();
    await this.#ready();
  }

  /** Sends KILL to all its processes together, as an out-of-memory kill or a power failure would. */
  kill9(): Promise<void> {
    return this.#running.kill9();
  }

  /** Resident memory of all its processes. */
  memoryMib(): number {
    return this.#running.memoryMib();
  }

  stop(): Promise<void> {
    return this.#running.stop();
  }
}
