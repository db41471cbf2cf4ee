/**
 * `npm run bench:switch [-- --engine llama.cpp|stand-in] [--drain S] [--tokens N] [--mib N] [--json FILE]`: replaces the
 * replica on one of two nodes while streams run, in the ways that agents have. Prints for each way the seconds of the
 * switch, those in which the node has no engine, the tokens that streams lost, and the bytes of weights that were read
 * from the shared folder. Without `--engine`: llama.cpp if `npm run test:engines` installed it, otherwise the stand-in,
 * which only reads a file of `--mib`. Exit code 1: a token is lost, or nodes that copy read the folder more than once.
 */
import { existsSync, readFileSync } from 'node:fs';
import { chmod, copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { table } from '../scheduler/validate/text-table.ts';
import { llamaCpp, makeGguf } from '../test/real/engines/llama-cpp.ts';
import { ENGINE_MAIN, startAgent } from '../test/support/agent.ts';
import { Gateway } from '../test/support/gateway.ts';
import { descendants } from '../test/support/process-table.ts';
import { atEnd, endAll, eventually, type Managed, temporaryDirectory } from '../test/support/processes.ts';
import { hear } from '../test/support/streams.ts';
import { NODE } from '../test/support/where.ts';

const { values } = parseArgs({
  options: {
    engine: { type: 'string' },
    drain: { type: 'string', default: '2' },
    tokens: { type: 'string', default: '200' },
    mib: { type: 'string', default: '256' },
    json: { type: 'string' },
  },
});
const DRAIN_MS = Number(values.drain) * 1_000;
const TOKENS = Number(values.tokens);
/** Streams at a time: two for each slot of two engines. */
const STREAMS = 4;
const SERVES_WITHIN_MS = 120_000;
const MODEL = 'tiny';

/** A way to replace a replica. `memory`: the copies are in memory, otherwise on disk. */
interface Way {
  name: string;
  copies: boolean;
  memory?: boolean;
}
const WAYS: readonly Way[] = [
  { name: 'drain and start, weights in the shared folder', copies: false },
  { name: 'weights copied to the disk of each node', copies: true },
  { name: 'weights copied to /dev/shm of each node', copies: true, memory: true },
];
/** Ways that no engine has that runs here without a GPU. */
const NOT_HERE = [
  ['sleep and wake', 'llama.cpp has no sleep mode by call'],
  ['keys and values to the next engine', 'no engine on a CPU here has a connector for them'],
] as const;

interface BenchEngine {
  name: string;
  file(folder: string): Promise<void>;
  /** `model`: the folder with the file. */
  argv(model: string): string[];
  /** Fields of a request for exactly `TOKENS` tokens, one an event. */
  fields: Record<string, unknown>;
  /** Bytes that the engine of this agent read from the folder. */
  read(agent: Managed, folder: string): number;
}

const FILE = 'model.gguf';

/** llama.cpp with a tiny model of random weights. It reads its file instead of mapping it, so that bytes are counted. */
async function llama(): Promise<BenchEngine> {
  await llamaCpp.install();
  const { argv } = await llamaCpp.command(0);
  const [program = ''] = argv;
  return {
    name: `llama.cpp ${llamaCpp.version}`,
    file: async (folder) => copyFile(await makeGguf(), join(folder, FILE)),
    argv: (model) => [
      ...[program, '-m', join(model, FILE), '--alias', MODEL, '--host', '127.0.0.1', '--port', '{{port}}'],
      ...['--ctx-size', '8192', '--parallel', '2', '--threads', '1', '--metrics', '--no-mmap'],
    ],
    // Random weights also write halves of characters, which an event cannot have.
    fields: { ...llamaCpp.long, temperature: 0, grammar: 'root ::= [a-z ]+' },
    read: (agent) => descendants(agent.pid).reduce((sum, pid) => sum + readBytes(pid), 0),
  };
}

const standIn = (): BenchEngine => ({
  name: 'stand-in',
  file: (folder) => writeFile(join(folder, FILE), Buffer.alloc(Number(values.mib) * 1024 * 1024)),
  argv: (model) => [
    ...['sh', '-c', 'echo "engine read $(wc -c <"$0") bytes of $0" && exec "$@"', join(model, FILE)],
    ...[NODE, ENGINE_MAIN, '--port', '{{port}}', '--model', MODEL, '--rate', '50', '--tokens', String(TOKENS)],
  ],
  fields: {},
  read: (agent, folder) =>
    [...agent.output.matchAll(/engine read (\d+) bytes of (.*)/g)].reduce(
      (sum, [, bytes, path]) => (path?.startsWith(folder) === true ? sum + Number(bytes) : sum),
      0,
    ),
});

function readBytes(pid: number): number {
  try {
    return Number(/^rchar: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0; // ended meanwhile
  }
}

interface Result {
  way: string;
  switchS: number;
  darkS: number;
  streams: number;
  continued: number;
  lostTokens: number;
  /** Bytes that were read from the shared folder for the switch, and for it and the start of both nodes. */
  switchBytes: number;
  allBytes: number;
  fileBytes: number;
}

async function measure(engine: BenchEngine, way: Way): Promise<Result> {
  const folder = way.memory === true ? await memoryDirectory() : await temporaryDirectory('otela-switch');
  const shared = join(await temporaryDirectory('otela-shared'), 'model');
  const templates = join(folder, 'templates');
  await mkdir(shared);
  await mkdir(templates, { mode: 0o755 });
  await engine.file(shared);
  const fileBytes = readFileSync(join(shared, FILE)).length;
  const weights = way.copies ? { weights: `dir:${shared}` } : {};
  const argv = engine.argv(way.copies ? '{{weights}}' : shared);
  await writeFile(join(templates, 'replica.json'), JSON.stringify({ argv, ...weights, parameters: {} }));
  await chmod(join(templates, 'replica.json'), 0o644);

  const gateway = await Gateway.start();
  const [token, key] = [await gateway.createJoinToken(), await gateway.createKey()];
  const agents = await Promise.all(
    ['a', 'b'].map((place) => {
      const args = ['--accept-deployments', templates, '--label', `place=${place}`];
      if (way.copies) args.push('--weights-dir', join(folder, place));
      return startAgent({ gateways: [gateway.url], token, args });
    }),
  );
  const nodeAt = async (place: string) =>
    (await gateway.nodes()).find(({ state, labels }) => state !== 'LEFT' && labels?.place === place);
  const idle = (place: string) =>
    polled(`${place} is idle`, async () => {
      const node = await nodeAt(place);
      return node?.labels?.['otela.accepts'] === undefined ? undefined : node;
    });
  const serves = (place: string) =>
    polled(`${place} serves`, async () => {
      const node = await nodeAt(place);
      return node?.state === 'SERVING' ? node : undefined;
    });
  const start = async (place: string, id: string) =>
    gateway.admin('PUT', `nodes/${(await idle(place)).session}/deployment`, {
      id,
      template: 'replica',
      parameters: {},
    });
  const bytesRead = () =>
    agents.reduce((sum, agent) => {
      const copied = [...agent.output.matchAll(/(\d+) bytes from the source/g)];
      const own = copied.reduce((all, [, bytes]) => all + Number(bytes), 0);
      return sum + (way.copies ? own : engine.read(agent, shared));
    }, 0);

  await start('a', 'first-a');
  const first = await serves('a');
  await start('b', 'first-b');
  await serves('b');
  const before = bytesRead();

  const stop = new AbortController();
  const asked = { url: gateway.url, key, fields: engine.fields };
  const begun = Array.from({ length: STREAMS }, () => Promise.withResolvers<void>());
  const streams = Promise.all(begun.map(({ resolve }) => streamsUntil(stop.signal, asked, resolve)));
  await Promise.race([streams, Promise.all(begun.map(({ promise }) => promise))]);
  const from = performance.now();
  await gateway.admin('DELETE', `nodes/${first.session}/deployment?drain_ms=${DRAIN_MS}`);
  await idle('a');
  const darkFrom = performance.now();
  await start('a', 'second-a');
  await serves('a');
  const to = performance.now();
  // In a process that ended, nothing can be read afterwards: its first engine counts with the same bytes.
  const after = way.copies || engine.name === 'stand-in' ? bytesRead() : bytesRead() + before / 2;
  stop.abort();
  const heard = (await streams).flat();
  await endAll();
  return {
    way: way.name,
    switchS: (to - from) / 1e3,
    darkS: (to - darkFrom) / 1e3,
    streams: heard.length,
    continued: heard.filter(({ continued }) => continued).length,
    lostTokens: heard.reduce((sum, { lost }) => sum + lost, 0),
    switchBytes: after - before,
    allBytes: after,
    fileBytes,
  };
}

const polled = <T>(what: string, look: () => Promise<T | undefined>): Promise<T> =>
  eventually(what, SERVES_WITHIN_MS, look);

/** A folder in memory. */
async function memoryDirectory(): Promise<string> {
  const path = await mkdtemp('/dev/shm/otela-switch-');
  atEnd(() => rm(path, { recursive: true, force: true }));
  return path;
}

interface Asked {
  url: string;
  key: string;
  fields: Record<string, unknown>;
}

/** One stream after the other, until the signal; the last one is read to its end. `begun`: the first one has begun. */
async function streamsUntil(signal: AbortSignal, { url, key, fields }: Asked, begun: () => void) {
  const heard: { lost: number; continued: boolean }[] = [];
  while (!signal.aborted) {
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-otela-resume': '1' },
      body: JSON.stringify({
        ...fields,
        model: MODEL,
        stream: true,
        max_tokens: TOKENS,
        messages: [{ role: 'user', content: 'Say.' }],
      }),
    });
    begun();
    const { textChunks, comments, dones } = hear(await answer.text());
    const whole = answer.status === 200 && dones === 1;
    heard.push({
      lost: Math.max(0, TOKENS - textChunks, whole ? 0 : 1),
      continued: comments.some((one) => one.startsWith('otela continued')),
    });
  }
  return heard;
}

