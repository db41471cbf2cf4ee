/**
 * A batch in time that the test moves: windows that pass, budgets that are used up, a gateway killed at its worst
 * moments.
 */
import { describe, expect, it, vi } from 'vitest';
import { FileStoreError } from '../../../gateway/files/file-store.ts';
import { patience } from '../../support/patience.ts';
import { answerOf, lineOf, specOf } from '../../support/virtual-gateway.ts';
import {
  batch,
  begun,
  commit,
  DAY_MS,
  gateway,
  ID,
  INPUT,
  lease,
  openVirtualGateways,
  parsed,
  refOf,
  shown,
  turn,
} from './virtual-batch.ts';

openVirtualGateways();

describe('when the window passes', () => {
  it('finished lines are kept, unfinished ones say batch_expired, and are not counted as failed', async () => {
    await begun(250);
    await commit(lease(), [0, 1, 2]);
    await turn(DAY_MS - 1_000);
    expect(shown().status).toBe('in_progress');
    await turn(2_000);
    const object = shown();
    expect(object).toMatchObject({ status: 'expired', request_counts: { total: 250, completed: 3, failed: 0 } });
    expect(object.expired_at).toBe(Math.floor(gateway.now / 1_000));
    const [output, errors] = [await parsed(object.output_file_id), await parsed(object.error_file_id)];
    expect(output.map(({ custom_id }) => custom_id)).toEqual(['line-0', 'line-1', 'line-2']);
    expect(errors).toHaveLength(247);
    for (const line of errors)
      expect(line).toMatchObject({
        response: null,
        error: {
          code: 'batch_expired',
          message: 'This request could not be executed before the completion window expired.',
        },
      });
    expect(new Set([...output, ...errors].map(({ custom_id }) => custom_id)).size).toBe(250);
  });

  it('a result that comes afterwards changes nothing', async () => {
    await begun(5);
    const granted = lease();
    await turn(DAY_MS + 1_000);
    const before = shown();
    expect(await commit(granted, [4])).toEqual({ leased: false, stop: true, again: [], elsewhere: 0 });
    expect(shown()).toEqual(before);
  });

  it('a paused batch expires, too', async () => {
    await begun(5);
    await batch().pause(true);
    await turn(DAY_MS + 1_000);
    expect(shown().status).toBe('expired');
  });
});

describe('a lease', () => {
  it('ends after a minute without a sign of life, and its lines go to another node without a failure', async () => {
    await begun(5);
    const first = lease('gone');
    await gateway.pass(ID, 59_000);
    expect(shown().x_otela).toMatchObject({ leased: 5, requeued: 0 });
    await gateway.pass(ID, 2_000);
    expect(shown().x_otela).toMatchObject({ leased: 0, requeued: 5 });
    const second = lease('other');
    await batch().commit(refOf(second, 'other'), [answerOf(0)], 'p');
    // The first node was only cut off: its result for a finished line is dropped, its result for an open line is
    // accepted.
    const late = await batch().commit(refOf(first, 'gone'), [answerOf(0, 50), answerOf(1)], 'p');
    expect(late.leased).toBe(false);
    expect(shown()).toMatchObject({ request_counts: { completed: 2, failed: 0 }, x_otela: { wasted_tokens: 50 } });
  });

  it('counts its open lines once, also if its chunk has several leases', async () => {
    await begun(5);
    const first = lease('busy');
    batch().release(refOf(first, 'busy'), undefined, [3, 4]);
    expect(lease('idle').open).toEqual([3, 4]);
    expect(shown().x_otela).toMatchObject({ nodes: 2, leased: 5 });
    await batch().commit(refOf(first, 'busy'), [answerOf(0)], 'p');
    expect(shown().x_otela).toMatchObject({ nodes: 2, leased: 4 });
  });
});

