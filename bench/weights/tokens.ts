/**
 * A token's path through gateway and agent while that agent sends weights to a neighbor as fast as it can, compared
 * with no transfer. Real processes: gateway, an agent with a mock engine in a separate process, a second agent that
 * pulls `--mib 512` repeatedly. Alternating, `--rounds 3` of `--seconds 8` each. Prints the time between two tokens of
 * one stream, whose engine writes 50 a second. `--rate`: the sender's --weights-rate. `--apart 'nice -n 19'`: the
 * sender is a separate process, started with that. All share this machine's processors, which on a small one are the
 * limit.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import * as z from 'zod';
import { engineCommand, startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { endAll, eventually, freePort, temporaryDirectory } from '../../test/support/processes.ts';
import { AGENT_MAIN, NODE } from '../../test/support/where.ts';
import { median, quantile } from '../stats.ts';

const { values } = parseArgs({
  options: {
    mib: { type: 'string', default: '512' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '8' },
    rate: { type: 'string' },
    apart: { type: 'string' },
  },
});
const MIB = 2 ** 20;
const PER_S = 50;
const SERVING_MS = 120_000;
const run = promisify(execFile);

const gateway = await Gateway.start();
const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
const place = join(await temporaryDirectory('otela-source'), 'model');
await mkdir(place);
const file = createWriteStream(join(place, 'model.safetensors'));
for (let at = 0; at < Number(values.mib); at++) if (!file.write(randomBytes(MIB))) await once(file, 'drain');
file.end();
await once(file, 'close');

async function agent(args: string[], command?: string[], prefix: string[] = []) {
  const state = await temporaryDirectory('otela-state');
  const env = { XDG_RUNTIME_DIR: state };
  const directory = await temporaryDirectory('otela-weights');
  const socket = join(state, 'loop');
  const { pid } = await startAgent({
    gateways: [gateway.url],
    token,
    args: ['--weights-dir', directory, ...args],
    prefix,
    env: {
      ...env,
      OTELA_MESH: '127.0.0.1',
      OTELA_LOOP_PROBE: socket,
      NODE_OPTIONS: `--import=${join(import.meta.dirname, 'loop-probe.ts')}`,
    },
    ...(command === undefined ? {} : { command }),
  });
  const weights = async (...words: string[]) =>
    (await run(NODE, [AGENT_MAIN, 'weights', ...words], { env: { ...process.env, ...env } })).stdout;
  return { pid, socket, weights };
}

const figuresSchema = z.object({ p50: z.number(), p99: z.number(), max: z.number() });
const loopSchema = z.object({ delay: figuresSchema, work: figuresSchema });

/** What the event loop did since the previous call, in ms; see loop-probe.ts. */
async function loopOf(path: string) {
  let text = '';
  for await (const part of connect(path)) text += part;
  return loopSchema.parse(JSON.parse(text));
}

/** How long the agent's main thread has run, and waited for a processor, in ms. */
function threadTimes(pid: number) {
  const [ran = 0, waited = 0] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ').map(Number);
  return { ran: ran / 1e6, waited: waited / 1e6 };
}

const port = await freePort();
const limit = values.rate === undefined ? [] : ['--weights-rate', values.rate];
const sender = await agent(limit, engineCommand(port, '--tokens', '1000000', '--rate', String(PER_S)));
// This process represents another machine, so it may use only the processor time that the others do not need.
const reader = await agent([], undefined, ['nice', '-n', '19']);
const [node] = await gateway.serving(1, SERVING_MS);
const model = node?.models[0]?.id ?? '';
const apart = values.apart === undefined ? undefined : await agent(limit, undefined, values.apart.split(' '));
if (apart !== undefined)
  await eventually('it has started', SERVING_MS, () => apart.weights('ls').catch(() => undefined));
await (apart ?? sender).weights('pull', place, '--from', 'dir');
await eventually('they know each other', SERVING_MS, async () =>
  (await reader.weights('ls', '--json')).includes('"held"') ? true : undefined,
);

/** Milliseconds between two tokens of one stream. */
async function gaps(seconds: number): Promise<number[]> {
  const stop = AbortSignal.timeout(seconds * 1000 + 1000);
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    signal: stop,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'go on' }] }),
  });
  const found: number[] = [];
  const begun = performance.now();
  let last: number | undefined;
  try {
    for await (const _chunk of response.body ?? []) {
      const now = performance.now();
      if (last !== undefined) found.push(now - last);
      last = now;
      if (now - begun > seconds * 1000) break;
    }
  } catch (error) {
    if (!stop.aborted) throw error;
  }
  return found;
}

type Way = 'quiet' | 'sending';
const rows = { quiet: [] as Turn[], sending: [] as Turn[] };
interface Turn {
  gaps: number[];
  loop: z.infer<typeof loopSchema>;
  /** Milliseconds per second in which the sender's main thread ran, and in which it waited for a processor. */
  ran: number;
  waited: number;
}
async function turn(way: Way): Promise<void> {
  const before = threadTimes(sender.pid);
  await loopOf(sender.socket);
  const begun = performance.now();
  const found = await gaps(Number(values.seconds));
  const seconds = (performance.now() - begun) / 1000;
  const after = threadTimes(sender.pid);
  rows[way].push({
    gaps: found,
    loop: await loopOf(sender.socket),
    ran: (after.ran - before.ran) / seconds,
    waited: (after.waited - before.waited) / seconds,
  });
}
let sent = 0;
let sendS = 0;
for (let round = 0; round < Number(values.rounds); round++) {
  await turn('quiet');
  let sends = true;
  const pulling = (async () => {
    while (sends) {
      const begun = performance.now();
      await reader.weights('pull', place, '--from', 'dir');
      sendS += (performance.now() - begun) / 1000;
      sent += Number(values.mib);
      await reader.weights('gc', place, '--from', 'dir');
    }
  })();
  await delay(500);
  await turn('sending');
  sends = false;
  await pulling;
}
const told = (way: Way) => {
  const list = rows[way].flatMap(({ gaps }) => gaps);
  const ms = (value: number) => Number(value.toFixed(2));
  const mid = (figure: (turn: Turn) => number) => ms(median(rows[way].map(figure)));
  return {
    tokens: list.length,
    p50_ms: ms(quantile(list, 0.5)),
    p99_ms: ms(quantile(list, 0.99)),
    loop_ms: {
      delay_p99: mid(({ loop }) => loop.delay.p99),
      delay_max: mid(({ loop }) => loop.delay.max),
      work_p99: mid(({ loop }) => loop.work.p99),
      work_max: mid(({ loop }) => loop.work.max),
    },
    thread_ms_per_s: { ran: mid(({ ran }) => ran), waited: mid(({ waited }) => waited) },
  };
};
console.log(
  JSON.stringify({
    quiet: told('quiet'),
    sending: told('sending'),
    mib_sent: sent,
    mib_s: Math.round(sent / sendS),
    rate: values.rate,
  }),
);
await endAll();
process.exit(0);
