/** Three gateway processes, their database, agents and clients, and what may happen to them: see cluster.ts. */
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { PostgresPool } from '../../gateway/hosts/node/postgresql/postgres-pool.ts';
import manifest from '../../package.json' with { type: 'json' };
import { startAgent } from '../support/agent.ts';
import { installGateway } from '../support/as-version.ts';
import { type Engine, type EngineRequest, startEngine } from '../support/engine.ts';
import { type FileSystem, mountFileSystem } from '../support/file-system.ts';
import { Gateway } from '../support/gateway.ts';
import { installGatewayBefore } from '../support/gateway-before.ts';
import { PostgresServer } from '../support/postgres.ts';
import { atEnd, eventually, freePort, temporaryDirectory } from '../support/processes.ts';
import { TcpRelay } from '../support/tcp-relay.ts';
import { MODEL } from '../support/test-cluster.ts';
import { type TwoAddresses, twoAddresses } from '../support/two-addresses.ts';
import { ROOT } from '../support/where.ts';
import { LimitedClient } from './limited-client.ts';
import { isLine, SoakedBatch } from './soaked-batch.ts';
import { HERE, SoakedNetwork } from './soaked-network.ts';

const GATEWAYS = 3;
/** An engine keeps its newest 10,000 requests, which must be all. */
const ENGINES = 6;
/** Requests per second: whole answers, and streams of two seconds. */
const PER_SECOND = { whole: 8, streams: 2 };
const STREAM = { tokens: 20, tokensPerSecond: 10 };
const LIMIT_PER_MINUTE = 300;
const BATCH_LINES_PER_MINUTE = 100;
const MIN_BATCH_LINES = 100;
const DISK_MIB = 96;
/** Longer than the time after which a silent process is declared to have ended. */
const PAUSE_MS = 8_000;
const CUT_MS = 8_000;
const CRASH_MS = 4_000;
const CLOCK_OFF_MS = 5 * 60_000;
const READY_MS = 60_000;
/** Maximum wait for the last records. */
const RECORDS_MS = 60_000;
const POLL_MS = 500;
/** Streams from this number on are lines of batches. */
const LINE_STREAMS = 2 ** 52;
/** Complete responses to clients, and lines of batches. */
const COMPLETE = `SELECT count(*) FILTER (WHERE row::json->>'complete' = 'true' AND NOT is_line),
    count(*) FILTER (WHERE is_line)
  FROM (SELECT *, (row::json->>'stream')::bigint >= ${LINE_STREAMS} AS is_line FROM usage_records WHERE session <> '') r`;
/** Maximum number of repeated requests that are listed. */
const TOLD = 20;
/** The version before its last change had fewer columns in PostgreSQL. */
const MIGRATIONS = 'gateway/hosts/node/postgresql/migrations/meta/_journal.json';

/** A gateway process, its way to PostgreSQL, its disk, and the variables of its next start. */
interface Process {
  gateway: Gateway;
  relay: TcpRelay;
  disk: FileSystem;
  env: Record<string, string>;
  host: number;
}

interface SoakEvent {
  name: string;
  happen(): Promise<void>;
}

export interface SoakOptions {
  agents: number;
  minutes: number;
  /** Called with each completed step. */
  log(line: string): void;
}

interface Findings {
  counts: Record<string, number>;
  missed: string[];
}

export class SoakedCluster {
  readonly #network = SoakedNetwork.up(GATEWAYS);
  readonly #processes: Process[] = [];
  readonly #engines: Engine[] = [];
  readonly #options: SoakOptions;
  /** The file of the gateway's program, which upgrades replace. */
  readonly #program: string;
  readonly #clients: TwoAddresses[] = [];
  #primary: PostgresServer;
  #replica: PostgresServer | undefined;
  #batch: SoakedBatch | undefined;
  #limited: LimitedClient | undefined;

  private constructor(primary: PostgresServer, program: string, options: SoakOptions) {
    this.#primary = primary;
    this.#program = program;
    this.#options = options;
  }

  static async start(options: SoakOptions): Promise<SoakedCluster> {
    const { log, minutes } = options;
    const directory = await temporaryDirectory('otela-soak');
    const program = join(directory, 'gateway/dist/otela-gateway.js');
    const commit = await installGatewayBefore({ changed: MIGRATIONS, file: program, directory });
    log(`the gateway of commit ${commit.slice(0, 8)} is built`);
    const primary = await startServer((data) => PostgresServer.start(data));
    const cluster = new SoakedCluster(primary, program, options);
    await primary.database('otela');
    await cluster.#replace();
    log('PostgreSQL runs, with a replica');
    writeFileSync(join(directory, 'cluster.key'), randomBytes(32).toString('hex'), { mode: 0o600 });
    for (let host = 0; host < GATEWAYS; host++) cluster.#processes.push(await cluster.#startGateway(host, directory));
    log('the gateways run');
    await cluster.#load(Math.max(MIN_BATCH_LINES, Math.ceil(minutes * BATCH_LINES_PER_MINUTE)));
    log('all agents serve, and requests flow');
    return cluster;
  }

