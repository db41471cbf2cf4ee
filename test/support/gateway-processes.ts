/** Several gateway processes on one PostgreSQL server, for tests. */
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { slotOf } from '../../gateway/hosts/node/cluster/object-slots.ts';
import { PostgresPool } from '../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { Gateway } from './gateway.ts';
import { PostgresServer } from './postgres.ts';
import { atEnd, freePort, temporaryDirectory } from './processes.ts';

export class GatewayProcesses {
  readonly server: PostgresServer;
  readonly url: string;
  readonly gateways: Gateway[] = [];
  readonly #directory: string;
  /** Processes by the addresses at which they reach each other. */
  readonly #addresses = new Map<string, Gateway>();

  private constructor(server: PostgresServer, url: string, directory: string) {
    this.server = server;
    this.url = url;
    this.#directory = directory;
  }

  static async start(count: number): Promise<GatewayProcesses> {
    const directory = await temporaryDirectory();
    const server = await PostgresServer.start(`${directory}-postgres`);
    atEnd(async () => {
      await server.stop('SIGQUIT');
      await server.remove();
    });
    writeFileSync(join(directory, 'cluster.key'), randomBytes(32).toString('hex'), { mode: 0o600 });
    const processes = new GatewayProcesses(server, await server.database('shared'), directory);
    for (let n = 0; n < count; n++) await processes.add();
    return processes;
  }

  /** Rows of a query of the shared database. */
  async rows(query: string): Promise<unknown[][]> {
    const pool = new PostgresPool({ url: this.url, name: 'test', most: 1 });
    try {
      return (await pool.query(query)).rows;
    } finally {
      await pool.close();
    }
  }

  /** The process that owns an object, by its key `CLASS/NAME`. */
  async ownerOf(key: string): Promise<Gateway> {
    const [row] = await this.rows(`SELECT p.address FROM object_slots s
      JOIN gateway_processes p ON p.incarnation = s.owner WHERE s.slot = ${slotOf(key)}`);
    const owner = this.#addresses.get(String(row?.[0]));
    if (owner === undefined) throw new Error(`no process of this test owns ${key}`);
    return owner;
  }

  /** Flags of `serve` for one more process. @param address the others reach it here */
  flags(address: string): string[] {
    const [files, key] = [join(this.#directory, 'files'), join(this.#directory, 'cluster.key')];
    return ['--database', this.url, '--files', files, '--cluster-key', key, '--cluster-address', address];
  }

  /** Number of slots that a process owns. */
  async slotsOf(gateway: Gateway): Promise<number> {
    const [address] = [...this.#addresses].find(([, one]) => one === gateway) ?? [];
    const [row] = await this.rows(`SELECT count(*) FROM object_slots s
      JOIN gateway_processes p ON p.incarnation = s.owner WHERE p.ended IS NULL AND p.address = '${address}'`);
    return Number(row?.[0]);
  }

  /**
   * @param isNamed agents learn the address of the process
   * @param data its data directory; default: a temporary one
   */
  async add(isNamed = true, data?: string): Promise<Gateway> {
    const port = await freePort();
    const url = isNamed ? ['--url', `http://127.0.0.1:${port}`] : [];
    const address = `127.0.0.1:${await freePort()}`;
    const args = [...this.flags(address), ...url];
    const gateway = await Gateway.start({ port, args, ...(data !== undefined && { data }) });
    this.gateways.push(gateway);
    this.#addresses.set(address, gateway);
    return gateway;
  }
}
