/**
 * `npm run bench:weights` (swarm): a cold model over slow links. N agents in one process, with the agent's own code,
 * pull one blob over simulated links: each agent's link carries this many bytes a second in each direction, including
 * what it reads from the source. The mesh's handshake is omitted. `--nodes 64 --mib 32 --rate 2000000 --piece 512
 * --uploads 2`. On a busy machine the links must be slower than its processors: `--mib 4 --rate 250000 --piece 64` has
 * the same proportions. Exit code 1: missed.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { openSource } from '../../agent/weights/sources/open-source.ts';
import { PULL_LIMITS } from '../../agent/weights/weights-config.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { Cluster, largeHubFolder, type Node } from '../../test/agent/weights/cluster.ts';
import { endAll } from '../../test/support/processes.ts';

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '64' },
    mib: { type: 'string', default: '32' },
    /** Bytes a second. */
    rate: { type: 'string', default: '2000000' },
    uploads: { type: 'string', default: '2' },
    /** KiB. */
    piece: { type: 'string', default: '512' },
    log: { type: 'boolean', default: false },
  },
});
const [nodes, bytes, rate, uploads] = [
  Number(values.nodes),
  Number(values.mib) * 2 ** 20,
  Number(values.rate),
  Number(values.uploads),
];
const PIECE_BYTES = Number(values.piece) * 1024;

/** One direction of a link: bytes leave in order, at its rate. */
class Direction {
  #freeAt = 0;
  async pass(count: number): Promise<void> {
    const now = performance.now();
    this.#freeAt = Math.max(this.#freeAt, now) + (count / rate) * 1000;
    if (this.#freeAt - now > 5) await delay(this.#freeAt - now);
  }
}

const links = new Map<Node, { up: Direction; down: Direction }>();
function linkOf(node: Node) {
  const known = links.get(node) ?? { up: new Direction(), down: new Direction() };
  links.set(node, known);
  return known;
}

/** Capacity of a link's queue, so that its sender need not be awake at the moment it is free. */
const QUEUE_BYTES = 256 * 1024;

/** Transfers bytes from `from` to `to`, limited by the links of both. */
function carry(from: Node, to: Node, source: Socket, target: Socket): void {
  let queued = 0;
  let turn = Promise.resolve();
  source.on('data', (chunk: Buffer) => {
    queued += chunk.length;
    if (queued >= QUEUE_BYTES) source.pause();
    const passed = Promise.all([linkOf(from).up.pass(chunk.length), linkOf(to).down.pass(chunk.length)]);
    turn = turn.then(async () => {
      await passed;
      if (!target.destroyed) target.write(chunk);
      queued -= chunk.length;
      if (queued < QUEUE_BYTES) source.resume();
    });
  });
  source.on('error', () => target.destroy());
  source.on('close', () => neverRejects(turn.then(() => target.end())));
}

const cluster = new Cluster();
cluster.line = async (from, to, port) => {
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    carry(from, to, near, far);
    carry(to, from, far, near);
    server.close();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
};

let read = 0;
for (let i = 0; i < nodes; i++) {
  const node: Node = await cluster.add({
    config: { uploads },
    weights: {
      pieceBytes: PIECE_BYTES,
      limits: { ...PULL_LIMITS, slowBytesPerS: 1 },
      openSource: (source, env) => {
        const real = openSource(source, env);
        return {
          list: (signal) => real.list(signal),
          async *read(...args) {
            for await (const chunk of real.read(...args))
              for (let at = 0; at < chunk.length; at += 65_536) {
                const part = chunk.subarray(at, at + 65_536);
                await linkOf(node).down.pass(part.length);
                read += part.length;
                yield part;
              }
          },
        };
      },
    },
  });
}
const source = `dir:${(await largeHubFolder('model.safetensors', Number(values.mib))).root}`;
await delay(1_500);
const begun = performance.now();
const cpu = process.cpuUsage();
await Promise.all(cluster.nodes.map((node) => node.weights.pull(source)));
const seconds = (performance.now() - begun) / 1000;
const { user, system } = process.cpuUsage(cpu);
const one = bytes / rate;
const report = {
  nodes,
  mib: bytes / 2 ** 20,
  seconds: Number(seconds.toFixed(1)),
  transfers: Number((seconds / one).toFixed(2)),
  reads: Number((read / bytes).toFixed(2)),
  peak_uploads: Math.max(...cluster.nodes.map(({ weights }) => weights.uploads.peak)),
  cpu_s: Number(((user + system) / 1e6).toFixed(1)),
};
console.log(JSON.stringify(report));
if (values.log) console.log(cluster.nodes.flatMap((n) => n.log).slice(0, 20));
await endAll();
process.exit(report.transfers <= 4 && report.reads === 1 && report.peak_uploads <= uploads ? 0 : 1);
