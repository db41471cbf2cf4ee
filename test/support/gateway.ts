/** A gateway as a process: `node gateway/standalone/node/main.ts serve`, spoken to as its operators do. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GatewayClient } from './gateway-client.ts';
import { commandOf, descendants, freePort, Managed, temporaryDirectory } from './processes.ts';
import { NODE, ROOT } from './where.ts';

const READY_MS = 30_000;

export interface GatewayOptions {
  /** Default: a temporary directory. */
  data?: string;
  host?: string;
  /** Default: a free one. */
  port?: number;
  /** More flags of `serve`. */
  args?: string[];
  env?: Record<string, string>;
  /** Default: the program in this clone. */
  main?: string;
  /** How long requests wait for a node, as its settings have it; `false`: not at all. Default: as shipped. */
  queue?: false | Record<string, unknown>;
  /** Before the command, e.g. `ip netns exec gateway`. */
  prefix?: string[];
  /** Where clients reach it, when that is not what it prints. */
  publicHost?: string;
}

export type { RegisteredNode } from './gateway-client.ts';

export class Gateway extends GatewayClient {
  readonly #options: GatewayOptions;
  readonly data: string;
  readonly port: number;
  process: Managed;

  private constructor(options: GatewayOptions, data: string, port: number) {
    super(`http://${options.publicHost ?? options.host ?? '127.0.0.1'}:${port}`, '');
    this.#options = options;
    this.data = data;
    this.port = port;
    this.process = this.#spawn();
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

  #spawn(): Managed {
    const { prefix = [], host = '127.0.0.1', args = [], env, main } = this.#options;
    const serve = [main ?? join(ROOT, 'gateway/standalone/node/main.ts'), 'serve'];
    const command = [
      ...prefix,
      NODE,
      ...serve,
      '--port',
      String(this.port),
      '--host',
      host,
      '--data',
      this.data,
      ...args,
    ];
    return new Managed(command, { label: 'gateway', cwd: ROOT, ...(env === undefined ? {} : { env }) });
  }

  async #ready(): Promise<void> {
    const [, scheme = 'http'] = await this.process.line(/otela-gateway ready (https?):\/\/\S+/, READY_MS);
    this.url = this.url.replace(/^https?/, scheme);
    this.adminKey = (await readFile(join(this.data, 'admin.key'), 'utf8')).trim();
  }

  /** Starts it again on the same port and data, after it ended. */
  async restart(): Promise<void> {
    this.process = this.#spawn();
    await this.#ready();
  }

  /** KILL to the whole group: launcher, public socket and workerd at once, as an out-of-memory or a power cut would. */
  async kill9(): Promise<void> {
    this.process.signal('SIGKILL', 'group');
    await this.process.end(5_000);
  }

  /** Process id of the runtime that the Worker runs in. */
  workerd(): number {
    const found = descendants(this.process.pid).find((pid) => /workerd[^ ]* serve/.test(commandOf(pid)));
    if (found === undefined) throw this.process.failure('has no workerd');
    return found;
  }

  async stop(): Promise<void> {
    await this.process.stop();
  }
}
