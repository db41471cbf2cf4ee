/**
 * `otela-plan watch` in shadow mode: when it plans again, its messages, and the plan that it writes. It starts nothing.
 */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PlanFile } from '../../factory/demand/plan-file.ts';
import { watchCommand } from '../../scheduler/cli/watch-command.ts';
import { Triggers } from '../../scheduler/live/replan-triggers.ts';
import { StandInAgents } from '../support/stand-in-agents.ts';
import { otelaPlan } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-watch-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const QWEN = 'Qwen/Qwen3-8B';
const LLAMA = 'meta-llama/Llama-2-13b-hf';
const HUGE = 'meta-llama/Llama-3.3-70B-Instruct';
const UNKNOWN = 'unknown/model';

const lengths = (mean: number) => ({ mean, deviation: mean / 2, p50: mean, p95: mean });
const asks = (model: string, rate: number, more: object = {}) => ({
  model,
  requests: rate * 600,
  requests_per_second: rate,
  unserved: 0,
  input: lengths(300),
  output: lengths(100),
  ...more,
});

let cluster = new StandInAgents();
let argv: string[] = [];
let path = '';
beforeEach(async () => {
  const here = mkdtempSync(join(folder, 'test-'));
  cluster = new StandInAgents();
  await cluster.open();
  path = join(here, 'plan.json');
  writeFileSync(join(here, 'key'), 'operator-key', { mode: 0o600 });
  argv = ['--gateway', cluster.url, '--key-file', join(here, 'key')];
});
afterEach(() => cluster.close());

let now = Date.parse('2026-01-01T00:00:00Z');

/** Runs `rounds` looks, `ms` apart, with `between` after each. */
async function watch(rounds: number, between: (round: number) => void = () => {}, ms = 60_000, more: string[] = []) {
  const lines: string[] = [];
  const io = { out: (text: string) => void lines.push(text), log: (line: string) => void lines.push(line) };
  const over = new AbortController();
  let done = 0;
  const wait = async () => {
    between(++done);
    now += ms;
    if (done >= rounds) over.abort();
  };
  const words = [...argv, '--objective', 'cost', '--plan', path, ...more];
  expect(await watchCommand(words, io, { now: () => now, signal: over.signal, wait })).toBe(0);
  return lines.join('\n');
}

/** The wanted replicas, as the autoscaler reads them. */
function wanted(models: string[] = [QWEN, LLAMA, HUGE, UNKNOWN]): Record<string, number> {
  const file = new PlanFile({ path, maxAge: 3_600_000, models, note: () => {} });
  const rows = [...file.latest(Date.now()).demand].map(([model, demand]) => [model, demand.wanted?.[0]?.replicas ?? 0]);
  return Object.fromEntries(rows);
}

/** A node that serves `model` because an autoscaler ordered it. */
function deploy(model: string): void {
  const node = cluster.idle('*');
  Object.assign(node, {
    state: 'SERVING',
    model,
    labels: { 'otela.deployment': `otela-pool--0123456789ab-${model.length}-0` },
  });
}

