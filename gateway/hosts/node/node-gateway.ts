/** A gateway in this process: its objects, its accounts, its public socket. */
import { LimitsObject } from '../../accounts/limits-object.ts';
import type { Env } from '../../env.ts';
import type { ObjectClass } from '../../gateway-object.ts';
import { ObserveObject } from '../../observe/object.ts';
import { QueueObject } from '../../queue/object.ts';
import { RegistryObject } from '../../registry/object.ts';
import { TunnelObject } from '../../tunnel/object.ts';
import { UsageObject } from '../../usage/object.ts';
import { Assets } from './assets.ts';
import { D1, migrate } from './d1.ts';
import { HttpServer, type TlsMaterial } from './http-server.ts';
import { LocalOutlets } from './local-outlet.ts';
import { ObjectHost } from './object-host.ts';
import { Database } from './sqlite.ts';

/** By the binding that the gateway knows them by; also the names of their directories. */
const CLASSES = {
  TUNNEL: TunnelObject,
  REGISTRY: RegistryObject,
  LIMITS: LimitsObject,
  USAGE: UsageObject,
  QUEUE: QueueObject,
  OBSERVE: ObserveObject,
} satisfies Record<string, ObjectClass>;

export interface NodeGatewayOptions {
  /** An absolute directory, which exists. */
  objects: string;
  /** An absolute file, made where it is missing. */
  accounts: string;
  assets: string;
  migrations: readonly { name: string; statements: readonly string[] }[];
  /** Settings and secrets; see gateway/env.ts. */
  settings: Record<string, string | undefined>;
  tls: TlsMaterial | undefined;
  log(line: string): void;
}

export class NodeGateway {
  readonly #server: HttpServer;
  readonly #host: ObjectHost;
  readonly #accounts: Database;

  private constructor(server: HttpServer, host: ObjectHost, accounts: Database) {
    this.#server = server;
    this.#host = host;
    this.#accounts = accounts;
  }

  static async open(options: NodeGatewayOptions): Promise<NodeGateway> {
    const { objects, accounts, assets, migrations, settings, tls, log } = options;
    const database = new Database(accounts);
    migrate(database, migrations);
    const outlets = new LocalOutlets();
    const host: ObjectHost = new ObjectHost({ directory: objects, classes: CLASSES, env: () => env, log });
    const env: Env = {
      ...settings,
      DB: new D1(database) as unknown as Env['DB'],
      TUNNEL: host.namespace<TunnelObject>('TUNNEL'),
      REGISTRY: host.namespace<RegistryObject>('REGISTRY'),
      LIMITS: host.namespace<LimitsObject>('LIMITS'),
      USAGE: host.namespace<UsageObject>('USAGE'),
      QUEUE: host.namespace<QueueObject>('QUEUE'),
      OBSERVE: host.namespace<ObserveObject>('OBSERVE'),
      ASSETS: new Assets(assets),
      LOCAL_OUTLETS: outlets,
      OBJECTS_STAY: 'on',
    };
    const waitUntil = (work: Promise<unknown>) =>
      void work.catch((error: unknown) => log(`in the background: ${error}`));
    const server = new HttpServer({ tls, env, outlets, background: { waitUntil } });
    return new NodeGateway(server, host, database);
  }

  /** Resolves with the port. */
  async listen(port: number, host: string): Promise<number> {
    const taken = await this.#server.listen(port, host);
    this.#host.start();
    return taken;
  }

  reload(tls: TlsMaterial): void {
    this.#server.reload(tls);
  }

  async close(drainMs: number): Promise<void> {
    await this.#server.close(drainMs);
    this.#host.close();
    this.#accounts.close();
  }
}
