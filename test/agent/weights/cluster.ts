/** Nodes of one cluster that keep weights: the real code, with sockets of this process instead of the mesh. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { PeerName, Peers } from '../../../agent/weights/peer-directory.ts';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { PULL_LIMITS, type PullLimits } from '../../../agent/weights/weights-config.ts';
import { type WeightsOptions, WeightsService } from '../../../agent/weights/weights-service.ts';
import { sessionIdFromDigest } from '../../../shared/lattice/session-id.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { promise } from '../../support/patience.ts';
import { atEnd, temporaryDirectory } from '../../support/processes.ts';

export const PIECE = 64 * 1024;

/** As in the agent, except that missing content is given up after a while. */
const LIMITS: PullLimits = { ...PULL_LIMITS, giveUpMs: 30_000, waitMs: 20 };
/**
 * With a hundredth of the agent's patience, for nodes that must leave a sender. On a slow machine they would leave a
 * good one too, hence `promise`.
 */
export const QUICK: PullLimits = { ...LIMITS, slowAfterMs: promise(300), sourceAfterMs: promise(2_000) };

export interface NodeOptions {
  cluster?: string;
  provider?: string;
  weights?: Partial<WeightsOptions>;
  config?: Partial<WeightsOptions['config']>;
  directory?: string;
}

/**
 * How a node reaches another one, which listens on `port`: a test inserts its faults here. Throws if the other node is
 * unreachable.
 */
export type Line = (from: Node, to: Node, port: number) => number | Promise<number>;

const SESSION_BYTES = 26;

export class Node {
  readonly name: PeerName;
  readonly weights: WeightsService;
  readonly directory: string;
  /** Bytes that this node read from the source. */
  read = 0;
  lists = 0;
  readonly log: string[] = [];
  readonly #server: Server;

