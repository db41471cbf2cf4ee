import { describe, expect, it, vi } from 'vitest';
import type { BatchGatewayClient } from '../../../agent/batch/batch-gateway-client.ts';
import { LeaseRun } from '../../../agent/batch/lease-run.ts';
import { GatewayRefusalError } from '../../../node/gateway-client.ts';
import type { CommitCounts, GrantedLease } from '../../../shared/batch/granted-lease.ts';
import type { LineResult } from '../../../shared/batch/line-results.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

const LEASE: GrantedLease = {
  batch: 'batch_a',
  endpoint: '/v1/chat/completions',
  chunk: 0,
  epoch: 1,
  open: [0, 1, 2, 3],
  bytes: 0,
  prefix: 0,
  leaseMs: 60_000,
};
const result = (line: number, body: string): LineResult => ({ line, status_code: 200, request_id: 'r', body });

/** A gateway that accepts everything and records it. */
function taking(answer: (results: readonly LineResult[]) => Partial<CommitCounts> = () => ({})) {
  const commits: (readonly LineResult[])[] = [];
  const released: number[] = [];
  const gateway = {
    commit: async (_: GrantedLease, results: readonly LineResult[]) => {
      commits.push(results);
      return { leased: true, again: [], ...answer(results) };
    },
    release: async ({ epoch }: GrantedLease) => void released.push(epoch),
    renew: async () => ({ leased: true }),
  };
  return { commits, released, gateway: gateway as unknown as BatchGatewayClient };
}
const events = () => {
  const said = { over: 0, stopped: 0, again: [] as number[] };
  return {
    said,
    again: (lines: number[]) => void said.again.push(...lines),
    stopped: () => void said.stopped++,
    over: () => void said.over++,
    log: () => {},
  };
};

