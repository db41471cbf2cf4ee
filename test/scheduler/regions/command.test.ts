/** `otela-plan regions` against an in-memory gateway: its queries, its messages and its plans. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { regionsCommand } from '../../../scheduler/cli/regions-command.ts';
import { UsageError } from '../../../shared/command-line/index.ts';
import type { Io } from '../../../shared/terminal/command-io.ts';

interface Put {
  planner: string;
  policy?: string;
  notes: string[];
  sequence: number;
  models: Record<
    string,
    {
      shares: Record<string, number>;
      spill: Record<string, unknown>;
      origins?: Record<string, { shares: Record<string, number> }>;
    }
  >;
  warm: { region: string; replicas: number }[];
}

/** Answers like `/admin/regions…`; each look finds 100 more answered requests in each region. */
class MemoryGateway {
  looks = 0;
  down = false;
  /** True: the other gateway, in the region "far", does not answer. */
  otherDown = false;
  /** True: connections break in the middle of a response. */
  breaks = false;
  holder = '';
  stored: { planner: string; sequence: number } | undefined;
  readonly plans: Put[] = [];
  readonly prices: unknown[] = [];

  readonly fetch: typeof fetch = async (input, init = {}) => {
    const { pathname, hostname } = new URL(String(input));
    const isOther = hostname === 'other.test';
    if (isOther && this.otherDown) return answer(503, { error: { message: 'down' } });
    const body: unknown = typeof init.body === 'string' ? JSON.parse(init.body) : undefined;
    if (this.down) return answer(503, { error: { message: 'down' } });
    if (this.breaks) return new Response(broken());
    if (pathname === '/admin/regions')
      return answer(200, { object: 'list', data: this.#facts(isOther), origin: isOther ? 'far' : 'near' });
    if (pathname === '/admin/regions/prices') {
      this.prices.push(body);
      return answer(200, {});
    }
    if (pathname !== '/admin/regions/plan') return answer(404, {});
    if (init.method !== 'PUT') return answer(200, this.stored ?? { planner: '', sequence: 0 });
    const plan = body as Put;
    if (this.holder !== '' && this.holder !== plan.planner)
      return answer(409, { error: { message: `The plan of "${this.holder}" holds.` } });
    if (this.stored?.planner === plan.planner && this.stored.sequence >= plan.sequence) return answer(409, {});
    this.stored = plan;
    this.plans.push(plan);
    return answer(200, {});
  };

  /** `isOther`: the far region is near. */
  #facts(isOther: boolean): object[] {
    if (!isOther) this.looks++;
    const answered = 100 * this.looks;
    return ['near', 'far'].map((region, at) => ({
      region,
      nodes: 4,
      price: { usd_kwh: at === 0 ? 0.1 : 0.2, state: 'current' },
      round_trips: { at_most_s: [0.01, 0.3], counts: (at === 0) !== isOther ? [answered, 0, 0] : [0, answered, 0] },
      models: [
        {
          model: 'org/m\u001b[2J',
          replicas: 4,
          kinds: [{ gpu: 'H100', gpus: 1, replicas: 4 }],
          running: 0,
          waiting: 0,
          answered,
          service_s: 2 * answered,
        },
      ],
    }));
  }
}

const broken = () =>
  new ReadableStream({
    start: (controller) => controller.enqueue(new TextEncoder().encode('{"data": [')),
    pull: (controller) => controller.error(new TypeError('terminated')),
  });
const answer = (status: number, body: unknown) => new Response(JSON.stringify(body), { status });

let folder: string;
let gateway: MemoryGateway;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'otela-regions-'));
  writeFileSync(join(folder, 'key'), 'operator-key\n', { mode: 0o600 });
  gateway = new MemoryGateway();
});
afterEach(() => rmSync(folder, { recursive: true }));