describe('killed at any moment', () => {
  it('between a new batch and its place on the list of its owner: nothing of it runs, and a minute later there is no such batch', async () => {
    const bytes = await gateway.input(INPUT, [lineOf('a')]);
    await batch().create(specOf(ID, { inputBytes: bytes }));
    gateway.kill(ID);
    await turn(59_000);
    expect([shown().status, batch().admission()]).toEqual(['validating', null]);
    await turn(2_000);
    expect(batch().show()).toBeNull();
  });

  it('between the list and the word that it is on it: it begins by itself', async () => {
    const bytes = await gateway.input(INPUT, [lineOf('a')]);
    const summary = await batch().create(specOf(ID, { inputBytes: bytes }));
    const row = { id: ID, owner: 'key:k', created_by: 'k', created_at: gateway.now, open: 1 };
    gateway.insert('batches', { ...row, summary: JSON.stringify(summary) });
    gateway.kill(ID);
    await turn(61_000);
    expect([shown().status, batch().admission() === null]).toEqual(['in_progress', false]);
  });

  it('before the word that it is on the list, by so much that it is forgotten: the word makes it anew', async () => {
    const bytes = await gateway.input(INPUT, [lineOf('a')]);
    const spec = specOf(ID, { inputBytes: bytes });
    await batch().create(spec);
    await turn(61_000);
    await batch().start(spec);
    await gateway.settle(ID);
    expect(shown().status).toBe('in_progress');
  });

  it('between the last commit and the files: they are written once, and use is told once', async () => {
    await begun(3);
    await commit(lease(), [0, 1, 2]);
    gateway.kill(ID);
    await turn(1);
    await turn(5_000);
    expect(shown()).toMatchObject({ status: 'completed', request_counts: { completed: 3 } });
    expect(gateway.used).toHaveLength(3);
  });

  it('between the files and the end: the same files are written again, and no other is left', async () => {
    await begun(3);
    await commit(lease(), [0, 1]);
    await batch().cancel();
    // The accounts are unavailable in the last step.
    const { DB } = gateway.env;
    const { put } = gateway.store;
    let puts = 0;
    gateway.store.put = async (...args) => {
      const done = await put.apply(gateway.store, args);
      puts += 1;
      if (puts === 2) throw new FileStoreError('unavailable', 'killed here');
      return done;
    };
    await turn(31_000);
    expect(shown()).toMatchObject({
      status: 'cancelling',
      x_otela: { waiting_for: expect.stringContaining('reached') },
    });
    gateway.store.put = put;
    gateway.kill(ID);
    await turn(6_000);
    expect(gateway.env.DB).toBe(DB);
    expect(shown()).toMatchObject({ status: 'cancelled', x_otela: { waiting_for: null } });
    const stored: string[] = [];
    for await (const { id } of gateway.store.list()) stored.push(id);
    expect(stored.sort()).toEqual([INPUT, shown().output_file_id, shown().error_file_id].sort());
    expect((await parsed(shown().output_file_id)).map(({ custom_id }) => custom_id)).toEqual(['line-0', 'line-1']);
  });

  it('while use could not be told: it is told later, each line once', async () => {
    await begun(3);
    const { USAGE } = gateway.env;
    gateway.env.USAGE = { getByName: () => ({ add: () => Promise.reject(new Error('away')) }) } as never;
    await commit(lease(), [0, 1]);
    await turn(5_000);
    expect([shown().status, shown().x_otela.waiting_for]).toEqual([
      'in_progress',
      expect.stringContaining('tries again'),
    ]);
    gateway.kill(ID);
    gateway.env.USAGE = USAGE;
    await turn(6_000);
    expect(gateway.used.map(({ stream }) => stream)).toHaveLength(2);
    await turn(6_000);
    expect(new Set(gateway.used.map(({ stream }) => stream)).size).toBe(2);
    expect(gateway.used).toHaveLength(2);
  });
});

describe('a budget of tokens per month', () => {
  const limits = { subject: 'key:k', key: { tokens_per_month: 100, requests_per_minute: 1 }, project: undefined };
  const account = { ...specOf(ID).account, limits };

  it('that is used up holds the batch: it says so, no line fails, and it goes on when there are tokens again', async () => {
    await begun(300, { account });
    const first = lease();
    await commit(
      first,
      Array.from({ length: 40 }, (_, line) => line),
    );
    // The 120 tokens count immediately, before the limits are asked again.
    expect(batch().admission()).toBeNull();
    await turn(5_000);
    expect(shown()).toMatchObject({
      status: 'in_progress',
      request_counts: { completed: 40, failed: 0 },
      x_otela: { waiting_for: expect.stringContaining('tokens of this month') },
    });
    expect(gateway.usedTokens).toBe(120);
    gateway.usedTokens = 0; // the next month
    await commit(
      first,
      Array.from({ length: 60 }, (_, i) => 40 + i),
      0,
    );
    await turn(5_000);
    gateway.usedTokens = 0;
    await turn(5_000);
    expect(shown().x_otela.waiting_for).toBeNull();
    expect(lease('other').open.length).toBeGreaterThan(0);
  });

  it('is not overrun by what nodes have already: lines are leased for as many tokens as are left', async () => {
    await begun(5_000, { account: { ...account, limits: { ...limits, key: { tokens_per_month: 1_000 } } } });
    await commit(lease(), [0]); // 3 tokens a line
    await turn(5_000);
    let leased = 0;
    for (let i = 0; i < 40 && batch().admission() !== null; i++) leased += lease(`node-${i}`).open.length;
    expect(leased).toBeGreaterThan(200);
    expect(leased).toBeLessThan(500);
  });

  it('does not count requests a minute', async () => {
    await begun(300, {
      account: { ...account, limits: { ...limits, key: { ...limits.key, tokens_per_month: 10_000 } } },
    });
    await commit(lease(), [0, 1, 2, 3, 4]);
    await turn(5_000);
    expect(shown().x_otela.waiting_for).toBeNull();
    expect(lease('other')).toBeDefined();
  });
});

describe('/metrics', () => {
  it('is told lines by their results, what went back, what came second, and what is left', async () => {
    await begun(250);
    const first = lease('gone');
    await gateway.pass(ID, 61_000);
    const second = lease('other');
    await batch().commit(refOf(second, 'other'), [answerOf(0), { ...answerOf(1), status_code: 400 }], 'p');
    await batch().commit(refOf(first, 'gone'), [answerOf(0, 50)], 'p');
    await turn(5_000);
    await vi.waitFor(() => expect(gateway.reports.length).toBeGreaterThan(0), patience(30_000));
    const counts = new Map<string, number>();
    for (const report of gateway.reports)
      for (const [name, samples] of Object.entries(report.counts))
        for (const { key, value } of samples)
          counts.set(`${name} ${key}`, (counts.get(`${name} ${key}`) ?? 0) + Number(value));
    expect(Object.fromEntries(counts)).toMatchObject({
      'otela_batch_lines_total completed': 1,
      'otela_batch_lines_total failed': 1,
      'otela_batch_lines_requeued_total ': 100,
      'otela_batch_wasted_tokens_total ': 50,
    });
    const gauges = gateway.reports.at(-1)?.gauges ?? {};
    expect(gauges.otela_batch_lines).toEqual([
      { key: 'waiting', value: 150 },
      { key: 'leased', value: 98 },
    ]);
    expect(gauges.otela_batches).toEqual([{ key: 'in_progress', value: 1 }]);
  });
});
