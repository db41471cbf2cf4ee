/**
 * Connects weights with the rest of an agent: its neighbors, the models in its record, and the command and variables of
 * its engine.
 */

import { join } from 'node:path';
import { type NodePayload, WEIGHTS_SHOWN_MAX } from '../../shared/lattice/node-payload.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { parseSource, sourceText } from '../../shared/weights/weights-source.ts';
import type { PullStatus, WeightsReport } from '../host/control-protocol.ts';
import type { WeightsHandlers } from '../host/control-server.ts';
import type { ProvenConnection } from '../mesh/channel/accept-channel.ts';
import type { Mesh } from '../mesh/mesh.ts';
import { packedFormat } from '../weights/environment/unpack-archive.ts';
import type { Environment } from '../weights/environment/unpacked-environments.ts';
import { MeshPeers, peerNameOf } from '../weights/mesh-peers.ts';
import { HubSource } from '../weights/sources/hub-source.ts';
import { readSource } from '../weights/sources/open-source.ts';
import { PackagesSource } from '../weights/sources/packages-source.ts';
import type { NodeWeightsConfig } from '../weights/weights-config.ts';
import { WeightsError } from '../weights/weights-error.ts';
import { WeightsService } from '../weights/weights-service.ts';
import { settlesWithin } from './settles-within.ts';

/**
 * Maximum wait until this node has joined the mesh. After it, the node reads the sources itself. This happens if no
 * gateway admits the node, or if it has no neighbors.
 */
const MESH_WITHIN_MS = 20_000;
/**
 * POLL_MS: interval at which a pull's progress is shown to the user. RECORD_EVERY_MS: interval at which the weights in
 * the record may change; it is longer, because the record is sent to all nodes.
 */
const POLL_MS = 1_000;
const RECORD_EVERY_MS = 10_000;
/** Time limit of the question whether the hub gives a repository to the owner of a function. */
const LIST_WITHIN_MS = 30_000;
const NAME_MAX = 96;
const WEIGHTS = '{{weights}}';
const ENVIRONMENT = '{{environment}}';

type Env = Readonly<Record<string, string | undefined>>;

interface AgentWeightsOptions {
  config: NodeWeightsConfig;
  env: Env;
  issuerName(issuer: string): string | undefined;
  /** Called when the weights in the node's record change. */
  onRecord(weights: NonNullable<NodePayload['weights']>): void;
  log(line: string): void;
}

/** Command and environment of an engine. */
export interface PreparedEngine {
  command: string[] | undefined;
  env: Env;
}

export class AgentWeights implements WeightsHandlers {
  readonly #options: AgentWeightsOptions;
  readonly #peers: MeshPeers;
  readonly #weights: WeightsService;
  #pollTimer: NodeJS.Timeout | undefined;
  #record: NonNullable<NodePayload['weights']> = [];
  #recordedAt = 0;

  constructor(options: AgentWeightsOptions) {
    const { config, env, issuerName, log } = options;
    this.#options = options;
    this.#peers = new MeshPeers(issuerName);
    this.#weights = new WeightsService({ config, peers: this.#peers, env, log });
  }

  /** @throws Error if the directory cannot be created */
  async open(): Promise<void> {
    await this.#weights.open();
    this.#record = await this.#storedModels();
    this.#pollTimer = setInterval(() => neverRejects(this.#report()), POLL_MS).unref();
  }

  /** The weights in the first record of a session. */
  get record(): NonNullable<NodePayload['weights']> {
    return this.#record;
  }

  /** Handles another node's connection for weights. */
  accept(proven: ProvenConnection): void {
    this.#weights.serve(proven.socket, peerNameOf(proven), () => this.#peers.admits(proven.peer));
  }

  /** Call when the agent's current session has joined this mesh. */
  join(mesh: Mesh, ticket: Ticket): void {
    this.#peers.join(mesh, ticket);
  }

  /** Call when an idle session ends and another one follows. Weights are then copied by the next session. */
  leave(): void {
    this.#peers.leave();
  }