async function run(args: string[], slots: number, between: (look: number) => void = () => {}): Promise<string> {
  const lines: string[] = [];
  const io: Io = { out: (text) => void lines.push(text), log: (text) => void lines.push(text) };
  let look = 0;
  const over = new AbortController();
  const wait = async () => {
    between(++look);
    if (look >= slots) over.abort();
  };
  const all = ['--gateway', 'http://gateway.test', '--key-file', join(folder, 'key'), ...args];
  const code = await regionsCommand(all, io, {
    fetch: gateway.fetch,
    now: () => look * 45_000,
    signal: over.signal,
    wait,
  });
  expect(code).toBe(0);
  return lines.join('\n');
}

describe('otela-plan regions', () => {
  it('plans a row for each gateway, and the others go on if one does not answer', async () => {
    const args = ['--apply', '--smoothness', '0.01', '--origin', 'http://other.test', '--usd-worth', '0'];
    const said = await run(args, 8, (look) => {
      gateway.otherDown = look === 7;
    });
    const rows = gateway.plans.map(({ models }) => Object.values(models)[0]?.origins);
    const both = rows.findLast((one) => one !== undefined);
    expect(both?.near?.shares.near).toBeGreaterThan(0.9);
    expect(both?.far?.shares.far).toBeGreaterThan(0.9);
    expect(rows.at(-1)).toBeUndefined();
    expect(said).toContain('requests of far: far 100 %');
    expect(said).toContain('http://other.test was not observed');
  });

  it('without --apply says what it would do and save, and gives nothing', async () => {
    const said = await run(['--smoothness', '0.01'], 5);
    expect(gateway.plans).toEqual([]);
    expect(said).toMatch(/shadow: \S+ USD\/h instead of \S+ \(-\d+ %\), response \S+ s instead of \S+ s \(-\d+ %\)/);
    expect(said).toMatch(/near +100 % +\d+ ms +0\.100 USD\/kWh/);
    expect(said).not.toContain('\u001b');
  });

  it('with --apply gives shares that get nearer to the plan with each slot', async () => {
    await run(['--apply', '--planner', 'p', '--smoothness', '0.2'], 5);
    expect(gateway.plans.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4]);
    const near = gateway.plans.map(({ models }) => Object.values(models)[0]?.shares.near ?? 0);
    expect(near).toEqual([...near].sort((a, b) => a - b));
    expect(near[0]).toBeLessThan(near.at(-1) ?? 0);
    expect(Object.values(gateway.plans[0]?.models ?? {})[0]?.spill).toMatchObject({ near: { far: 1 } });
  });

  it('goes on after the number that the gateway has, and only watches while another planner’s plan holds', async () => {
    gateway.stored = { planner: 'p', sequence: 41 };
    gateway.holder = 'other';
    const said = await run(['--apply', '--planner', 'p'], 6, (look) => {
      if (look === 3) gateway.holder = '';
    });
    expect(said).toContain('The plan of "other" holds.');
    expect(gateway.plans[0]?.sequence).toBe(42);
  });

  it('takes what came while the gateway was away for what came in so many slots', async () => {
    const most = async (away: boolean) => {
      gateway = new MemoryGateway();
      await run(['--apply', '--concurrency', '1'], 60, (look) => {
        gateway.down = away && look >= 10 && look < 40;
        // The gateway continues to answer.
        if (gateway.down) gateway.looks++;
      });
      return Math.max(...gateway.plans.flatMap(({ warm }) => warm.map(({ replicas }) => replicas)));
    };
    expect(await most(true)).toBe(await most(false));
  });

  it('outlives an answer that breaks off', async () => {
    const said = await run(['--apply'], 8, (look) => {
      gateway.breaks = look >= 3 && look <= 5;
    });
    expect(said).toMatch(/broke off.*terminated/);
    expect(gateway.plans.length).toBeGreaterThanOrEqual(3);
  });

  it('says once that the gateway is away, and plans again when it is back', async () => {
    const said = await run(['--apply'], 8, (look) => {
      gateway.down = look >= 3 && look <= 5;
    });
    expect(said.match(/answers 503/g)).toHaveLength(1);
    expect(gateway.plans.length).toBeGreaterThanOrEqual(3);
  });

  it('names the policy and the standings of its challengers, which change nothing before there is evidence', async () => {
    await run(['--apply', '--challenger', 'smoothness=0.01', '--challenger', 'forecast=best'], 6);
    expect(gateway.plans.map(({ policy }) => policy)).toEqual(Array(5).fill('default'));
    expect(gateway.plans.at(-1)?.notes).toEqual([
      expect.stringMatching(/^smoothness=0\.01 \(shadow\): cost \S+ % in 4 slots, evidence \S+ : 1$/),
      expect.stringMatching(/^forecast=best \(shadow\): cost \S+ % in 4 slots/),
    ]);
    gateway = new MemoryGateway();
    await run(['--apply'], 4);
    expect(gateway.plans.map(({ policy }) => policy)).toEqual([undefined, undefined, undefined]);
  });

  it('continues with the evidence in its file, and refuses a file that has none', async () => {
    const file = join(folder, 'evidence.json');
    const args = ['--challenger', 'smoothness=0.01', '--evidence', file];
    expect(await run(['--apply', ...args], 6)).not.toContain('continues');
    gateway = new MemoryGateway();
    const said = await run(['--apply', ...args], 6);
    expect(said).toMatch(/smoothness=0\.01 continues: cost \S+ % in 4 slots/);
    expect(gateway.plans.at(-1)?.notes).toEqual([
      expect.stringMatching(/^smoothness=0\.01 \(shadow\): cost \S+ % in 8 slots/),
    ]);
    // Other weights of the costs: the evidence does not count.
    gateway = new MemoryGateway();
    expect(await run([...args, '--usd-worth', '1'], 2)).not.toContain('continues');
    const saved: unknown = JSON.parse(readFileSync(file, 'utf8'));
    for (const broken of [
      '',
      '{}',
      JSON.stringify({ ...(saved as object), format: 'other' }),
      `{"challengers":[${'0,'.repeat(100_000)}0]}`,
    ]) {
      writeFileSync(file, broken);
      await expect(run(args, 1)).rejects.toThrow(/--evidence .*evidence\.json has no evidence of challengers/);
    }
    await expect(run(['--evidence', file], 1)).rejects.toThrow(UsageError);
  });

  it('says that the evidence cannot be written, and plans on', async () => {
    await run(['--apply', '--challenger', 'smoothness=0.01', '--evidence', join(folder, 'none', 'evidence.json')], 4);
    expect(gateway.plans.at(-1)?.notes.join()).toContain('cannot write the evidence');
  });

  it.each([
    [['smoothness=0']],
    [['smoothness=']],
    [['smoothness=1e9']],
    [['forecast=best=2']],
    [['luck']],
    [['forecast=best', 'forecast=best']],
    [['smoothness=1', 'smoothness=2', 'smoothness=3', 'smoothness=4', 'smoothness=5']],
  ])('refuses the challengers %j', async (policies) => {
    const args = policies.flatMap((policy) => ['--challenger', policy]);
    await expect(run(args, 1)).rejects.toThrow(UsageError);
  });

  it('sends the price table once for each change; one that is broken later is said and does not end it', async () => {
    const file = join(folder, 'prices.json');
    const table = (usd_kwh: number) =>
      writeFileSync(file, JSON.stringify({ as_of: '2026-01-01T00:00:00Z', prices: [{ region: 'near', usd_kwh }] }));
    table(0.1);
    const said = await run(['--apply', '--prices', file], 6, (look) => {
      if (look === 2) table(0.2);
      if (look === 4) writeFileSync(file, '{"as_of"');
    });
    expect(gateway.prices).toHaveLength(2);
    expect(said).toMatch(/--prices .*prices\.json: /);
    await expect(run(['--apply', '--prices', file], 2)).rejects.toThrow(/prices\.json/);
  });
});
