/** A token's path through gateway and agent while that agent sends weights, compared with no transfer. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import * as z from 'zod';
import { engineCommand, startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { eventually, freePort, temporaryDirectory } from '../../test/support/processes.ts';
import { AGENT_MAIN, NODE } from '../../test/support/where.ts';
import { median, quantile } from '../stats.ts';

const MIB = 2 ** 20;
const PER_S = 50;
const SERVING_MS = 120_000;
/** Time in which a transfer begins, before a turn is measured beside it. */
const BEGINS_MS = 500;
const run = promisify(execFile);

export interface Plan {
  /** Size of the weights. */
  mib: number;
  rounds: number;
  /** Length of a turn. */
  seconds: number;
  /** The sender's --weights-rate. */
  rate?: string | undefined;
  /** Words before the command of the sender, which is then a process beside the agent with the engine. */
  apart?: string | undefined;
}

/** The event loop's delay and work, in ms. */
const figuresSchema = z.object({ p50: z.number(), p99: z.number(), max: z.number() });
const loopSchema = z.object({ delay: figuresSchema, work: figuresSchema });

type LoopFigures = z.infer<typeof loopSchema>;

interface Turn {
  /** Milliseconds between two tokens. */
  gaps: number[];
  loop: LoopFigures;
  /** Milliseconds per second in which the sender's main thread ran, and in which it waited for a processor. */
  ran: number;
  waited: number;
}

interface TurnFigures {
  tokens: number;
  p50_ms: number;
  p99_ms: number;
  loop_ms: { delay_p99: number; delay_max: number; work_p99: number; work_max: number };
  thread_ms_per_s: { ran: number; waited: number };
}

export interface SendingFigures {
  quiet: TurnFigures;
  sending: TurnFigures;
  mib_sent: number;
  mib_s: number;
}

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

async function writeWeights(mib: number): Promise<string> {
  const place = join(await temporaryDirectory('otela-source'), 'model');
  await mkdir(place);
  const file = createWriteStream(join(place, 'model.safetensors'));
  for (let at = 0; at < mib; at++) if (!file.write(randomBytes(MIB))) await once(file, 'drain');
  file.end();
  await once(file, 'close');
  return place;
}

async function agentOf(gateway: Gateway, token: string, args: string[], command?: string[], prefix: string[] = []) {
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

type Agent = Awaited<ReturnType<typeof agentOf>>;

interface SendingCluster {
  gateway: Gateway;
  key: string;
  model: string;
  place: string;
  sender: Agent;
  reader: Agent;
}

async function openSendingCluster({ mib, rate, apart }: Plan): Promise<SendingCluster> {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const place = await writeWeights(mib);
  const limit = rate === undefined ? [] : ['--weights-rate', rate];
  const engine = engineCommand(await freePort(), '--tokens', '1000000', '--rate', String(PER_S));
  const sender = await agentOf(gateway, token, limit, engine);
  // This process represents another machine, so it may use only the processor time that the others do not need.
  const reader = await agentOf(gateway, token, [], undefined, ['nice', '-n', '19']);
  const [node] = await gateway.serving(1, SERVING_MS);
  const beside = apart === undefined ? undefined : await agentOf(gateway, token, limit, undefined, apart.split(' '));
  if (beside !== undefined)
    await eventually('it has started', SERVING_MS, () => beside.weights('ls').catch(() => undefined));
  await (beside ?? sender).weights('pull', place, '--from', 'dir');
  await eventually('they know each other', SERVING_MS, async () =>
    (await reader.weights('ls', '--json')).includes('"held"') ? true : undefined,
  );
  return { gateway, key, model: node?.models[0]?.id ?? '', place, sender, reader };
}

/** Milliseconds between two tokens of one stream. */
async function gapsOf({ gateway, key, model }: SendingCluster, seconds: number): Promise<number[]> {
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

async function turn(cluster: SendingCluster, seconds: number): Promise<Turn> {
  const { sender } = cluster;
  const before = threadTimes(sender.pid);
  await loopOf(sender.socket);
  const begun = performance.now();
  const gaps = await gapsOf(cluster, seconds);
  const took = (performance.now() - begun) / 1000;
  const after = threadTimes(sender.pid);
  return {
    gaps,
    loop: await loopOf(sender.socket),
    ran: (after.ran - before.ran) / took,
    waited: (after.waited - before.waited) / took,
  };
}

/** A turn while the reader pulls the weights again and again. Also returns the pulls and their seconds. */
async function turnWhileSending(cluster: SendingCluster, seconds: number) {
  const { reader, place } = cluster;
  let sends = true;
  const pulling = (async () => {
    let [pulls, pullS] = [0, 0];
    while (sends) {
      const begun = performance.now();
      await reader.weights('pull', place, '--from', 'dir');
      pullS += (performance.now() - begun) / 1000;
      pulls++;
      await reader.weights('gc', place, '--from', 'dir');
    }
    return { pulls, pullS };
  })();
  await delay(BEGINS_MS);
  const measured = await turn(cluster, seconds).finally(() => {
    sends = false;
  });
  return { measured, ...(await pulling) };
}

function figuresOf(turns: readonly Turn[]): TurnFigures {
  const list = turns.flatMap(({ gaps }) => gaps);
  const ms = (value: number) => Number(value.toFixed(2));
  const mid = (figure: (turn: Turn) => number) => ms(median(turns.map(figure)));
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
}

/** Turns without and with a transfer alternate. The caller ends the processes with `endAll`. */
export async function tokensWhileSending(plan: Plan): Promise<SendingFigures> {
  const cluster = await openSendingCluster(plan);
  const [quiet, sending]: [Turn[], Turn[]] = [[], []];
  let [pulls, pullS] = [0, 0];
  for (let round = 0; round < plan.rounds; round++) {
    quiet.push(await turn(cluster, plan.seconds));
    const sent = await turnWhileSending(cluster, plan.seconds);
    sending.push(sent.measured);
    pulls += sent.pulls;
    pullS += sent.pullS;
  }
  const mib = pulls * plan.mib;
  return { quiet: figuresOf(quiet), sending: figuresOf(sending), mib_sent: mib, mib_s: Math.round(mib / pullS) };
}
