/**
 * A token's way through gateway and agent while that agent sends weights to a neighbour as fast as it can, against the same without. Real
 * processes: gateway, an agent with a stand-in engine in a process of its own, a second agent that pulls `--mib 512` again and again. By turns,
 * `--rounds 3` of `--seconds 8` each. Told is the time between two tokens of one stream, whose engine writes 50 a second. `--rate`: the sender's
 * --weights-rate. All share this machine's processors: on a small one they are what is short.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { AGENT_MAIN, engineCommand, startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { endAll, eventually, freePort, temporaryDirectory } from '../../test/support/processes.ts';
import { NODE } from '../../test/support/where.ts';

const { values } = parseArgs({
  options: {
    mib: { type: 'string', default: '512' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '8' },
    rate: { type: 'string' },
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

async function agent(args: string[], command?: string[]) {
  const state = await temporaryDirectory('otela-state');
  const env = { XDG_RUNTIME_DIR: state };
  const directory = await temporaryDirectory('otela-weights');
  await startAgent({
    gateways: [gateway.url],
    token,
    args: ['--weights-dir', directory, ...args],
    env,
    ...(command === undefined ? {} : { command }),
  });
  return async (...words: string[]) =>
    (await run(NODE, [AGENT_MAIN, 'weights', ...words], { env: { ...process.env, ...env } })).stdout;
}

const port = await freePort();
const limit = values.rate === undefined ? [] : ['--weights-rate', values.rate];
const sender = await agent(limit, engineCommand(port, '--tokens', '1000000', '--rate', String(PER_S)));
const reader = await agent([]);
const [node] = await gateway.serving(1, SERVING_MS);
const model = node?.models[0]?.id ?? '';
await sender('pull', place, '--from', 'dir');
await eventually('they know each other', SERVING_MS, async () =>
  (await reader('ls', '--json')).includes('"held"') ? true : undefined,
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

const rows = { quiet: [] as number[], sending: [] as number[] };
let sent = 0;
for (let round = 0; round < Number(values.rounds); round++) {
  rows.quiet.push(...(await gaps(Number(values.seconds))));
  let sends = true;
  const pulling = (async () => {
    while (sends) {
      await reader('pull', place, '--from', 'dir');
      sent += Number(values.mib);
      await reader('gc', place, '--from', 'dir');
    }
  })();
  await delay(500);
  rows.sending.push(...(await gaps(Number(values.seconds))));
  sends = false;
  await pulling;
}
const at = (list: number[], part: number) =>
  Number((list.toSorted((a, b) => a - b)[Math.floor(list.length * part)] ?? 0).toFixed(1));
const told = (list: number[]) => ({ tokens: list.length, p50_ms: at(list, 0.5), p99_ms: at(list, 0.99) });
console.log(
  JSON.stringify({ quiet: told(rows.quiet), sending: told(rows.sending), mib_sent: sent, rate: values.rate }),
);
await endAll();
process.exit(0);