  async #startGateway(host: number, directory: string): Promise<Process> {
    const [relay, port] = [await TcpRelay.open(this.#primary.socket, HERE), await freePort()];
    const [address, disk] = [this.#network.address(host), mountFileSystem({ sizeMiB: DISK_MIB })];
    if (typeof disk === 'string') throw new Error(disk);
    const env = {
      CLOCK_OFFSET_MS: '0',
      NODE_OPTIONS: `--import=${pathToFileURL(join(ROOT, 'test/support/clock-offset.ts')).href}`,
    };
    const args = [
      ...['--database', `postgres://otela@${HERE}:${relay.port}/otela`, '--files', join(directory, 'files')],
      ...['--cluster-key', join(directory, 'cluster.key'), '--cluster-address', `${address}:${port + 1}`],
      ...['--url', `http://${address}:${port}`],
    ];
    const where = { port, host: address, publicHost: address, prefix: this.#network.on(host) };
    const gateway = await Gateway.start({ ...where, data: join(disk.path, 'data'), args, env, main: this.#program });
    return { gateway, relay, disk, env, host };
  }

  async #load(lines: number): Promise<void> {
    const [first] = this.#processes;
    if (first === undefined) throw new Error('there is no gateway');
    const token = await first.gateway.createJoinToken();
    const addresses = this.#processes.map(({ gateway }) => gateway);
    for (let n = 0; n < ENGINES; n++) {
      const engine = await startEngine({ models: [MODEL] });
      atEnd(() => engine.close());
      this.#engines.push(engine);
    }
    const { agents } = this.#options;
    for (let n = 0; n < agents; n++)
      await startAgent({
        gateways: addresses.map(({ url }) => url),
        token,
        engineUrl: this.#engines[n % ENGINES]?.url ?? '',
      });
    for (const gateway of addresses) await gateway.serving(agents, READY_MS);
    const key = await first.gateway.createKey('people');
    const limits = { requests_per_minute: LIMIT_PER_MINUTE };
    const limitedKey = await first.gateway.createKey('limited', { limits });
    this.#batch = await SoakedBatch.start({ addresses, key, lines });
    this.#clients.push(
      twoAddresses({ addresses, key, perSecond: PER_SECOND.whole }),
      twoAddresses({ addresses, key, perSecond: PER_SECOND.streams, standIn: STREAM, streams: true }),
    );
    this.#limited = new LimitedClient({ addresses, key: limitedKey, perMinute: LIMIT_PER_MINUTE });
  }

  /** Gives the primary a replica that has each commit. */
  async #replace(): Promise<void> {
    this.#replica = await startServer((directory) => this.#primary.startReplica(directory));
    await this.#primary.requireReplica();
  }

  /** Errors that clients saw so far, in words. */
  get errors(): string {
    const count = this.#clients.reduce((all, { errors }) => all + errors.length, this.#limited?.errors.length ?? 0);
    return count === 0 ? 'no client saw an error' : `clients saw ${count} errors`;
  }

  /** Everything that may happen, once. */
  events(random: () => number): SoakEvent[] {
    const any = (not?: Process): Process => {
      const others = this.#processes.filter((one) => one !== not);
      const one = others[Math.floor(random() * others.length)];
      if (one === undefined) throw new Error('there is no process');
      return one;
    };
    const pair = () => {
      const one = any();
      return [one, any(one)] as const;
    };
    return [
      ...this.#processes.map((one) => ({ name: `gateway ${one.host} is killed`, happen: () => kill(one) })),
      { name: 'a gateway is paused', happen: () => pause(any()) },
      { name: 'a gateway does not reach PostgreSQL', happen: () => cut(any()) },
      { name: 'two gateways do not reach each other', happen: () => this.#cutPair(...pair()) },
      { name: 'the disk of a gateway is full', happen: () => fill(any()) },
      { name: 'the clock of a gateway is five minutes off', happen: () => this.#setClock(any()) },
      { name: 'all gateways are upgraded', happen: () => this.#upgrade() },
      { name: 'PostgreSQL crashes', happen: () => this.#crash() },
      { name: 'the replica is promoted', happen: () => this.#promote() },
    ];
  }

  async #cutPair(a: Process, b: Process): Promise<void> {
    this.#network.cut(a.host, b.host);
    await delay(CUT_MS);
    this.#network.heal();
  }

  async #setClock(one: Process): Promise<void> {
    for (const ms of [CLOCK_OFF_MS, 0]) {
      one.env.CLOCK_OFFSET_MS = String(ms);
      await one.gateway.stop();
      await one.gateway.restart();
      await this.allReady();
    }
  }

  /** The first upgrade is from the older version. */
  async #upgrade(): Promise<void> {
    await installGateway(this.#program, manifest.version);
    for (const { gateway } of this.#processes) {
      await gateway.stop();
      await gateway.restart();
      await this.allReady();
    }
  }

  async #crash(): Promise<void> {
    await this.#primary.stop('SIGQUIT');
    await delay(CRASH_MS);
    await this.#primary.run();
  }

  async #promote(): Promise<void> {
    const [former, replica] = [this.#primary, this.#replica];
    if (replica === undefined) throw new Error('there is no replica');
    await former.stop('SIGQUIT');
    await delay(1_000);
    await replica.promote();
    this.#primary = replica;
    for (const { relay } of this.#processes) relay.lead(replica.socket);
    await this.allReady();
    await this.#replace();
  }

  /** Resolves when each process reaches PostgreSQL and the registry, and agents are connected. */
  async allReady(): Promise<void> {
    for (const { gateway } of this.#processes) {
      await eventually(`${gateway.url} is ready`, READY_MS, async () => {
        const response = await fetch(`${gateway.url}/readyz`).catch(() => undefined);
        const { checks } = ((await response?.json()) ?? {}) as { checks?: { database?: boolean } };
        return response?.ok === true && checks?.database === true ? true : undefined;
      });
      await gateway.serving(this.#options.agents, READY_MS);
    }
  }

  /** Ends the load and compares what clients, engines and the database say. */
  async findings(): Promise<Findings> {
    const missed: string[] = [];
    await Promise.all(this.#clients.map((client) => client.stop()));
    for (const { errors } of this.#clients) for (const error of errors) missed.push(`a client saw ${error}`);
    const sum = (of: 'sent' | 'served' | 'retried') => this.#clients.reduce((all, client) => all + client[of], 0);
    const [sent, served, retried] = [sum('sent'), sum('served'), sum('retried')];
    if (served !== sent) missed.push(`${sent - served} of ${sent} requests have no answer`);
    const limited = await this.#limited?.stop();
    for (const error of this.#limited?.errors ?? []) missed.push(`a client with a limit saw ${error}`);
    if (limited !== undefined && limited.most > LIMIT_PER_MINUTE * 1.02)
      missed.push(`a limit of ${LIMIT_PER_MINUTE} requests per minute let ${limited.most} through`);
    const batch = await this.#batch?.results();
    missed.push(...(batch?.missed ?? []));
    const asked = this.#engines.flatMap(({ requests }) => requests.filter(isCompletion));
    const responses = asked.filter((request) => request.finishedAt !== undefined && !isLine(request));
    const [answered, batchLines] = [responses.length, batch?.lines ?? 0];
    const { counted, countedLines } = await this.#counted(answered, batchLines);
    if (counted !== answered) missed.push(`usage has ${counted} complete responses, the engines sent ${answered}`);
    if (countedLines !== batchLines) missed.push(`usage has ${countedLines} lines of batches, not ${batchLines}`);
    const repeated = repeatedOf(responses);
    for (const request of repeated.slice(0, TOLD)) this.#options.log(`answered again: ${request}`);
    const engines = { asked: asked.length, answered, counted, repeated: repeated.length };
    return {
      counts: { sent, served, retried, limitedPerMinute: limited?.most ?? 0, batchLines, countedLines, ...engines },
      missed,
    };
  }

  /** Complete responses in the records: they arrive late, so it waits until all are there or the time is over. */
  async #counted(answered: number, lines: number): Promise<{ counted: number; countedLines: number }> {
    const pool = new PostgresPool({ url: this.#primary.url('otela'), name: 'soak', most: 1 });
    const until = performance.now() + RECORDS_MS;
    let [counted, countedLines] = [0, 0];
    while ((counted < answered || countedLines < lines) && performance.now() < until) {
      const { rows } = await pool.query(COMPLETE);
      [counted, countedLines] = (rows[0] ?? []).map(Number) as [number, number];
      await delay(POLL_MS);
    }
    await pool.close();
    return { counted, countedLines };
  }
}

async function kill({ gateway }: Process): Promise<void> {
  await gateway.kill9();
  await delay(CRASH_MS);
  await gateway.restart();
}

async function pause({ gateway }: Process): Promise<void> {
  gateway.process.signal('SIGSTOP');
  await delay(PAUSE_MS);
  gateway.process.signal('SIGCONT');
}

async function cut({ relay }: Process): Promise<void> {
  relay.cut();
  await delay(CUT_MS);
  relay.heal();
}

async function fill({ disk }: Process): Promise<void> {
  disk.fill(0);
  await delay(CUT_MS);
  disk.empty();
}

function isCompletion({ url }: { url: string }): boolean {
  return url.endsWith('/chat/completions');
}

/** Requests that engines answered more than once: a gateway repeats one if it has lost the response. */
function repeatedOf(requests: readonly EngineRequest[]): string[] {
  const byName = Map.groupBy(requests, ({ headers }) => headers['x-request-id']);
  return [...byName].flatMap(([name, all]) =>
    all.length < 2 ? [] : `${name} at ${all.map(({ arrivedAt }) => new Date(arrivedAt).toISOString()).join(' and ')}`,
  );
}

/** Starts a server. Its data is deleted at the end. */
async function startServer(start: (directory: string) => Promise<PostgresServer>): Promise<PostgresServer> {
  const server = await start(`${await temporaryDirectory('otela-soak')}-postgres`);
  atEnd(async () => {
    await server.stop('SIGQUIT');
    await server.remove();
  });
  return server;
}
