/**
 * Each spawn, file call and socket of an agent fails once while it serves: its engine survives, and every request ends.
 * OTELA_TEST_SEED=N runs only seed N, which a failure names.
 */
import { randomInt } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { ask as askAgent, localAgents } from '../../agent/host/control-client.ts';
import { engineCommand, startAgent } from '../support/agent.ts';
import { faultEnvironment, injected } from '../support/faults.ts';
import { Gateway } from '../support/gateway.ts';
import { LONG_VARIABLE } from '../support/long-form.ts';
import { patience } from '../support/patience.ts';
import { commandOf, descendants } from '../support/process-table.ts';
import { endAll, eventually, freePort, type Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';

afterEach(endAll);

/** Seeds of the short form. With the same seed, a run often fails again in the same way. */
const SHORT_SEEDS = [1, 2];
/** Number of random seeds in the long form. */
const MORE_SEEDS = 10;

function seeds(): number[] {
  const given = process.env.OTELA_TEST_SEED;
  if (given !== undefined) return [Number(given)];
  if (process.env[LONG_VARIABLE] === undefined) return SHORT_SEEDS;
  return [...SHORT_SEEDS, ...Array.from({ length: MORE_SEEDS }, () => randomInt(1_000_000))];
}

const REQUESTS = 60;
const CLIENTS = 4;

function engineOf(agent: Managed): number | undefined {
  return descendants(agent.pid).find((pid) => commandOf(pid).includes('support/engine.ts'));
}

/** Resolves with how each request ended; a request that does not end fails the test. */
async function traffic(url: string, key: string, requests: number): Promise<string[]> {
  const ends: string[] = [];
  let asked = 0;
  const client = async () => {
    while (asked < requests) {
      const stream = asked++ % 2 === 0;
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(chatBody({ tokens: 20, tokensPerSecond: 50 }, { stream })),
        signal: AbortSignal.timeout(patience(60_000)),
      });
      const text = await response.text();
      if (response.status !== 200) ends.push(String(response.status));
      else if (!stream) ends.push(JSON.parse(text).choices === undefined ? 'nothing' : 'answered');
      else ends.push(text.includes('[DONE]') ? 'answered' : text.includes('"error"') ? 'told' : 'cut');
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return ends;
}

/** Sends other requests to the agent. None may end the agent, whatever it answers. */
async function questions(
  gateway: Gateway,
  session: string,
  env: Record<string, string>,
  folder: string,
): Promise<void> {
  for (let n = 0; n < 6; n++) {
    await gateway.admin('GET', `nodes/${session}/telemetry`).catch(() => {});
    const [agent] = await localAgents(env).catch(() => []);
    if (agent === undefined) continue;
    for (const question of [
      { op: 'network' },
      { op: 'metrics' },
      { op: 'weights' },
      { op: 'pull', source: `dir:${folder}` },
    ] as const) {
      try {
        for await (const answer of askAgent(agent.directory, question, patience(5_000))) void answer;
      } catch {
        // The agent reported an error, or its socket broke.
      }
    }
  }
}

interface House {
  gateway: Gateway;
  key: string;
  token: string;
  /** The weights that the agent pulls. */
  folder: string;
}

async function house(): Promise<House> {
  const gateway = await Gateway.start({ queue: { unary_ms: 10_000, stream_ms: 10_000 } });
  const [key, token, folder] = await Promise.all([
    gateway.createKey(),
    gateway.createJoinToken(),
    temporaryDirectory('otela-model'),
  ]);
  for (const name of ['config.json', 'a.safetensors', 'b.safetensors'])
    await writeFile(join(folder, name), 'x'.repeat(70_000));
  return { gateway, key, token, folder };
}

/** Runs one agent from its start to its end. `step` gets the name of each wait, so that a failure can show it. */
async function live(seed: number, { gateway, key, token, folder }: House, step: (name: string) => void): Promise<void> {
  const state = await temporaryDirectory('otela-faults');
  const log = join(state, 'faults');
  await writeFile(log, '');
  const env = { XDG_RUNTIME_DIR: state, SLURM_JOB_ID: '7', ...faultEnvironment(seed, log) };
  const agent = await startAgent({
    gateways: [gateway.url],
    token,
    env,
    args: ['--ingress', '127.0.0.1:0', '--weights-dir', join(state, 'weights'), '--log-dir', join(state, 'logs')],
    command: engineCommand(await freePort(), '--model', MODEL),
  });
  const ends: string[] = [];
  try {
    step('it joins');
    const [node] = await gateway.serving(1, 60_000);
    const engine = engineOf(agent);
    agent.signal('SIGWINCH');
    step('its requests end');
    const asked = questions(gateway, node?.session ?? '', env, folder);
    ends.push(...(await traffic(gateway.url, key, REQUESTS)));
    step('its answers about itself end');
    await asked;
    expect(ends.length).toBe(REQUESTS);
    expect(ends.filter((end) => end === 'cut' || end === 'nothing')).toEqual([]);
    expect(agent.running).toBe(true);
    expect(engineOf(agent)).toBe(engine);
    expect(agent.output).not.toContain('internal error of the agent');
    expect(injected(log).length).toBeGreaterThan(10);
    step('it is served again');
    await eventually('it is served again', 30_000, async () => {
      const [again] = await traffic(gateway.url, key, 1);
      return again === 'answered' ? true : undefined;
    });
    step('it ends');
    agent.signal('SIGTERM');
    expect(await agent.end(60_000)).toMatchObject({ code: 143 });
    step('its node is gone');
    await gateway.serving(0);
  } catch (cause) {
    const story = [`seed ${seed}: ${ends.join(' ')}`, ...injected(log), agent.tail].join('\n');
    throw new Error(`${cause instanceof Error ? cause.message : cause}\n${story}`, { cause });
  }
}

it.each(seeds())(
  'lives through a fault in each place, and so does its engine: seed %i',
  {
    timeout: patience(120_000),
  },
  async (seed) => {
    let waits = 'the gateway starts';
    const step = (name: string) => {
      waits = name;
    };
    // Fails before the test's time limit, because the message of that limit does not name the wait.
    const hung = Promise.withResolvers<never>();
    const timer = setTimeout(() => hung.reject(new Error(`seed ${seed} hangs: ${waits}`)), 0.9 * patience(120_000));
    try {
      await Promise.race([house().then((made) => live(seed, made, step)), hung.promise]);
    } finally {
      clearTimeout(timer);
    }
  },
);