  status(): { directory: string; uploads: number; pulls: PullStatus[] } {
    const { store, uploads } = this.#weights;
    return { directory: store.directory, uploads: uploads.active, pulls: this.#weights.status() };
  }

  async report(): Promise<WeightsReport> {
    const { store } = this.#weights;
    const [used, held, elsewhere] = await Promise.all([
      store.used(),
      this.#weights.held(),
      this.#weights.heldElsewhere(),
    ]);
    const { limitBytes: limit, directory } = store.options;
    return {
      directory,
      used,
      limit,
      held,
      elsewhere: elsewhere.map((one) => ({
        session: one.session,
        ...(one.held === undefined ? {} : { held: one.held }),
      })),
    };
  }

  async pull(source: string, onStatus: (status: PullStatus) => void): Promise<void> {
    await this.#ready();
    const pulling = this.#weights.pull(source);
    const report = () => {
      const status = this.#weights.status().findLast((one) => one.source === source);
      if (status !== undefined) onStatus(status);
    };
    const timer = setInterval(report, POLL_MS);
    try {
      report();
      const { status } = await pulling;
      onStatus(status);
    } finally {
      clearInterval(timer);
    }
  }

  /**
   * Copies a repository of the hub for a function. If the repository is gated or private, the hub must give it to the
   * function's owner: another owner's function, or the engine, may have brought it here.
   * @param token of the function's owner; undefined: the agent's own is used for public repositories
   * @throws WeightsError
   */
  async pullForFunction(text: string, token: string | undefined): Promise<void> {
    await this.#ready();
    const { env } = this.#options;
    const source = readSource(text);
    if (source.kind !== 'hub') throw new WeightsError('wrong', `${text} is not a repository of the hub`);
    const theirs = token === undefined ? undefined : new HubSource(source, { ...env, HF_TOKEN: token });
    const { manifest } = await this.#weights.pull(text, false, theirs);
    if (manifest.public) return;
    if (theirs === undefined)
      throw new WeightsError(
        'refused',
        `${text} is gated or private: store your token with "otela secrets set HF_TOKEN", and declare secrets=["HF_TOKEN"]`,
      );
    await theirs.list(AbortSignal.timeout(LIST_WITHIN_MS));
  }

  /**
   * Returns the directory of a function's packages. They are not deleted until `release` is called.
   * @param digest of all that determines which files are installed
   * @param install called if no node of the cluster has them
   * @throws Error with what the installer said
   */
  async packages(
    digest: string,
    withinMs: number,
    install: (directory: string, signal: AbortSignal) => Promise<void>,
  ): Promise<{ directory: string; release(): void }> {
    await this.#ready();
    const source = sourceText({ kind: 'packages', digest });
    const scratch = join(this.#weights.store.inside, 'packing');
    const packing = new PackagesSource({ source, scratch, withinMs, install });
    const begun = performance.now();
    try {
      const { path, status, unpackedBytes } = await this.#weights.environment(source, packing);
      if (unpackedBytes > 0)
        this.#options.log(
          `functions: packages ${digest.slice(0, 12)} are here after ${secondsSince(begun)} s: ${status.from_source} bytes were packed here, ${status.from_peers} are from other nodes`,
        );
      return { directory: path, release: () => neverRejects(this.#weights.release(source)) };
    } finally {
      await packing.close();
    }
  }

  async collect(source: string | undefined): Promise<number> {
    const freed = await this.#weights.remove(source);
    this.#recordedAt = 0;
    return freed;
  }

  async #ready(): Promise<void> {
    await settlesWithin(MESH_WITHIN_MS, this.#peers.joined);
  }

  /** Allows the deletion of weights that an ended engine used. Other nodes can copy them until then. */
  release(source: string): void {
    neverRejects(this.#weights.release(source));
  }

  /**
   * Pulls the environment and the weights of the engine to local disk. If weights cannot be pulled, the engine reads
   * them from their source.
   * @throws Error if there is no environment to run the engine in
   */
  async prepare(
    command: readonly string[] | undefined,
    env: Env,
    sources = this.#options.config.sources,
  ): Promise<PreparedEngine> {
    const { config, log } = this.#options;
    await this.#ready();
    const environment = config.environment === undefined ? undefined : await this.#environment(config.environment);
    const paths: string[] = [];
    /** For each source on the hub: true if its model is on local disk. */
    const models: boolean[] = [];
    for (const text of sources) {
      const source = parseSource(text);
      const path = await this.#pulled(text);
      if (source?.kind === 'hub') models.push(path !== undefined);
      else if (path === undefined && source?.kind === 'dir') log(`weights: the engine reads ${source.path} directly`);
      paths.push(path ?? (source?.kind === 'dir' ? source.path : ''));
    }
    const [first = ''] = paths;
    const place = environment?.path ?? '';
    return {
      command: command?.map((word) => word.replaceAll(WEIGHTS, first).replaceAll(ENVIRONMENT, place)),
      env: {
        ...env,
        ...environment?.variables,
        ...(models.includes(true) ? { HF_HUB_CACHE: config.directory } : {}),
        // If a model could not be pulled, the engine must read it from the hub, so it must not run in offline mode.
        ...(models.length > 0 && !models.includes(false) ? { HF_HUB_OFFLINE: env.HF_HUB_OFFLINE ?? '1' } : {}),
      },
    };
  }

  async #environment(text: string): Promise<Pick<Environment, 'path' | 'variables'>> {
    const { log } = this.#options;
    const begun = performance.now();
    log(`environment: pulling ${text}`);
    try {
      const environment = await this.#weights.environment(text);
      const { from_source, from_peers } = environment.status;
      const unpacked = environment.unpackedBytes > 0 ? `, ${environment.unpackedBytes} bytes unpacked` : '';
      log(
        `environment: ${text} is ready after ${secondsSince(begun)} s: ${from_source} bytes from the source, ${from_peers} from other nodes${unpacked}`,
      );
      return environment;
    } catch (error) {
      const source = parseSource(text);
      const path = source?.kind === 'dir' ? source.path : undefined;
      const trouble = errorText(error);
      // The engine can run from an image at its source, but not from a packed archive.
      if (path === undefined || (await packedFormat(path).catch(() => undefined)) !== 'image')
        throw new Error(`the environment ${text} is not available: ${trouble}`, { cause: error });
      log(`warning: environment: ${text}: ${trouble}; the engine runs from ${path}`);
      return { path, variables: {} };
    }
  }

  async #pulled(source: string): Promise<string | undefined> {
    const { log } = this.#options;
    const begun = performance.now();
    log(`weights: pulling ${source}`);
    try {
      const { path, status } = await this.#weights.pull(source, true);
      log(
        `weights: ${source} is ready after ${secondsSince(begun)} s: ${status.from_source} bytes from the source, ${status.from_peers} from other nodes`,
      );
      return path;
    } catch (error) {
      log(`warning: weights: ${source}: ${errorText(error)}`);
      return undefined;
    }
  }

  async #report(): Promise<void> {
    const now = performance.now();
    if (now - this.#recordedAt < RECORD_EVERY_MS) return;
    this.#recordedAt = now;
    const record = await this.#storedModels();
    if (JSON.stringify(record) === JSON.stringify(this.#record)) return;
    this.#record = record;
    this.#options.onRecord(record);
  }

  /** Stored models, newest first, up to the maximum of a record. */
  async #storedModels(): Promise<NonNullable<NodePayload['weights']>> {
    const held = await this.#weights.held();
    return held
      .filter(({ source }) => parseSource(source)?.kind !== 'packages')
      .sort((a, b) => (a.used_at < b.used_at ? 1 : -1))
      .slice(0, WEIGHTS_SHOWN_MAX)
      .map(({ source, here, bytes }) => ({ name: nameOf(source), percent: percentOf(here, bytes) }));
  }

  async close(): Promise<void> {
    clearInterval(this.#pollTimer);
    this.#peers.close();
    await this.#weights.close();
  }
}

/** Only the last part of a path is published: a site's paths are private. */
function nameOf(text: string): string {
  const source = parseSource(text);
  if (source?.kind === 'hub') return source.repository.slice(0, NAME_MAX);
  const path = source?.kind === 'dir' ? source.path : source?.kind === 's3' ? source.prefix : '';
  return (path.split('/').findLast((part) => part !== '') ?? 'weights').slice(-NAME_MAX);
}

function secondsSince(begun: number): string {
  return ((performance.now() - begun) / 1000).toFixed(1);
}

function percentOf(here: number, bytes: number): number {
  return bytes === 0 ? 100 : Math.floor((here / bytes) * 100);
}
