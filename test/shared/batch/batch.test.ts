import { describe, expect, it } from 'vitest';
import { BATCH_STATUSES, initialTimes, isTerminal, transition } from '../../../shared/batch/batch-status.ts';
import { type EngineReading, LineConcurrency } from '../../../shared/batch/line-concurrency.ts';
import { answeredLine, failedLine, isSuccess } from '../../../shared/batch/line-results.ts';
import { nextBatch, type QueuedBatch } from '../../../shared/batch/next-batch.ts';
import { orderByPrefix, promptPrefixHash } from '../../../shared/batch/prompt-prefix.ts';

describe('states of a batch', () => {
  it('allows the moves of OpenAI, and no other', () => {
    const allowed = BATCH_STATUSES.flatMap((from) =>
      BATCH_STATUSES.filter(
        (to) => to !== 'validating' && transition(from, to, initialTimes(0, 1), 0) !== undefined,
      ).map((to) => `${from} ${to}`),
    );
    expect(allowed).toEqual([
      'validating failed',
      'validating in_progress',
      'validating cancelling',
      'in_progress finalizing',
      'in_progress expired',
      'in_progress cancelling',
      'finalizing failed',
      'finalizing completed',
      'finalizing cancelling',
      'cancelling cancelled',
    ]);
    expect(BATCH_STATUSES.filter(isTerminal)).toEqual(['failed', 'completed', 'expired', 'cancelled']);
  });

  it('keeps when each state began', () => {
    const begun = transition('validating', 'in_progress', initialTimes(100.7, 86_400), 105.2);
    expect(begun?.times).toMatchObject({
      created_at: 100,
      expires_at: 86_500,
      in_progress_at: 105,
      completed_at: null,
    });
  });
});

describe('which batch gets the next lease', () => {
  const batch = (id: string, change: Partial<QueuedBatch>): QueuedBatch => ({
    id,
    project: id,
    expiresMs: 1e6,
    waiting: 100,
    leased: 0,
    linesPerS: 0,
    ...change,
  });

  it('is one in danger of its deadline, before all others', () => {
    const late = batch('late', { expiresMs: 60_000, linesPerS: 1, leased: 500 });
    expect(nextBatch([batch('a', {}), late], 0)?.id).toBe('late');
    expect(nextBatch([batch('a', {}), { ...late, linesPerS: 100 }], 0)?.id).toBe('a');
  });

  it('is one of the project with the fewest lines at nodes, for any number of batches', () => {
    const many = [1, 2, 3].map((i) => batch(`big-${i}`, { project: 'big', leased: i === 1 ? 200 : 0 }));
    expect(nextBatch([...many, batch('small', { leased: 100, expiresMs: 2e6 })], 0)?.id).toBe('small');
  });

  it('is the one with the earliest deadline within a project, and none where no line waits', () => {
    expect(nextBatch([batch('a', { project: 'p', expiresMs: 2e6 }), batch('b', { project: 'p' })], 0)?.id).toBe('b');
    expect(nextBatch([batch('a', { waiting: 0 })], 0)).toBeUndefined();
  });
});

