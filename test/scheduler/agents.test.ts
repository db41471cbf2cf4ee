/** The controller and agents that wait for deployments, as a gateway shows them: some refuse, some fail, some are only silent. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { applyCommand } from '../../scheduler/cli/apply.ts';
import { watchCommand } from '../../scheduler/cli/watch.ts';
import { readState } from '../../scheduler/controller/state.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { StandInAgents } from '../support/stand-in-agents.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-agents-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const QWEN = 'Qwen/Qwen3-8B';
const LLAMA = 'meta-llama/Llama-2-13b-hf';
const HUGE = 'meta-llama/Llama-3.3-70B-Instruct';

const spread = (mean: number) => ({ mean, deviation: mean / 2, p50: mean, p95: mean });
const asks = (model: string, rate: number) => ({
  model,
  requests_per_second: rate,
  unserved: 0,
  input: spread(300),
  output: spread(100),
});

describe('agents that wait for deployments', () => {
  let house = new StandInAgents();
  let argv: string[] = [];
  let state = '';

  beforeEach(async () => {
    const here = mkdtempSync(join(folder, 'round-'));
    house = new StandInAgents();
    await house.open();
    state = join(here, 'state.json');
    writeFileSync(join(here, 'key'), 'operator-key', { mode: 0o600 });
    argv = ['--gateway', house.url, '--key-file', join(here, 'key'), '--state', state, '--agents'];
    argv.push('--objective', 'throughput');
  });
  afterEach(() => house.close());

  let now = Date.parse('2026-01-01T00:00:00Z');
  const pause = async (ms: number) => {
    now += ms;
  };
  async function apply(...more: string[]): Promise<{ code: number; out: string }> {
    const lines: string[] = [];
    const io = { out: (text: string) => void lines.push(text), log: (text: string) => void lines.push(text) };
    const outside = { now: () => now, pause };
    let code = -1;
    try {
      code = await applyCommand([...argv, '--yes', ...more], io, outside);
    } catch (error) {
      if (!(error instanceof SchedulerError)) throw error;
      lines.push(error.message);
    }
    now += 30_000;
    return { code, out: lines.join('\n') };
  }

  it('get what their operators allow; what nobody allows, or nothing holds, is told and keeps nothing else from running', async () => {
    house.idle('Qwen/*');
    house.idle('meta-llama/*');
    house.workload = [asks(QWEN, 1), asks(HUGE, 1), asks('mistralai/Mistral-7B-v0.1', 1)];
    const { code, out } = await apply();
    expect(house.running).toEqual([QWEN]);
    expect(code).toBe(3);
    expect(out).toMatch(/NOT PLACED: .*70B.* memory \(C2\) binds/);
    expect((await apply()).out).toMatch(/nothing to change/);
    expect(readState(state).jobs).toMatchObject([{ model: QWEN, tp: 1 }]);
  });

  it('that refuse are told of with their reason, others are asked, and after three rounds a person has to look', async () => {
    for (const _ of [1, 2, 3]) house.idle(QWEN).refuses = 'deployment x runs here';
    house.workload = [asks(QWEN, 1)];
    const first = await apply();
    expect(first.code).toBe(70);
    expect(first.out).toMatch(/FAILED: start Qwen\/Qwen3-8B .*409: The agent refuses \(busy\): deployment x runs here/);
    expect(house.asked.length).toBeGreaterThanOrEqual(3);
    await apply();
    await apply();
    const asked = house.asked.length;
    expect((await apply()).out).toMatch(/3 times in a row; not started again without --retry/);
    expect(house.asked.length).toBe(asked);
    // Somebody freed one meanwhile.
    house.idle(QWEN);
    expect((await apply('--retry')).out).toMatch(/done: start/);
    expect(house.running).toEqual([QWEN]);
  });

  it('whose engine fails are counted: three in a row are enough until --retry', async () => {
    house.idle(QWEN);
    house.workload = [asks(QWEN, 1)];
    for (let round = 1; round <= 3; round++) {
      await apply();
      const failing = house.nodes.find((node) => node.state === 'SERVING');
      const deployment = failing?.labels['otela.deployment'] ?? '';
      if (failing) failing.state = 'LEFT';
      house.idle(QWEN).labels['otela.deployment-failed'] = `${deployment} the engine ended with code ${round}`;
    }
    const { out } = await apply();
    expect(out).toMatch(/failed: the engine ended with code 3 \(3 in a row\)/);
    expect(out).toMatch(/not started again without --retry/);
    expect(house.running).toEqual([]);
    await apply('--retry');
    expect(house.running).toEqual([QWEN]);
  });

  it('that are only silent have not gone; one that nobody sees any more has', async () => {
    argv.push('--objective', 'cost');
    house.idle(QWEN);
    house.workload = [asks(QWEN, 1)];
    await apply();
    const [node] = house.nodes.filter(({ state: now }) => now === 'SERVING');
    if (node === undefined) throw new Error('nothing was deployed');
    house.idle(QWEN);
    node.suspected = true;
    await apply();
    now += 3_600_000;
    expect((await apply()).out).not.toMatch(/ended unasked/);
    expect(readState(state).jobs.length).toBe(1);
    node.state = 'LEFT';
    expect((await apply()).out).toMatch(/deployment plan-\w+ of Qwen\/Qwen3-8B .* ended unasked/);
    expect(house.running).toEqual([QWEN]);
  });

  it('that obey while their answer is lost are not given the same twice', async () => {
    house.idle(QWEN).deaf = true;
    house.idle(QWEN);
    house.workload = [asks(QWEN, 0.1)];
    await apply('--objective', 'cost');
    expect(house.asked).toEqual([QWEN]);
    expect(readState(state).jobs.length).toBe(1);
  });

  it('take a model that was asked for and that nobody served', async () => {
    house.idle('*');
    house.workload = [{ ...asks(LLAMA, 0), unserved: 60, input: spread(0), output: spread(0) }];
    const { out } = await apply();
    expect(out).toMatch(/has been answered by nobody: planned with 512 \+ 256 tokens/);
    expect(house.running).toEqual([LLAMA]);
    expect(readState(state).planned_for).toEqual({ [LLAMA]: 0.1 });
  });

  it('are moved with --reclaim: one drains and joins idle, and gets the model that lacks a node', async () => {
    house.idle('*');
    house.idle('*');
    house.workload = [asks(QWEN, 50)];
    await apply();
    expect(house.running).toEqual([QWEN, QWEN]);
    house.workload = [asks(QWEN, 50), asks(LLAMA, 1)];
    expect((await apply()).out).toMatch(/nothing to change/);
    expect(house.running).toEqual([QWEN, QWEN]);
    await apply('--reclaim');
    expect(house.running.sort()).toEqual([QWEN, LLAMA]);
    await apply('--stop');
    expect(house.running).toEqual([]);
  });

  it('that drain for long are told of, block no round, and are used when they are idle', async () => {
    house.idle('*');
    house.idle('*');
    house.workload = [asks(QWEN, 50)];
    await apply();
    for (const node of house.nodes) node.drains = true;
    house.workload = [asks(QWEN, 50), asks(LLAMA, 1)];
    const before = now;
    const { code, out } = await apply('--reclaim', '--drain', '3600.0004');
    expect(out).toMatch(/LATER: start meta-llama.*: a node of .* still finishes what runs, for 3\d\d\d s at most/);
    expect(out).not.toContain('FAILED');
    expect(code).toBe(75);
    expect(house.drainsMs).toEqual([3_600_000]);
    expect(now - before).toBeLessThan(180_000);
    expect(readState(state).failures).toEqual([]);
    const drained = house.nodes.find(
      (node) =>
        node.labels['otela.deployment'] !== undefined &&
        node.state === 'SERVING' &&
        !readState(state).jobs.some(({ id }) => id === node.labels['otela.deployment']),
    );
    if (drained === undefined) throw new Error('no node drains');
    house.drained(drained);
    await apply('--reclaim');
    expect(house.running.sort()).toEqual([QWEN, LLAMA]);
  });

  it('go back to what was wanted before, on request', async () => {
    argv.push('--objective', 'cost');
    house.idle(QWEN);
    house.idle(QWEN);
    house.workload = [asks(QWEN, 5)];
    await apply();
    expect(house.running).toEqual([QWEN]);
    house.workload = [asks(QWEN, 35)];
    await apply();
    expect(house.running).toEqual([QWEN, QWEN]);
    expect((await apply('--rollback')).out).toMatch(/done: stop deployment plan-\w+, Qwen/);
    expect(house.running).toEqual([QWEN]);
  });

  it('of others, and deployments that others ordered, are left alone', async () => {
    const foreign = house.idle('*');
    Object.assign(foreign, { state: 'SERVING', model: LLAMA, labels: { 'otela.deployment': 'by-hand' } });
    house.workload = [asks(QWEN, 1)];
    const { out } = await apply('--reclaim');
    expect(out).toMatch(/there is no node/);
    expect(house.running).toEqual([LLAMA]);
    await apply('--stop');
    expect(house.running).toEqual([LLAMA]);
  });

  it('are watched: a new idle node is used, and a session that follows another gets its weight', async () => {
    house.kinds = [{ name: 'chat', input: 100, output: 300, share: 1 }];
    house.idle(QWEN);
    house.workload = [asks(QWEN, 100)];
    const over = new AbortController();
    let rounds = 0;
    const wait = async () => {
      rounds++;
      now += 30_000;
      if (rounds === 2) house.idle(QWEN);
      if (rounds >= 5) over.abort();
    };
    const lines: string[] = [];
    const io = { out: (text: string) => void lines.push(text), log: (text: string) => void lines.push(text) };
    await watchCommand([...argv, '--yes', '--weights'], io, { now: () => now, signal: over.signal, wait });
    expect(house.running).toEqual([QWEN, QWEN]);
    expect(lines.join('\n').match(/plans again/g)?.length).toBe(2);
    const last: unknown = JSON.parse(house.weights.at(-1) ?? '');
    // Without them the gateway would forget the kinds, and count by none.
    expect(last).toMatchObject({ weights: [{ weight: 0.5 }, { weight: 0.5 }, { weight: 0.5 }], kinds: house.kinds });
    // Said when it changed, not at each look.
    expect(house.weights.length).toBe(2);
  });
});