describe('a lease at work', () => {
  it('commits large results in parts that a gateway takes, each once', async () => {
    const { commits, gateway } = taking();
    const heard = events();
    const work = new LeaseRun(LEASE, gateway, heard);
    for (const line of LEASE.open) work.add(result(line, 'x'.repeat(900_000)));
    await work.settled();
    expect(commits.flatMap((one) => one.map(({ line }) => line))).toEqual([0, 1, 2, 3]);
    for (const one of commits) expect(JSON.stringify(one).length).toBeLessThan(2 ** 21);
    expect(heard.said.over).toBe(1);
  });

  it('gives its lease back at once when another node shall try a line', async () => {
    const { released, gateway } = taking((results) => (results.some(({ line }) => line === 2) ? { elsewhere: 1 } : {}));
    const heard = events();
    const work = new LeaseRun(LEASE, gateway, heard);
    for (const line of LEASE.open) work.add(result(line, '{}'));
    await work.settled();
    expect(heard.said.over).toBe(1);
    expect(released).toEqual([1]);
  });

  it('returns lines for idle nodes again until the gateway has them, and keeps its lease', async () => {
    vi.useFakeTimers();
    try {
      const { released, gateway } = taking();
      const returned: (readonly number[])[] = [];
      const giveBack = async (_: GrantedLease, lines: readonly number[]) => {
        if (returned.push(lines) < 3) throw new GatewayRefusalError(503, 'server_is_overloaded', 'Try again.');
      };
      const heard = events();
      const work = new LeaseRun(LEASE, Object.assign(gateway, { giveBack }), heard);
      work.share([2, 3]);
      await vi.advanceTimersByTimeAsync(10_000);
      expect(returned).toEqual([
        [2, 3],
        [2, 3],
        [2, 3],
      ]);
      for (const line of [0, 1]) work.add(result(line, '{}'));
      await work.settled();
      expect([heard.said.over, released]).toEqual([1, []]);
    } finally {
      vi.useRealTimers();
    }
  });

  it('releases its lease with the lines that it could not return', async () => {
    vi.useFakeTimers();
    try {
      const { released, gateway } = taking();
      let asked = 0;
      const giveBack = async () => {
        asked += 1;
        throw new Error('the gateway does not answer');
      };
      const heard = events();
      const work = new LeaseRun(LEASE, Object.assign(gateway, { giveBack }), heard);
      work.share([1, 2, 3]);
      await vi.advanceTimersByTimeAsync(0);
      work.add(result(0, '{}'));
      await work.settled();
      expect([heard.said.over, released]).toEqual([1, [1]]);
      await vi.advanceTimersByTimeAsync(10_000);
      expect(asked).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  it('ends what runs when no line is wanted any more, commits what is done, and gives the lease back', async () => {
    const { commits, released, gateway } = taking((results) =>
      results.some(({ line }) => line === 0) ? { stop: true } : {},
    );
    const heard = events();
    const work = new LeaseRun(LEASE, gateway, heard);
    // Lines 1 and 2 run, 3 waits.
    work.signal.addEventListener('abort', () => work.drop(1));
    work.add(result(0, '{}'));
    const committed = work.flush();
    work.add(result(1, '{}'));
    await committed;
    expect(heard.said.stopped).toBe(1);
    work.drop(1);
    await work.settled();
    expect(work.isValid).toBe(false);
    expect(commits.flat().map(({ line }) => line)).toEqual([0, 1]);
    expect(heard.said.over).toBe(1);
    expect(released).toEqual([1]);
  });

  it('ends what runs when the gateway knows its batch no more', async () => {
    const { gateway } = taking();
    const gone = () => Promise.reject(new GatewayRefusalError(409, 'conflict', 'This lease has ended.'));
    const heard = events();
    const work = new LeaseRun({ ...LEASE, leaseMs: 60 }, Object.assign(gateway, { renew: gone }), heard);
    await new Promise((resolve) => work.signal.addEventListener('abort', resolve));
    expect([work.isValid, heard.said.stopped]).toEqual([false, 1]);
    work.drop(LEASE.open.length);
  });

  it('commits results again after a page of a proxy, and drops them if the gateway refuses them', async () => {
    const { commits, gateway } = taking();
    const refusals = [new GatewayRefusalError(403, undefined, '<html>Log in</html>')];
    const { commit } = gateway;
    const refusing: typeof commit = (lease, results) => {
      const refusal = refusals.shift();
      return refusal === undefined ? commit(lease, results) : Promise.reject(refusal);
    };
    const heard = events();
    const work = new LeaseRun({ ...LEASE, open: [0, 1] }, Object.assign(gateway, { commit: refusing }), heard);
    work.add(result(0, '{}'));
    await work.settled();
    expect(commits.flat().map(({ line }) => line)).toEqual([0]);
    refusals.push(new GatewayRefusalError(409, 'conflict', 'This batch has ended.'));
    work.add(result(1, '{}'));
    await work.settled();
    expect([commits.length, work.isValid, heard.said.over]).toEqual([1, false, 1]);
  });

  it('commits the last results at once, also those that came during a commit', async () => {
    const { commits, gateway } = taking();
    const work = new LeaseRun({ ...LEASE, open: [0, 1] }, gateway, events());
    work.add(result(0, '{}'));
    const first = work.flush();
    work.add(result(1, '{}'));
    await first;
    await new Promise((resolve) => setImmediate(resolve));
    expect(commits.flat().map(({ line }) => line)).toEqual([0, 1]);
  });

  it('tells its engine the priority of lines, whatever a line itself says, and orders lines by their beginning', () => {
    const { gateway } = taking();
    const work = new LeaseRun({ ...LEASE, open: [0, 1, 2] }, gateway, events());
    const body = (text: string) => ({ model: 'm', priority: -9, messages: [{ role: 'user', content: text }] });
    const chunk = ['a', 'b', 'a'].map((text) => JSON.stringify({ custom_id: 'x', body: body(text) })).join('\n');
    const lines = work.linesOf(new TextEncoder().encode(chunk), 1_000);
    expect(lines.map(({ line }) => line)).toEqual([0, 2, 1]);
    for (const line of lines) expect(JSON.parse(line.body)).toMatchObject({ priority: 1_000 });
    neverRejects(work.release());
  });

  it('gives its engine the bytes of the line, integers above 2^53 and all', () => {
    const { gateway } = taking();
    const body =
      '{"model":"m", "seed": 9223372036854775807,"messages":[{"role":"user","content":"\\u00e9 é"}],"x":1e400}';
    const chunk = new TextEncoder().encode(`{"custom_id":"x","body":${body},"url":"/"}`);
    const work = new LeaseRun({ ...LEASE, open: [0] }, gateway, events());
    expect(work.linesOf(chunk)).toMatchObject([{ body }]);
    const told = work.linesOf(chunk, 7);
    expect(told).toMatchObject([{ body: `${body.slice(0, -1)},"priority":7}` }]);
    neverRejects(work.release());
  });

  it('counts a line as failed that it cannot read, or that is not in the chunk', async () => {
    const { commits, gateway } = taking();
    const heard = events();
    const good = '{"custom_id":"x","body":{"model":"m"}}';
    const deep = good.replace('"m"', `"m","messages":[0,${'['.repeat(9_000)}${']'.repeat(9_000)}]`);
    const work = new LeaseRun(LEASE, gateway, heard);
    const lines = work.linesOf(new TextEncoder().encode([deep, 'nope', good].join('\n')));
    expect(lines.map(({ line }) => line)).toEqual([2]);
    work.add(result(2, '{}'));
    await work.settled();
    const said = commits.flat().map(({ line, error }) => [line, error]);
    expect(said.sort()).toEqual([
      [0, 'engine_failed'],
      [1, 'engine_failed'],
      [2, undefined],
      [3, 'engine_failed'],
    ]);
    expect(heard.said.over).toBe(1);
  });

  it('writes the bound of its lease for reasoning into each line that asks for more or says nothing', () => {
    const { gateway } = taking();
    const work = new LeaseRun({ ...LEASE, open: [0, 1, 2, 3], reasoningTokens: 100 }, gateway, events());
    const asked = [{}, { thinking_token_budget: 7 }, { thinking_token_budget: 900 }, { thinking_token_budget: '900' }];
    const chunk = asked.map((more) => JSON.stringify({ custom_id: 'x', body: { model: 'm', ...more } })).join('\n');
    const told = work.linesOf(new TextEncoder().encode(chunk)).map(({ body }) => JSON.parse(body));
    expect(told.map(({ thinking_token_budget }) => thinking_token_budget)).toEqual([100, 7, 100, 100]);
    neverRejects(work.release());
  });
});
