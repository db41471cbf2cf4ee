/**
 * `npm run --prefix research paper:elastic [-- --seconds N] [--seed N] [--json FILE] [--pictures DIR]`: tokens per
 * second over replicas, from 8 to 64 and back by random kills, as in the paper's Figure 4. The agents and the gateway
 * are real; the engines are mocks with a fixed rate. PER_PROCESS replicas share a process, which is killed without
 * notice like a lost machine. Exit code 1 if a stream fails, or if tokens do not grow with the replicas (scaling.ts).
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { cpus, loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import { text } from '../../../test/support/engine/words.ts';
import { Gateway } from '../../../test/support/gateway.ts';
import { endAll, Managed, temporaryDirectory } from '../../../test/support/processes.ts';
import { seeded } from '../../../test/support/random.ts';
import { NODE, ROOT } from '../../../test/support/where.ts';
import { scalingOf } from './scaling.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '15' },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
    pictures: { type: 'string', default: 'docs/pictures' },
  },
});

const MODEL = 'stand-in/elastic';
const PER_PROCESS = 4;
/**
 * Adds replicas by starting processes and removes them by killing processes; at the top the same number is killed at
 * random and started again.
 */
const STEPS = [8, 16, 32, 48, 64, 64, 48, 32, 16, 8];
const SLOTS = 2;
/** Rate of one stream, low enough that the clients and the gateway on the same cores are not the limit. */
const TOKENS_PER_S = 5;
const TOKENS = 40;
/** Per slot, so that a request always waits. */
const CLIENTS_PER_SLOT = 1.5;
/** Timeout for the start of agents on a machine with many of them. */
const STARTED_MS = 300_000;

interface Step {
  replicas: number;
  tokensPerS: number;
  kills: number;
}

const random = seeded(Number(values.seed));
let tokens = 0;
const errors: string[] = [];
let whole = 0;

/** Runs one resumable stream to its end. Counts the words as they arrive. */
async function stream(gateway: Gateway, key: string): Promise<void> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-otela-resume': '1' };
  const message = { role: 'user', content: `${random()}` };
  const body = JSON.stringify({ model: MODEL, stream: true, messages: [message] });
  const answer = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body });
  if (answer.status !== 200 || answer.body === null) throw new Error(`${answer.status} ${await answer.text()}`);
  let [rest, words, done] = ['', '', false];
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('data: {"error"')) throw new Error(line);
      done ||= line === 'data: [DONE]';
      const said = /"content":("(?:[^"\\]|\\.)*")/.exec(line)?.[1];
      const word: unknown = said === undefined ? '' : JSON.parse(said);
      if (typeof word !== 'string' || word === '') continue;
      words += word;
      tokens++;
    }
  }
  if (!done || words !== text(TOKENS)) throw new Error(`a stream that is not whole: ${words.slice(-60)}`);
  whole++;
}

class Clients {
  readonly #ask: () => Promise<void>;
  #wanted = 0;
  #running = 0;
  readonly #all = new Set<Promise<void>>();

  constructor(ask: () => Promise<void>) {
    this.#ask = ask;
  }

  want(count: number): void {
    this.#wanted = count;
    while (this.#running < count) {
      this.#running++;
      const client: Promise<void> = this.#work().finally(() => this.#all.delete(client));
      this.#all.add(client);
    }
  }

  async #work(): Promise<void> {
    while (this.#running <= this.#wanted) {
      await this.#ask().catch(async (error: unknown) => {
        if (errors.length < 20) errors.push(String(error));
        await new Promise((resolve) => setTimeout(resolve, 1_000)); // Prevents a storm of errors.
      });
    }
    this.#running--;
  }

  async stop(): Promise<void> {
    this.#wanted = 0;
    await Promise.all(this.#all);
  }
}