async function engineOf(name: string | undefined): Promise<BenchEngine> {
  if (name === undefined) {
    const { argv } = await llamaCpp.command(0).catch(() => ({ argv: [''] }));
    return existsSync(argv[0] ?? '') ? llama() : standIn();
  }
  if (name === 'llama.cpp') return llama();
  if (name === 'stand-in') return standIn();
  throw new Error('--engine: llama.cpp or stand-in');
}

const engine = await engineOf(values.engine);
const results: Result[] = [];
for (const way of WAYS) results.push(await measure(engine, way));
const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
console.log(
  table(
    [
      `switch of one of two nodes, ${engine.name}`,
      'switch s',
      'no engine s',
      'streams',
      'continued',
      'tokens lost',
      'MiB of the folder, switch',
      'all',
    ],
    results.map(({ way, switchS, darkS, streams, continued, lostTokens, switchBytes, allBytes }) => [
      way,
      switchS.toFixed(1),
      darkS.toFixed(1),
      streams,
      continued,
      lostTokens,
      mib(switchBytes),
      mib(allBytes),
    ]),
  ),
);
console.log(`The weights have ${mib(results[0]?.fileBytes ?? 0)} MiB.`);
for (const [way, why] of NOT_HERE) console.log(`not measured: ${way}: ${why}`);
if (values.json !== undefined)
  await writeFile(values.json, `${JSON.stringify({ engine: engine.name, results }, null, 2)}\n`);
const copied = results.filter((_, i) => WAYS[i]?.copies);
const kept = results.every(({ lostTokens }) => lostTokens === 0);
process.exit(kept && copied.every(({ allBytes, fileBytes }) => allBytes <= fileBytes) ? 0 : 1);
