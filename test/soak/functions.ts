/**
 * `node test/soak/functions.ts [--agents 32] [--minutes 2] [--call-s 2] [--seed 1]`: a user's Python function on many
 * agents that come and go. The first 186 workers, as many as the paper's largest run had, start within 90 s. Then racks
 * of at most 32 are killed at random and come back half a minute later. Each call must have its result once. Prints when
 * workers came, the rates, the memory of the gateway and the load of the machine.
 */
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import * as z from 'zod';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { Gateway } from '../support/gateway.ts';
import { Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';
import { runByHand } from './by-hand.ts';

const { values } = parseArgs({
  options: {
    agents: { type: 'string', default: '32' },
    minutes: { type: 'string', default: '2' },
    'call-s': { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
  },
});
const [AGENTS, MINUTES, CALL_S] = [Number(values.agents), Number(values.minutes), Number(values['call-s'])];
const RACK = Math.min(32, Math.ceil(AGENTS / 4));
/** Workers of the paper's largest run, and the time in which they must have come. */
const FIRST = { workers: Math.min(186, AGENTS), withinS: 90 };
/** All agents of a small machine start within this time. */
const ALL_WITHIN_S = 900;
/** Between two kills, and from a kill to the rack's return. */
const [KILL_EVERY_S, AWAY_S] = [15, 30];
const GATEWAY_MAX_MIB = 800;

/**
 * A call waits, as one that computes elsewhere: hundreds of workers share the cores of this machine. It first notes in a
 * file that it began.
 */
const script = (begun: string) => `
import sys, time, opentela
@opentela.function
def square(x):
    with open(${JSON.stringify(begun)}, "a") as file:
        file.write(f"{x}\\n")
    time.sleep(${CALL_S})
    return x * x
if __name__ == "__main__":
    calls = int(sys.argv[1])
    with opentela.Client(progress=False) as client:
        for x, found in enumerate(client.map(square, range(calls), buffersize=50_000)):
            assert found == x * x, (x, found)
    print("right", calls)
`;

const batchesSchema = z.object({
  data: z.array(
    z.object({
      status: z.string(),
      request_counts: z.object({ total: z.number(), completed: z.number(), failed: z.number() }),
      x_otela: z.object({ nodes: z.number(), requeued: z.number().optional() }),
    }),
  ),
});

class Racks {
  /** At most one for each RACK agents. */
  readonly #racks: { host: Managed; agents: number }[] = [];
  readonly #flags: readonly string[];
  killed = 0;

  constructor(flags: readonly string[]) {
    this.#flags = flags;
  }

  async add(agents: number): Promise<void> {
    this.#racks.push({ host: await this.#start(agents), agents });
  }

  async #start(agents: number): Promise<Managed> {
    const state = await temporaryDirectory('otela-rack');
    return new Managed([NODE, join(ROOT, 'test/soak/agents.ts'), String(agents), ...this.#flags], {
      label: 'agents',
      env: { XDG_RUNTIME_DIR: state, OTELA_MESH: '127.0.0.1', TMPDIR: state },
    });
  }

  /** Kills a rack without notice; it comes back after a while. */
  async kill(at: number): Promise<void> {
    const rack = this.#racks[at % this.#racks.length];
    if (rack === undefined || !rack.host.running) return;
    process.kill(-rack.host.pid, 'SIGKILL');
    this.killed += 1;
    await rack.host.exited;
    await sleep(AWAY_S * 1_000);
    rack.host = await this.#start(rack.agents);
  }
}

const failures: string[] = [];
const said = (text: string) => console.log(text);

/** Seconds until `count` nodes have joined. */
async function joined(gateway: Gateway, count: number, withinS: number): Promise<number> {
  const startedAt = performance.now();
  const seconds = () => (performance.now() - startedAt) / 1_000;
  for (;;) {
    const here = (await gateway.nodes()).filter(({ state }) => !['LEFT', 'DOWN'].includes(state)).length;
    if (here >= count) return seconds();
    if (seconds() > withinS) {
      failures.push(`only ${here} of ${count} workers came within ${withinS} s`);
      return seconds();
    }
    await sleep(500);
  }
}

interface Place {
  gateway: Gateway;
  key: string;
  racks: Racks;
  /** Directory of the token and of the script. */
  directory: string;
}

async function open(): Promise<Place> {
  const gateway = await Gateway.start();
  const project = await gateway.createProject('soak');
  const key = await gateway.createKey('soak', { project_id: project });
  const directory = await temporaryDirectory('soak');
  const tokenFile = join(directory, 'token');
  writeFileSync(tokenFile, await gateway.createJoinToken(), { mode: 0o600 });
  const functions = ['--allow-functions', project, '--functions-sandbox', 'off'];
  return {
    gateway,
    key,
    racks: new Racks(['--gateway', gateway.url, '--token-file', tokenFile, ...functions]),
    directory,
  };
}

/** Starts all workers: the first ones together, the others in groups, because they share the cores of this machine. */
async function startWorkers({ gateway, racks }: Place): Promise<void> {
  let left = AGENTS;
  const start = async (workers: number) => {
    for (let started = 0; started < workers && left > 0; ) {
      const agents = Math.min(RACK, left);
      await racks.add(agents);
      [started, left] = [started + agents, left - agents];
    }
  };
  const first = joined(gateway, FIRST.workers, FIRST.withinS);
  await start(FIRST.workers);
  const firstS = await first;
  said(failures[0] ?? `${FIRST.workers} workers came within ${firstS.toFixed(0)} s`);
  const startedAt = performance.now();
  while (left > 0) {
    await start(4 * RACK);
    await joined(gateway, AGENTS - left, ALL_WITHIN_S);
  }
  said(`${AGENTS} workers: ${((performance.now() - startedAt) / 1_000).toFixed(0)} s for the others`);
}

/** Runs the script with this number of calls. Resolves to its output, or to its error. */
function runScript({ gateway, key, directory }: Place, calls: number): Promise<string> {
  const file = join(directory, 'squares.py');
  writeFileSync(file, script(join(directory, 'begun')));
  writeFileSync(join(directory, 'begun'), '');
  const env = { PATH: process.env.PATH ?? '', PYTHONPATH: join(ROOT, 'clients/python') };
  const run = promisify(execFile)('python3', [file, String(calls)], {
    env: { ...env, OTELA_GATEWAY: gateway.url, OTELA_API_KEY: key },
    timeout: (MINUTES * 4 + 10) * 60_000,
  });
  return run.then(
    ({ stdout }) => stdout.trim(),
    (error: unknown) => String(error).slice(-2_000),
  );
}

/** Kills racks at random while the script runs. Returns the most workers that had calls, and the gateway's memory. */
async function killRacks({ gateway, key, racks }: Place, script: Promise<string>) {
  const random = seededRandom(Number(values.seed));
  const returns: Promise<void>[] = [];
  const most = { nodes: 0, mib: 0 };
  for (let tick = 1; ; tick++) {
    if ((await Promise.race([sleep(1_000), script])) !== undefined) break;
    most.mib = Math.max(most.mib, gateway.memoryMib());
    if (tick % 5 === 0)
      most.nodes = Math.max(most.nodes, ...(await batches(gateway, key)).map((one) => one.x_otela.nodes));
    if (tick % KILL_EVERY_S === 0) returns.push(racks.kill(Math.floor(random() * 1_000)));
  }
  await Promise.all(returns);
  return most;
}

async function soak(): Promise<void> {
  const place = await open();
  await startWorkers(place);
  const calls = Math.ceil((AGENTS * MINUTES * 60) / CALL_S / 2);
  const began = performance.now();
  let tookS = 0;
  const script = runScript(place, calls).finally(() => {
    tookS = (performance.now() - began) / 1_000;
  });
  const most = await killRacks(place, script);
  const answer = await script;
  const made = await batches(place.gateway, place.key);
  const sum = (of: (one: (typeof made)[number]) => number) => made.reduce((total, one) => total + of(one), 0);
  const completed = sum((one) => one.request_counts.completed);
  if (answer !== `right ${calls}`) failures.push(`the script: ${answer}`);
  if (completed !== calls) failures.push(`${completed} of ${calls} calls are completed`);
  if (most.nodes < 0.8 * AGENTS) failures.push(`at most ${most.nodes} of ${AGENTS} workers had calls at a time`);
  if (most.mib > GATEWAY_MAX_MIB) failures.push(`the gateway took ${most.mib.toFixed(0)} MiB`);
  said(`${calls} calls of ${CALL_S} s in ${tookS.toFixed(0)} s: ${(calls / tookS).toFixed(0)} a second`);
  said(`at most ${most.nodes} workers had calls at a time; ${place.racks.killed} racks of ${RACK} were killed`);
  const begun = readFileSync(join(place.directory, 'begun'), 'utf8').trimEnd().split('\n');
  said(`${begun.length - new Set(begun).size} calls began again, because nodes were lost or late`);
  const requeued = sum((one) => one.x_otela.requeued ?? 0);
  said(`${requeued} leased lines returned to the queue; the gateway took at most ${most.mib.toFixed(0)} MiB`);
  said(`load of the machine in the last 15 minutes: ${loadavg()[2]?.toFixed(1)}`);
  for (const failure of failures) console.error(`MISSED: ${failure}`);
  if (failures.length > 0) process.exitCode = 1;
}

async function batches(gateway: Gateway, key: string) {
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch(`${gateway.url}/v1/batches?limit=100`, { headers });
  return batchesSchema.parse(await response.json()).data;
}

await runByHand(soak, undefined);