async function run(): Promise<void> {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const tokenFile = join(await temporaryDirectory(), 'token');
  await writeFile(tokenFile, `${token}\n`, { mode: 0o600 });
  const fleet: Managed[] = [];
  const node = [join(ROOT, 'research/papers/opentela/elastic-node.ts'), gateway.url, tokenFile, MODEL];
  const numbers = [PER_PROCESS, SLOTS, TOKENS_PER_S, TOKENS].map(String);
  const start = () => fleet.push(new Managed([NODE, ...node, ...numbers], { label: 'replicas' }));
  const kill = () => fleet.splice(Math.floor(random() * fleet.length), 1)[0]?.child.kill('SIGKILL');
  const clients = new Clients(() => stream(gateway, key));
  const steps: Step[] = [];
  const [byTime, served]: [[number, number][], [number, number][]] = [[], []];
  const beganAt = performance.now();
  let kills = 0;
  let before = 0;
  let replicas = 0;
  const watch = setInterval(() => {
    const at = (performance.now() - beganAt) / 1000;
    byTime.push([at, (tokens - before) / 2]);
    served.push([at, replicas * SLOTS * TOKENS_PER_S]);
    before = tokens;
  }, 2_000);
  for (const [at, wanted] of STEPS.entries()) {
    const again = at > 0 && STEPS[at - 1] === wanted ? 2 : 0;
    for (let n = 0; n < again; n++) kill();
    kills += again;
    for (; fleet.length * PER_PROCESS > wanted; kills++) kill();
    while (fleet.length * PER_PROCESS < wanted) start();
    await gateway.serving(wanted, STARTED_MS, MODEL);
    replicas = wanted;
    clients.want(Math.round(wanted * SLOTS * CLIENTS_PER_SLOT));
    // Streams of a lost node continue elsewhere once the loss is detected.
    await new Promise((resolve) => setTimeout(resolve, at === 0 ? 2_000 : 12_000));
    const [from, fromAt] = [tokens, performance.now()];
    await new Promise((resolve) => setTimeout(resolve, Number(values.seconds) * 1_000));
    const tokensPerS = (tokens - from) / ((performance.now() - fromAt) / 1000);
    steps.push({ replicas: wanted, tokensPerS, kills: kills * PER_PROCESS });
    console.log(
      `${wanted} replicas: ${tokensPerS.toFixed(0)} tokens/s of ${wanted * SLOTS * TOKENS_PER_S}; killed so far ${kills * PER_PROCESS}; ${whole} whole streams, ${errors.length} errors`,
    );
  }
  await clients.stop();
  clearInterval(watch);
  report(steps, byTime, served);
}

function report(steps: Step[], byTime: [number, number][], served: [number, number][]): void {
  const points = steps.map(({ replicas, tokensPerS }): [number, number] => [replicas, tokensPerS]);
  const { r, share, holds } = scalingOf(
    steps.map((step) => ({ ...step, mostTokensPerS: step.replicas * SLOTS * TOKENS_PER_S })),
  );
  const where = `${cpus().length} cores, load ${loadavg()[0]?.toFixed(0)}; real agents, ${PER_PROCESS} in a process; stand-in engines`;
  console.log(
    `\nr = ${r.toFixed(4)}, at least ${share.toFixed(2)} of what the replicas can give, ${whole} whole streams, ${errors.length} errors (${where})`,
  );
  for (const error of errors) console.log(`  ${error.slice(0, 300)}`);
  const could = [8, 64].map((n): [number, number] => [n, n * SLOTS * TOKENS_PER_S]);
  const half = STEPS.indexOf(64) + 1;
  const svg = chartsSvg([
    {
      title: 'Tokens per second against replicas',
      x: `replicas (${where})`,
      y: 'tokens/s',
      series: [
        { name: 'while replicas are started', points: points.slice(0, half) },
        { name: 'while replicas are killed at random', points: points.slice(half - 1) },
        { name: 'what the stand-ins can give', points: could },
      ],
    },
    {
      title: `Over time: ${steps.at(-1)?.kills} replicas killed, ${errors.length} errors`,
      x: 'seconds',
      y: 'tokens/s',
      series: [
        { name: 'seen by the clients', points: byTime },
        { name: 'what the replicas that serve can give', points: served },
      ],
    },
  ]);
  mkdirSync(values.pictures, { recursive: true });
  writeFileSync(join(values.pictures, 'elastic.svg'), svg);
  console.log(`wrote ${join(values.pictures, 'elastic.svg')}`);
  if (values.json !== undefined)
    writeFileSync(values.json, `${JSON.stringify({ where, r, share, whole, errors, steps }, null, 2)}\n`);
  process.exitCode = errors.length === 0 && holds ? 0 : 1;
}

try {
  await run();
} finally {
  await endAll();
}