  constructor(cluster: Cluster, name: PeerName, directory: string, { weights = {}, config = {} }: NodeOptions) {
    this.name = name;
    this.directory = directory;
    this.#server = createServer((socket) => neverRejects(cluster.accept(this, socket)));
    this.weights = new WeightsService({
      config: { directory, limitBytes: 2 ** 40, uploads: 2, rate: undefined, clusters: [], ...config },
      peers: cluster.peersOf(this),
      env: {},
      log: (line) => this.log.push(line),
      pieceBytes: PIECE,
      limits: LIMITS,
      settleMs: 1_000,
      openSource: (source, env) => this.#counted(openSource(source, env)),
      ...weights,
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async open(): Promise<void> {
    await this.weights.open();
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  /** Ends like a killed process. */
  async close(): Promise<void> {
    this.#server.close();
    await this.weights.close();
  }

  #counted(source: ReturnType<typeof openSource>): ReturnType<typeof openSource> {
    const count = (bytes: number) => {
      this.read += bytes;
    };
    return {
      list: (signal) => {
        this.lists++;
        return source.list(signal);
      },
      async *read(...args) {
        for await (const chunk of source.read(...args)) {
          count(chunk.length);
          yield chunk;
        }
      },
    };
  }
}

export class Cluster {
  readonly nodes: Node[] = [];
  line: Line = (_from, _to, port) => port;
  #changedAt = 0;

  peersOf(node: Node): Peers {
    return {
      self: () => node.name,
      others: () => this.nodes.filter((one) => one !== node).map(({ name }) => name),
      changedAt: () => this.#changedAt,
      connect: async (session) => {
        const to = this.nodes.find(({ name }) => name.session === session);
        if (to === undefined) throw new Error(`${session} is gone`);
        const socket = connect(await this.line(node, to, to.port), '127.0.0.1');
        await once(socket, 'connect');
        socket.setNoDelay(true);
        // Instead of the mesh's handshake.
        socket.write(node.name.session);
        return socket;
      },
    };
  }

  async accept(node: Node, socket: Socket): Promise<void> {
    socket.on('error', () => {});
    await once(socket, 'readable');
    const session = String(socket.read(SESSION_BYTES));
    const from = this.nodes.find(({ name }) => name.session === session);
    if (from === undefined) return void socket.destroy();
    node.weights.serve(socket, from.name, () => this.nodes.includes(from));
  }

  async add(options: NodeOptions = {}): Promise<Node> {
    const session = sessionIdFromDigest(randomBytes(32));
    const { cluster = 'alps', provider = 'lab' } = options;
    const directory = options.directory ?? (await temporaryDirectory('otela-weights'));
    const node = new Node(this, { session, cluster, provider }, directory, options);
    atEnd(() => node.close());
    await node.open();
    this.nodes.push(node);
    this.#changedAt = performance.now();
    return node;
  }

  async of(count: number, options: NodeOptions = {}): Promise<Node[]> {
    for (let i = 0; i < count; i++) await this.add(options);
    return this.nodes.slice(-count);
  }

  remove(node: Node): void {
    this.nodes.splice(this.nodes.indexOf(node), 1);
    this.#changedAt = performance.now();
  }
}

/** A proxy in front of `port` that passes each returned chunk to `pass`, with the dialer's socket. */
export async function way(
  port: number,
  pass: (chunk: Buffer, to: Socket, seen: number) => Promise<void>,
): Promise<number> {
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    near.pipe(far);
    let seen = 0;
    let turn = Promise.resolve();
    far.on('data', (chunk: Buffer) => {
      const before = seen;
      seen += chunk.length;
      far.pause();
      turn = turn.then(() => pass(chunk, near, before)).then(() => void far.resume());
    });
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** A connection without a client: the test writes its bytes. */
export async function dialled(to: Node, from: Node): Promise<Socket> {
  const socket = connect(to.port, '127.0.0.1').on('error', () => {});
  atEnd(() => void socket.destroy());
  socket.write(from.name.session);
  return socket;
}

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/**
 * Like `hubFolder`, with one file of `mib` MiB of random bytes, which is more than a buffer holds. Also returns its
 * digest.
 */
export async function largeHubFolder(path: string, mib: number): Promise<{ root: string; digest: string }> {
  const root = await hubFolder({});
  const written = join(root, 'written');
  const hash = createHash('sha256');
  async function* random() {
    for (let at = 0; at < mib; at++) {
      const bytes = randomBytes(2 ** 20);
      hash.update(bytes);
      yield bytes;
    }
  }
  await pipeline(random, createWriteStream(written));
  const digest = hash.digest('hex');
  const name = join(root, 'snapshots', COMMIT, path);
  await mkdir(join(root, 'blobs'), { recursive: true });
  await mkdir(dirname(name), { recursive: true });
  await rename(written, join(root, 'blobs', digest));
  await symlink(join(root, 'blobs', digest), name);
  return { root, digest };
}

const COMMIT = 'c'.repeat(40);

/** A folder of a Hugging Face cache with one snapshot, as `huggingface-cli download` leaves it. */
export async function hubFolder(files: Record<string, Uint8Array>): Promise<string> {
  const root = await temporaryDirectory('otela-source');
  for (const [path, bytes] of Object.entries(files)) {
    const blob = join(root, 'blobs', sha256(bytes));
    const name = join(root, 'snapshots', COMMIT, path);
    await mkdir(dirname(blob), { recursive: true });
    await mkdir(dirname(name), { recursive: true });
    await writeFile(blob, bytes);
    await symlink(blob, name);
  }
  await mkdir(join(root, 'refs'), { recursive: true });
  await writeFile(join(root, 'refs', 'main'), COMMIT);
  return root;
}

/** A plain directory; its files have no known digest. */
export async function plainFolder(files: Record<string, Uint8Array>): Promise<string> {
  const root = await temporaryDirectory('otela-source');
  for (const [path, bytes] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), bytes);
  }
  return root;
}