describe('the window of lines in flight', () => {
  const idle: EngineReading = { running: 0, waiting: 0, linesPerS: 0, refused: 0, interactive: 0 };
  const limits = { slots: () => 64, reserve: 0.1, firstTokenLimitMs: 2_000 };
  /** The window after `seconds` with an engine that is faster with a larger window, up to `full` lines. */
  function grown(full: number, seconds: number, window = new LineConcurrency(limits)): LineConcurrency {
    for (let s = 0; s < seconds; s++) window.read({ ...idle, linesPerS: Math.min(full, window.size) });
    return window;
  }

  it('grows while the engine gets faster, and stops where it does not', () => {
    expect(grown(1_000, 60).size).toBe(58);
    expect(grown(16, 60).size).toBeGreaterThanOrEqual(16);
    expect(grown(16, 60).size).toBeLessThanOrEqual(18);
  });

  it('is full within seconds at its start', () => {
    expect(grown(1_000, 7).size).toBe(58);
  });

  it('never takes the reserve, and gives way to interactive requests at once', () => {
    const window = grown(1_000, 60);
    expect(window.limitWith(0)).toBe(58);
    expect(window.limitWith(30)).toBe(28);
    expect(window.limitWith(500)).toBe(1);
    expect(window.limitWith(0)).toBe(58);
  });

  it.each([
    ['an answer 429 or 5xx', { refused: 1 }],
    ['a preemption in the engine', { preemptions: 1 }],
    ['a slow first token of an interactive request', { interactive: 1, firstTokenMs: 3_000 }],
  ])('halves at %s, and grows again afterwards', (_, hurt) => {
    const window = grown(1_000, 60);
    window.read({ ...idle, linesPerS: 57, preemptions: 0 });
    window.read({ ...idle, preemptions: 0, ...hurt });
    expect(window.size).toBe(29);
    expect(grown(1_000, 30, window).size).toBeGreaterThan(50);
  });

  it('falls below what interactive requests leave within two readings, however full it was, and is as large again soon after they left', () => {
    const window = grown(1_000, 60);
    const busy = { ...idle, linesPerS: 57, interactive: 40, firstTokenMs: 2_500 };
    window.read(busy);
    window.read(busy);
    expect(window.limitWith(40)).toBeLessThanOrEqual(64 - 6 - 40);
    for (let s = 0; s < 10; s++) window.read(busy);
    expect(window.size).toBe(1);
    expect(grown(1_000, 40, window).size).toBe(58);
  });

  it('grows on after a second that was slow by chance', () => {
    const window = grown(1_000, 10);
    window.read({ ...idle, linesPerS: 500 });
    window.read({ ...idle, linesPerS: 1 });
    expect(grown(1_000, 40, window).size).toBe(58);
  });

  it('follows the slots of the engine that runs now', () => {
    let slots = 64;
    const window = grown(1_000, 60, new LineConcurrency({ ...limits, slots: () => slots }));
    slots = 8;
    window.read({ ...idle, linesPerS: 57 });
    expect(window.size).toBe(7);
  });

  it('does not grow while requests wait in the engine, or its cache is nearly full', () => {
    const window = new LineConcurrency(limits);
    for (let s = 0; s < 20; s++) window.read({ ...idle, linesPerS: s, waiting: 1 });
    for (let s = 0; s < 20; s++) window.read({ ...idle, linesPerS: s, kvUsed: 0.9 });
    expect(window.size).toBe(1);
  });
});

describe('lines', () => {
  it('with the same beginning of their prompt stand next to each other', () => {
    const of = (system: string, user: string) =>
      promptPrefixHash({
        messages: [
          { role: 'system', content: system },
          { role: 'user', content: user },
        ],
      });
    expect(of('s', '1')).toBe(of('s', '2'));
    expect(of('s', '1')).not.toBe(of('t', '1'));
    expect(promptPrefixHash({ prompt: 'p' })).not.toBe(promptPrefixHash({ input: ['q'] }));
    expect(orderByPrefix([5, 9, 5, 7, 9])).toEqual([0, 2, 1, 4, 3]);
  });

  it('are written as OpenAI does', () => {
    expect(
      JSON.parse(answeredLine('batch_req_1', 'a', { status_code: 400, request_id: 'r', body: '{"error": {}}' })),
    ).toEqual({
      id: 'batch_req_1',
      custom_id: 'a',
      response: { status_code: 400, request_id: 'r', body: { error: {} } },
      error: null,
    });
    const exact = answeredLine('i', 'a', {
      status_code: 200,
      request_id: 'r',
      body: '{\r\n "id": 9223372036854775807\n}',
    });
    expect(exact).toMatch(/"body":\{ *"id": 9223372036854775807 *\}\},"error":null\}\n$/);
    expect(exact.split('\n')).toHaveLength(2);
    const deep = `${'['.repeat(9_000)}${']'.repeat(9_000)}`;
    for (const text of [deep, 'no JSON', '']) {
      const told = answeredLine('i', null, { status_code: 200, request_id: 'r', body: text });
      expect(JSON.parse(told)).toMatchObject({ custom_id: null, response: { body: text } });
    }
    expect(JSON.parse(failedLine('batch_req_1', 'a', 'batch_expired'))).toMatchObject({
      response: null,
      error: { code: 'batch_expired' },
    });
    expect([200, 299, 400, 500].map((status_code) => isSuccess({ status_code }))).toEqual([true, true, false, false]);
  });
});