describe('watching', () => {
  it('plans when a model has no replica, hands the plan over, and starts nothing', async () => {
    cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 1)];
    const out = await watch(5);
    expect(out.match(/plans again/g)?.length).toBe(1);
    expect(out).toMatch(/would run 1 replicas of Qwen\/Qwen3-8B on agents instead of 0/);
    expect(wanted()).toEqual({ [QWEN]: 1 });
    expect(cluster.asked).toEqual([]);
    expect(cluster.weights).toEqual([]);
  });

  it('without --plan writes no file', async () => {
    cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 1)];
    argv = argv.filter((word) => word !== '--plan');
    const lines: string[] = [];
    const io = { out: (text: string) => void lines.push(text), log: () => {} };
    const over = new AbortController();
    await watchCommand(argv, io, { now: () => now, signal: over.signal, wait: async () => over.abort() });
    expect(lines.join('\n')).toContain('plans again');
    expect(existsSync(path)).toBe(false);
  });

  it('plans when the load has been 20 % off for 10 minutes, not for a burst', async () => {
    for (const _ of [1, 2, 3]) cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 2)];
    const burst = await watch(8, (at) => Object.assign(cluster, { workload: [asks(QWEN, at === 3 ? 10 : 2)] }));
    expect(burst.match(/plans again/g)?.length).toBe(1);
    const lasting = await watch(16, (at) => Object.assign(cluster, { workload: [asks(QWEN, at >= 2 ? 50 : 2)] }));
    expect(lasting).toMatch(/50\.0 requests\/s for 10 minutes, planned for 2\.00/);
    expect(wanted()[QWEN]).toBeGreaterThan(1);
  });

  it('counts what the factory runs, and keeps it in the plan', async () => {
    deploy(QWEN);
    cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 1)];
    const out = await watch(2);
    expect(out).toContain('nothing to change');
    expect(wanted()).toEqual({ [QWEN]: 1 });
  });

  it('jobs of the factory on a cluster count, and stay in the plan', async () => {
    const job = cluster.idle('*');
    Object.assign(job, { state: 'SERVING', model: QWEN, labels: { factory: 'pool' } });
    cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 1)];
    await watch(2);
    expect(wanted()).toEqual({ [QWEN]: 1 });
  });

  it('with --reclaim moves a node of the factory to a model that lacks one, and without it does not', async () => {
    deploy(QWEN);
    deploy(QWEN);
    cluster.workload = [asks(QWEN, 1), asks(LLAMA, 1)];
    await watch(2);
    expect(wanted()).toEqual({ [QWEN]: 2 });
    await watch(2, () => {}, 60_000, ['--reclaim']);
    expect(wanted()).toEqual({ [QWEN]: 1, [LLAMA]: 1 });
  });

  it("leaves others' nodes alone, counts on them, and shows idle ones", async () => {
    Object.assign(cluster.idle('*'), { state: 'SERVING', model: LLAMA, labels: { 'otela.deployment': 'by-hand' } });
    cluster.idle('*').labels = {};
    cluster.workload = [asks(LLAMA, 1)];
    const out = await watch(2, () => {}, 60_000, ['--reclaim']);
    expect(out).toMatch(/network: A100-80-SXM x1/);
    expect(out).toMatch(/idle: node nbxxxxxx .* does not accept deployments/);
    expect(wanted()).toEqual({});
  });

  it('says which models fit nowhere, and plans the others', async () => {
    cluster.idle('Qwen/*');
    cluster.idle('meta-llama/*');
    cluster.workload = [asks(QWEN, 1), asks(HUGE, 1), asks('mistralai/Mistral-7B-v0.1', 1)];
    const out = await watch(1);
    expect(out).toMatch(/NOT PLACED: .*70B.* there is not enough GPU memory/);
    expect(wanted()).toEqual({ [QWEN]: 1 });
  });

  it('takes a model that was asked for and that no node served', async () => {
    cluster.idle('*');
    cluster.workload = [asks(LLAMA, 0, { unserved: 60, input: lengths(0), output: lengths(0) })];
    expect(await watch(1)).toMatch(/planned with 512 \+ 256 tokens/);
    expect(wanted()).toEqual({ [LLAMA]: 1 });
  });

  it('leaves out names that no model can have, and models that the catalogue does not know', async () => {
    cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 1), ...['x'.repeat(1024), '', UNKNOWN].map((model) => asks(model, 1))];
    const out = await watch(1);
    expect(out).toMatch(/^x{256} is requested but skipped/m);
    expect(out).toMatch(/unknown\/model is requested but skipped/);
    expect(wanted()).toEqual({ [QWEN]: 1 });
  });

  it('plans a model that the catalogue does not know by what its replicas serve', async () => {
    for (const _ of [1, 2]) Object.assign(cluster.idle('*'), { state: 'SERVING', model: UNKNOWN, labels: {} });
    cluster.idle('*');
    cluster.workload = [asks(UNKNOWN, 6)];
    const enough = await watch(1);
    expect(enough).toMatch(
      /unknown\/model is not in the catalogue: planned with the current throughput of its replicas, 3.00 requests\/s each/,
    );
    expect(enough).toContain('its latency is not planned');
    expect(wanted()).toEqual({});
    // Two did all that was observed, and requests were refused: a third is wanted.
    cluster.workload = [asks(UNKNOWN, 6, { unserved: 1500 })];
    await watch(1);
    expect(wanted()).toEqual({ [UNKNOWN]: 1 });
  });

  it('goes on when the gateway is away, with the plan that it has', async () => {
    cluster.idle(QWEN);
    cluster.workload = [asks(QWEN, 1)];
    const out = await watch(5, (at) => Object.assign(cluster, { down: at === 1 || at === 2 }));
    expect(out).toMatch(/503; the previous plan stays/);
    expect(out.match(/plans again/g)?.length).toBe(1);
    expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({ placements: [{ model: QWEN, replicas: 1 }] });
  });

  it('a key that others may read is refused', async () => {
    chmodSync(argv[3] ?? '', 0o644);
    await expect(watch(1)).rejects.toThrow(/chmod 600/);
  });
});

describe('what started replicas', () => {
  it.each([
    [['apply', '--agents'], /apply was removed: otela-factory starts and ends replicas/],
    [['watch', '--yes'], /--yes was removed: otela-factory starts and ends replicas/],
    [['watch', '--forecast', '--yes'], /--yes was removed: otela-factory starts and ends replicas/],
    [['watch', '--forecast', '--state=x'], /--state=x was removed: --plan FILE is the file of the plan/],
    [['watch', '--forecast', '--retry'], /--retry was removed: otela-factory tries failed starts again/],
    [['watch', '--forecast', '--drain', '9'], /--drain was removed: otela-factory drains a replica/],
    [['watch', '--publish'], /--publish requires --forecast/],
    [['watch', '--slurm', 'x.sbatch'], /--slurm was removed: otela-factory starts/],
    [['watch', '--inventory=sinfo'], /--inventory=sinfo was removed: watch plans with the nodes of the network/],
    [['watch', '--weights'], /--weights was removed: set weights by PUT/],
    [['watch', '--agents'], /--agents was removed: omit it/],
  ])('%j ends with 2 and one sentence that says what to call', async (words, sentence) => {
    const { code, log } = await otelaPlan(...words);
    expect(code).toBe(2);
    expect(log).toMatch(sentence);
  });
});

describe('triggers', () => {
  it('an idle node is news once, and again when it comes back', () => {
    const triggers = new Triggers();
    const seen = (idle: string[]) => triggers.look({ idle, without: [], rates: {} }, {}, 0).length;
    expect([seen(['a']), seen(['a']), seen([]), seen(['a'])]).toEqual([1, 0, 0, 1]);
  });
});
