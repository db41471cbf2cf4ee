/**
 * Orders to idle agents, as `watch --forecast` sends them: some refuse, some obey silently, some drain for a long time.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { Agents } from '../../scheduler/controller/agents.ts';
import { EMPTY_STATE, lockState, readState } from '../../scheduler/controller/state.ts';
import { gatewayFrom } from '../../scheduler/live/gateway.ts';
import { liveNodes } from '../../scheduler/live/nodes.ts';
import { StandInAgents } from '../support/stand-in-agents.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-agents-'));
const keyFile = join(folder, 'key');
writeFileSync(keyFile, 'operator-key', { mode: 0o600 });
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const QWEN = 'Qwen/Qwen3-8B';
const catalogue = loadCatalogue();

describe('idle agents', () => {
  let cluster = new StandInAgents();
  let now = 0;
  beforeEach(async () => {
    now = 0;
    cluster = new StandInAgents();
    await cluster.open();
  });
  afterEach(() => cluster.close());

  /** The agents, and the pool that contains all of them. */
  async function open(drainMs = 60_000): Promise<{ agents: Agents; pool: string }> {
    const gateway = gatewayFrom(cluster.url, keyFile);
    const wait = async (ms: number) => {
      now += ms;
    };
    const agents = new Agents({ gateway, catalogue, now: () => now, log: () => {}, drainMs, wait });
    const [pool] = await agents.pools(await liveNodes(gateway, catalogue, () => {}), EMPTY_STATE);
    return { agents, pool: pool?.id ?? '' };
  }

  it('that refuse are named with their reason, after three were asked', async () => {
    for (const _ of [1, 2, 3, 4]) cluster.idle(QWEN).refuses = 'deployment x runs here';
    const { agents, pool } = await open();
    await expect(agents.start(pool, QWEN, { tp: 1 })).rejects.toThrow(/409: The agent refuses \(busy\)/);
    expect(cluster.asked).toHaveLength(3);
  });

  it('that obey while their answer is lost are not given the same twice', async () => {
    cluster.idle(QWEN).deaf = true;
    cluster.idle(QWEN);
    const { agents, pool } = await open();
    expect(await agents.start(pool, QWEN, { tp: 1 })).toMatch(/^plan-/);
    expect(cluster.asked).toEqual([QWEN]);
  });

  it('that drain for long block nothing, and are used when they are idle', async () => {
    cluster.idle(QWEN);
    const { agents, pool } = await open(3_600_000);
    const id = await agents.start(pool, QWEN, { tp: 1 });
    for (const node of cluster.nodes) node.drains = true;
    await agents.stop(id, pool);
    expect(cluster.drainsMs).toEqual([3_600_000]);
    await expect(agents.start(pool, QWEN, { tp: 1 })).rejects.toMatchObject({ code: 'draining' });
    expect(now).toBeLessThan(180_000);
    const draining = cluster.nodes.find(({ state }) => state === 'SERVING');
    if (draining) cluster.drained(draining);
    expect(await agents.start(pool, QWEN, { tp: 1 })).toMatch(/^plan-/);
  });
});

it('two watches do not share a state, and a damaged state is an error', () => {
  const path = join(folder, 'state.json');
  const unlock = lockState(path);
  expect(() => lockState(path)).toThrow(/another controller/);
  unlock();
  lockState(path)();
  writeFileSync(path, '{"version": 1');
  expect(() => readState(path)).toThrow(/damaged/);
  expect(readFileSync(path, 'utf8')).toBe('{"version": 1');
});
