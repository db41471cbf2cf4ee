/** A gateway and its replicas, and the replicas to which the gateway would route. */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { Cluster } from '../slurm/cluster.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, eventually, temporaryDirectory } from '../support/processes.ts';
import { Door } from './door.ts';
import { buildPrograms } from './programs.ts';
import { Replica, type ReplicaOptions } from './replica.ts';
import { SLURM_REPLICAS, SlurmReplica } from './slurm-replica.ts';

const nodesSchema = z.object({
  data: z.array(
    z.object({
      session: z.string(),
      state: z.string(),
      suspected: z.boolean(),
      joined_at: z.string(),
      labels: z.record(z.string(), z.string()),
    }),
  ),
});

interface FleetOptions {
  replicas: number;
  slots: number;
  tokensPerSecond: number;
  /** Some of them run in jobs of a real Slurm. */
  slurm: boolean;
  /** The gateway's data directory. Default: a temporary directory. */
  data?: string;
}

const WATCH_MS = 250;
/** `joined_at` may be rounded to the second. */
const JOINED_TOLERANCE_MS = 1_000;
const START_MS = 90_000;
/** Concurrent starts on two cores: more only take longer. */
const TOGETHER = 4;

export class Fleet {
  readonly gateway: Gateway;
  readonly key: string;
  readonly replicas: readonly Replica[];
  readonly options: FleetOptions;
  /** Names of the replicas that the gateway lists as serving, and the epoch milliseconds of its last answer. */
  #serving: ReadonlySet<string> = new Set();
  seenAt = 0;
  #over = false;

  private constructor(gateway: Gateway, key: string, replicas: readonly Replica[], options: FleetOptions) {
    this.gateway = gateway;
    this.key = key;
    this.replicas = replicas;
    this.options = options;
  }

  /** Starts all replicas and waits until they serve. */
  static async open(options: FleetOptions): Promise<Fleet> {
    const [gateway, programs] = await Promise.all([
      Gateway.start(options.data === undefined ? {} : { data: options.data }),
      buildPrograms(),
    ]);
    const key = await gateway.createKey('chaos');
    const token = await gateway.createJoinToken('scavenger', 'chaos');
    const directory = await temporaryDirectory('otela-chaos-journals');
    const cluster = options.slurm ? await Cluster.up() : undefined;
    const tokenFile = await cluster?.secret('token', token);
    const replicas: Replica[] = [];
    for (let index = 0; index < options.replicas; index++) {
      const door = await new Door(gateway.port).open();
      atEnd(() => door.close());
      const { slots, tokensPerSecond } = options;
      const own: ReplicaOptions = { index, door, token, programs, directory, slots, tokensPerSecond };
      const inJob = cluster !== undefined && tokenFile !== undefined && index < SLURM_REPLICAS;
      replicas.push(inJob ? new SlurmReplica(cluster, tokenFile, own) : new Replica(own));
    }
    const fleet = new Fleet(gateway, key, replicas, options);
    neverRejects(fleet.#watch());
    atEnd(() => fleet.#end());
    await fleet.atLeast(replicas.length);
    return fleet;
  }

  /** Tokens per second of all engines together. */
  get capacity(): number {
    return this.replicas.length * this.options.slots * this.options.tokensPerSecond;
  }

  get serving(): number {
    return this.#serving.size;
  }

  serves(replica: Replica): boolean {
    return this.#serving.has(replica.name);
  }

  /** Starts stopped replicas until `count` serve. */
  async atLeast(count: number): Promise<void> {
    const down = this.replicas.filter((replica) => !replica.running);
    const running = this.replicas.length - down.length;
    const wanted = down.slice(0, Math.max(0, count - running));
    for (let at = 0; at < wanted.length; at += TOGETHER) {
      const some = wanted.slice(at, at + TOGETHER);
      await Promise.all(some.map((replica) => replica.start()));
      await Promise.all(some.map((replica) => this.untilServes(replica, START_MS)));
    }
    await eventually(`${count} replicas serve`, START_MS, () => (this.serving >= count ? true : undefined));
  }

  /**
   * Kills replicas until `count` are left and the gateway lists no others, so that the next measurement is only theirs.
   */
  async atMost(count: number): Promise<void> {
    const running = this.replicas.filter((replica) => replica.running);
    await Promise.all(running.slice(count).map((replica) => replica.kill()));
    await eventually(`${count} replicas serve at most`, START_MS, () => (this.serving <= count ? true : undefined));
  }

  /** Waits until the gateway lists it as serving, with its current agent. False: not within that time. */
  async untilServes(replica: Replica, withinMs: number): Promise<boolean> {
    const deadline = Date.now() + withinMs;
    const asked = Date.now();
    while (Date.now() < deadline && !this.#over) {
      if (this.seenAt > asked && this.serves(replica)) return true;
      await sleep(50);
    }
    return false;
  }

  async #watch(): Promise<void> {
    while (!this.#over) {
      await this.look().catch(() => undefined);
      await sleep(WATCH_MS);
    }
  }

  /** Asks the gateway now. */
  async look(): Promise<number> {
    const response = await fetch(`${this.gateway.url}/v1/registry/nodes`, {
      headers: { authorization: `Bearer ${this.gateway.adminKey}` },
      signal: AbortSignal.timeout(2_000),
    });
    const { data } = nodesSchema.parse(await response.json());
    const startedAt = new Map(this.replicas.map(({ name, startedAt }) => [name, startedAt]));
    const serving = data.filter(({ state, suspected, labels, joined_at }) => {
      // The session of a killed agent may be listed for a moment after its successor was started.
      const since = startedAt.get(labels.replica ?? '') ?? 0;
      return state === 'SERVING' && !suspected && Date.parse(joined_at) > since - JOINED_TOLERANCE_MS;
    });
    this.#serving = new Set(serving.flatMap(({ labels }) => labels.replica ?? []));
    this.seenAt = Date.now();
    return this.serving;
  }

  #end(): void {
    this.#over = true;
    for (const replica of this.replicas) {
      replica.wanted = false;
      // A paused one cannot end.
      replica.agent?.signal('SIGCONT');
    }
  }
}
