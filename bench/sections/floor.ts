/**
 * What the runtime alone costs on this machine, by the same client at the same rates: a Worker that reads a request and answers, and one
 * that sends it through an object and a WebSocket to another process and back, by a call of the runtime's from Worker to object.
 */
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import * as z from 'zod';
import { freePort, Managed, temporaryDirectory } from '../../test/support/processes.ts';
import { NODE, ROOT } from '../../test/support/where.ts';
import { Client, type Target } from '../client.ts';
import { request as ask, chat, type House } from '../house.ts';
import type { Row } from '../report.ts';
import { median, repeated } from '../stats.ts';
import { interleaved, type Plan as LatencyPlan, Pool, type Side } from './latency.ts';
import { wrk } from './throughput.ts';

const CONNECTIONS = 64;

export interface Plan {
  latency: LatencyPlan;
  seconds: number;
}

const SHAPES = [
  { path: '/worker', what: 'a bare Worker' },
  { path: '/object', what: 'a bare Worker, object and socket' },
];

function config(directory: string, port: number): string {
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "bare", worker = .bare), (name = "disk", disk = (path = "${directory}/disk", writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "bare")]
);
const bare :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-11-02",
  durableObjectNamespaces = [(className = "Bare", uniqueKey = "bare", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "BARE", durableObjectNamespace = "Bare")]
);
`;
}

async function start(): Promise<string> {
  const directory = await temporaryDirectory('otela-floor');
  const port = await freePort();
  await mkdir(join(directory, 'disk'));
  await copyFile(join(ROOT, 'bench/floor/worker.js'), join(directory, 'worker.js'));
  await writeFile(join(directory, 'config.capnp'), config(directory, port));
  const { default: binary } = z.object({ default: z.string() }).parse(createRequire(import.meta.url)('workerd'));
  const workerd = new Managed([binary, 'serve', join(directory, 'config.capnp')], { label: 'bare workerd' });
  for (const deadline = performance.now() + 10_000; !(await answers(port)); ) {
    if (performance.now() > deadline) throw new Error(`bare workerd does not answer: ${workerd.tail}`);
  }
  const echo = new Managed([NODE, join(ROOT, 'bench/floor/echo.ts'), `ws://127.0.0.1:${port}/socket`], {
    label: 'echo',
  });
  await echo.line(/bare echo ready/, 10_000);
  return `http://127.0.0.1:${port}`;
}

async function answers(port: number): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/worker`, { method: 'POST', body: 'x' })).ok;
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 50));
    return false;
  }
}

/** As `post`, without what only the gateway reads. */
function request(target: Target, path: string): Buffer {
  const text = JSON.stringify(chat('unary'));
  const head = `POST ${path} HTTP/1.1\r\nhost: ${new URL(target.url).host}\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n`;
  return Buffer.from(head + text);
}

async function warmUp(target: Target): Promise<void> {
  const client = new Client(target);
  for (let n = 0; n < 2_000; n++) await client.ask(request(target, SHAPES[n % 2]?.path ?? ''));
  client.close();
}

export async function floor(house: House, plan: Plan): Promise<Row[]> {
  const bare: Target = { url: await start() };
  await warmUp(bare);
  const rows: Row[] = [];
  for (const perSecond of [1, 4, 16]) rows.push(...(await added(house, bare, perSecond, plan.latency)));
  for (const { path, what } of SHAPES) {
    const { perSecond } = await wrk(bare, CONNECTIONS, plan.seconds, path);
    rows.push({ what: `${what}: requests per second`, at: `${CONNECTIONS} connections`, value: perSecond, unit: '/s' });
  }
  return rows;
}

async function added(house: House, bare: Target, perSecond: number, plan: LatencyPlan): Promise<Row[]> {
  const direct = new Pool(house.direct);
  const pool = new Pool(bare);
  const more = SHAPES.map(() => [] as number[]);
  for (let n = 0; n < plan.repeats; n++) {
    const sides: Side[] = [
      { pool: direct, bytes: ask(house.direct, 'unary'), times: [], failed: 0 },
      ...SHAPES.map(({ path }) => ({ pool, bytes: request(bare, path), times: [], failed: 0 })),
    ];
    await interleaved(sides, perSecond, plan.requests(perSecond), plan.seed + n * 10, false);
    const base = median(sides[0]?.times ?? []);
    more.forEach((values, index) => {
      values.push(median(sides[index + 1]?.times ?? []) - base);
    });
  }
  direct.close();
  pool.close();
  return SHAPES.map(({ what }, index) => {
    const { median: value, least, most } = repeated(more[index] ?? []);
    return {
      what: `${what}: added to the median`,
      at: `${perSecond} requests/s`,
      value,
      unit: 'ms',
      spread: [least, most],
    };
  });
}
