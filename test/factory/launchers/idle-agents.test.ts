/**
 * An autoscaler that sends orders to idle agents, which a gateway lists: some refuse, some fail, some are only silent.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseConfig } from '../../../factory/config/read-config.ts';
import type { FactoryConfig } from '../../../factory/config/schema.ts';
import { type DecisionNote, placedModels } from '../../../factory/decisions/factory-world.ts';
import { emptyMemory, type Memory } from '../../../factory/decisions/persisted-state.ts';
import { noDemand } from '../../../factory/demand/demand-source.ts';
import { adminApi } from '../../../factory/launchers/admin-api-client.ts';
import { agentsLauncher } from '../../../factory/launchers/idle-agents.ts';
import type { Launcher } from '../../../factory/launchers/launcher.ts';
import { type RoundResult, runRound } from '../../../factory/life/run-round.ts';
import type { ServingNode } from '../../../shared/factory/factory-exchange.ts';
import { ApiError, errorBody } from '../../../shared/openai/api-errors.ts';
import { StandInAgents } from '../../support/stand-in-agents.ts';

const QWEN = 'Qwen/Qwen3-8B';
const LLAMA = 'meta-llama/Llama-2-13b-hf';
const ROUND_MS = 15_000;

const TEXT = `factory = "pool"
gateway = "http://gateway"
token_file = "token"
state = "state"
[clusters.idle]
launcher = "agents"
key_file = "key"
[[clusters.idle.pools]]
name = "a100"
gpu = "A100"
gpus_per_node = 1
[recipes.qwen]
weights = "${QWEN}"
[[recipes.qwen.engines]]
gpu = ["A100"]
gpus = 1
template = "vllm"
[recipes.llama]
weights = "${LLAMA}"
[[recipes.llama.engines]]
gpu = ["A100"]
gpus = 1
template = "vllm"
[models."${QWEN}"]
recipe = "qwen"
max = 3
[models."${LLAMA}"]
recipe = "llama"
max = 3
`;

function configOf(text: string): FactoryConfig {
  const read = parseConfig(text);
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  return read.config;
}

const folder = mkdtempSync(join(tmpdir(), 'otela-idle-agents-'));
const keyFile = join(folder, 'key');
writeFileSync(keyFile, 'operator-key', { mode: 0o600 });
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('idle agents', () => {
  let house = new StandInAgents();
  let launcher: Launcher;
  let memory: Memory;
  let notes: DecisionNote[] = [];
  let now = 0;
  let idleMs = 0;
  let wanted: Record<string, number> = {};
  const config = configOf(TEXT);

  beforeEach(async () => {
    house = new StandInAgents();
    await house.open();
    [memory, notes, now, idleMs, wanted] = [emptyMemory(0), [], 0, 0, {}];
    const [cluster] = config.clusters;
    if (cluster === undefined) throw new Error('no cluster');
    launcher = agentsLauncher(cluster, adminApi({ gateway: house.url, keyFile }), () => now);
  });
  afterEach(() => house.close());

  /** As the exchange reports them. */
  const nodes = (): ServingNode[] =>
    house.nodes
      .filter(({ state }) => state !== 'LEFT')
      .map(({ session, model, labels, leaving }) => ({
        session,
        ...(model === undefined ? {} : { model }),
        state: leaving === true ? 'draining' : model === undefined ? 'joining' : 'ready',
        in_flight: leaving === true ? 1 : 0,
        idle_ms: idleMs,
        labels,
      }));

  async function rounds(count: number): Promise<RoundResult | undefined> {
    let result: RoundResult | undefined;
    for (let n = 0; n < count; n++, now += ROUND_MS)
      result = await runRound({
        config,
        models: placedModels(config),
        launchers: new Map([['idle', launcher]]),
        memory,
        heard: () => ({
          demand: new Map(
            Object.entries(wanted).map(([model, replicas]) => [
              model,
              { ...noDemand(model), wanted: [{ from: 'a plan', replicas }] },
            ]),
          ),
          nodes: nodes(),
        }),
        now: () => now,
        remember: () => {},
        logTail: async () => undefined,
        logPath: () => '/dev/null',
        note: (note) => void notes.push(note),
      });
    return result;
  }
  const said = () => notes.map(({ text }) => text).join('\n');

  it('get as many deployments as are wanted, each once', async () => {
    for (const _ of [1, 2, 3]) house.idle('*');
    wanted = { [QWEN]: 2 };
    await rounds(10);
    expect(house.running).toEqual([QWEN, QWEN]);
    expect(house.asked).toEqual([QWEN, QWEN]);
    expect(Object.values(memory.jobs).map(({ state, model }) => [state, model])).toEqual([
      ['ready', QWEN],
      ['ready', QWEN],
    ]);
  });

  it('are listed with the key that is in its file now', async () => {
    await rounds(1);
    writeFileSync(keyFile, 'another-key', { mode: 0o600 });
    await rounds(1);
    writeFileSync(keyFile, 'operator-key', { mode: 0o600 });
    expect([...house.keys]).toEqual(['Bearer operator-key', 'Bearer another-key']);
  });

  it('that obey while the answer is lost are not asked twice', async () => {
    house.idle(QWEN).deaf = true;
    house.idle(QWEN);
    wanted = { [QWEN]: 1 };
    await rounds(40);
    expect(house.asked).toEqual([QWEN]);
    expect(house.running).toEqual([QWEN]);
  });

  it('that refuse are passed over, and asked again only after a pause', async () => {
    for (const _ of [1, 2]) house.idle(QWEN).refuses = 'deployment x runs here';
    wanted = { [QWEN]: 1 };
    await rounds(1);
    expect(house.asked).toHaveLength(2);
    expect(said()).toMatch(/409: The agent refused the order \(busy\): deployment x runs here/);
    await rounds(1);
    expect(house.asked).toHaveLength(2);
    house.idle(QWEN);
    await rounds(20);
    expect(house.running).toEqual([QWEN]);
  });

  it('whose engine fails three times get it no more', async () => {
    house.idle(QWEN);
    wanted = { [QWEN]: 1 };
    for (let failures = 0; failures < 3; ) {
      await rounds(1);
      const failing = house.nodes.find(({ state }) => state === 'SERVING');
      if (failing === undefined) continue;
      failing.state = 'LEFT';
      failures++;
      house.idle(QWEN).labels['otela.deployment-failed'] = `${failing.labels['otela.deployment']} the engine ended`;
    }
    const result = await rounds(20);
    expect(house.running).toEqual([]);
    expect(house.asked).toHaveLength(3);
    expect(result?.held.get(QWEN)).toMatch(/pauses for .*the engine ended/);
  });

  it('that are only silent, or missing in one answer of the registry, have not gone', async () => {
    house.idle(QWEN);
    wanted = { [QWEN]: 1 };
    await rounds(3);
    house.idle(QWEN);
    const [node] = house.nodes.filter(({ state }) => state === 'SERVING');
    if (node === undefined) throw new Error('nothing was deployed');
    node.suspected = true;
    await rounds(240);
    const all = house.nodes;
    house.nodes = [];
    await rounds(1);
    house.nodes = all;
    await rounds(4);
    expect(house.asked).toEqual([QWEN]);
    node.state = 'LEFT';
    await rounds(30);
    expect(house.asked).toEqual([QWEN, QWEN]);
  });

  it('that nobody uses any more drain, and wait for the next order', async () => {
    const node = house.idle('*');
    wanted = { [QWEN]: 1 };
    await rounds(3);
    const serving = house.nodes.find(({ state }) => state === 'SERVING');
    if (serving === undefined) throw new Error('nothing was deployed');
    expect(node.state).toBe('LEFT');
    serving.drains = true;
    wanted = {};
    idleMs = 11 * 60_000;
    const result = await rounds(3);
    // Through the deployment, because an agent that the gateway drains would exit.
    expect(house.drainsMs).toEqual([900_000]);
    expect(result?.drains).toEqual([]);
    house.drained(serving);
    await rounds(12);
    expect(Object.keys(memory.jobs)).toEqual([]);
    wanted = { [LLAMA]: 1 };
    await rounds(3);
    expect(house.running).toEqual([LLAMA]);
  });

  it('have ended a deployment if the gateway says 404, and not if a proxy does', async () => {
    house.idle(QWEN);
    wanted = { [QWEN]: 1 };
    await rounds(3);
    const [job] = await launcher.list('');
    const id = job?.id ?? '';
    for (const page of ['<html>404 Not Found</html>', '{"error":{"message":"no route matched"}}', '']) {
      house.notFound = page;
      await expect(launcher.cancel([id]), page).rejects.toMatchObject({ code: 'unreachable' });
    }
    house.notFound = errorBody(new ApiError('not_found', 'The session has no deployment.'));
    await launcher.cancel([id]);
  });

  it('of which none is free hold one model back, and no other one', async () => {
    house.idle(LLAMA);
    wanted = { [QWEN]: 1, [LLAMA]: 1 };
    const result = await rounds(10);
    // The only node refuses Qwen by its template; Llama does not wait for that.
    expect(house.running).toEqual([LLAMA]);
    expect(result?.held.get(QWEN)).toMatch(/no node of idle\/a100 is idle|not allowed here/);
  });

  it('of others, and deployments that others ordered, are left alone', async () => {
    const foreign = house.idle('*');
    Object.assign(foreign, { state: 'SERVING', model: LLAMA, labels: { 'otela.deployment': 'by-hand' } });
    wanted = { [QWEN]: 1 };
    const result = await rounds(10);
    expect(house.running).toEqual([LLAMA]);
    expect(house.asked).toEqual([]);
    expect(result?.held.get(QWEN)).toMatch(/no node of idle\/a100 is idle/);
  });
});

it('a file with idle agents and no key, or with two clusters of them, is refused with its line', () => {
  const faults = (text: string) => {
    const read = parseConfig(text);
    return 'faults' in read ? read.faults.map(({ line, text: fault }) => `${line}: ${fault}`) : [];
  };
  expect(faults(TEXT.replace('key_file = "key"\n', ''))).toEqual([
    expect.stringMatching(/^5: clusters.idle: idle agents need key_file/),
  ]);
  const second = TEXT.replace(
    '[recipes.qwen]',
    '[clusters.more]\nlauncher = "agents"\nkey_file = "key"\n[[clusters.more.pools]]\nname = "b"\ngpu = "A100"\ngpus_per_node = 1\n[recipes.qwen]',
  );
  expect(faults(second)).toEqual([expect.stringMatching(/idle already has the idle agents/)]);
});
