import { describe, expect, it } from 'vitest';
import { AttemptError, apiErrorFor } from '../../../shared/attempts/attempt-error.ts';
import type { AttemptFailure } from '../../../shared/attempts/attempt-request.ts';
import { type DispatchHost, type DispatchTarget, dispatch } from '../../../shared/attempts/dispatch.ts';
import { type ResponseStream, startResponse } from '../../../shared/attempts/started-response.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';

/** A node's behavior in an attempt: an engine's status, or the failure of its path. */
type Deed = number | AttemptFailure;

/** Nodes a, b, c… are tried in this order; `log` records which node was asked what, and the result. */
class Side implements DispatchHost<DispatchTarget, ResponseStream> {
  readonly log: string[] = [];
  readonly accepts: number[] = [];
  readonly cancelled: string[] = [];
  readonly deeds: Record<string, Deed>;
  retriesMax = 3;
  budget = Number.POSITIVE_INFINITY;
  keeps = true;
  gone = false;
  leave = () => {};
  /** Data of a stream, then its end or its failure. */
  stream: (string | AttemptFailure)[] | undefined;

  constructor(deeds: Record<string, Deed>) {
    this.deeds = deeds;
  }

  choose(tried: ReadonlySet<string>): DispatchTarget | undefined {
    const left = Object.keys(this.deeds).filter((name) => !tried.has(name));
    return left[0] === undefined ? undefined : { node: { session: left[0] }, others: left.length > 1 };
  }
  attempt({ node }: DispatchTarget, { number, acceptMs }: { number: number; acceptMs: number }) {
    this.log.push(`${number}:${node.session}`);
    this.accepts.push(acceptMs);
    const deed = this.deeds[node.session] ?? 200;
    if (typeof deed !== 'number') return Promise.reject(new AttemptError(deed, `as ${node.session} would have it`));
    return startResponse(this.#answer(node.session, deed));
  }
  #answer(session: string, status: number): ResponseStream {
    const type = this.stream === undefined ? 'application/json' : 'text/event-stream';
    const rest = [...(this.stream ?? ['whole'])];
    return {
      status,
      head: { headers: [['content-type', type]], forwardMs: 0, engineMs: 0 },
      read: async () => {
        const next = rest.shift();
        if (next === 'lost' || next === 'engine_closed') throw new AttemptError(next, 'broken');
        return next === undefined ? undefined : new TextEncoder().encode(next);
      },
      cancel: () => void this.cancelled.push(session),
    };
  }
  onFailure({ node }: DispatchTarget, code: AttemptFailure): void {
    this.log.push(`${node.session} ${code}`);
  }
  onEnd({ node }: DispatchTarget, ending: string): void {
    this.log.push(`${node.session} is ${ending}`);
  }
  mayRetry(): boolean {
    return this.budget-- > 0;
  }
  repeatable = () => this.keeps;
  clientDisconnected = () => this.gone;
  onDisconnect = (call: () => void) => {
    this.leave = call;
  };
  refusal = (failure: AttemptError | undefined) =>
    failure === undefined ? new ApiError('no_capacity', 'nobody') : apiErrorFor(failure);
}

const asked = ({ log }: Side) => log.filter((line) => /^\d/.test(line)).join(' ');

describe('another node is asked', () => {
  const elsewhere: Deed[] = [
    404,
    502,
    503,
    429,
    'not_accepted',
    'lost',
    'engine_unreachable',
    'engine_closed',
    'unknown',
    'failed',
    'refused',
    'overloaded',
    'unreachable',
    'gone',
    'hung',
    'suspected',
    'seal_refused',
  ];
  it.each(elsewhere)('after %s', async (deed) => {
    const side = new Side({ a: deed, b: 200 });
    const delivery = await dispatch(side);
    expect(delivery.choice.node.session).toBe('b');
    expect(delivery.attempts).toBe(2);
    expect(side.cancelled).toEqual(typeof deed === 'number' ? ['a'] : []);
  });

  it.each([400, 401, 413, 422, 500, 501, 504])('never after an engine’s %i', async (status) => {
    const side = new Side({ a: status, b: 200 });
    expect((await dispatch(side)).answer.status).toBe(status);
    expect(asked(side)).toBe('1:a');
  });

  it.each(['first_byte_timeout', 'stall_timeout'] as const)('never for a slow engine (%s): 504', async (code) => {
    const side = new Side({ a: code, b: 200 });
    await expect(dispatch(side)).rejects.toMatchObject({ status: 504 });
    expect(asked(side)).toBe('1:a');
  });

  it('at most three times, however many nodes are there, and each node once', async () => {
    const side = new Side({ a: 'lost', b: 'lost', c: 'lost', d: 'lost', e: 200 });
    await expect(dispatch(side)).rejects.toMatchObject({ code: 'upstream_error' });
    expect(asked(side)).toBe('1:a 2:b 3:c 4:d');
  });

  it('so often as is set', async () => {
    const never = new Side({ a: 503, b: 200 });
    never.retriesMax = 0;
    expect((await dispatch(never)).answer.status).toBe(503);
    const once = new Side({ a: 'lost', b: 'lost', c: 200 });
    once.retriesMax = 1;
    await expect(dispatch(once)).rejects.toMatchObject({ status: 502 });
    expect(asked(once)).toBe('1:a 2:b');
  });

  it('no more if no node is left: the last engine’s own 429 is returned', async () => {
    const side = new Side({ a: 429, b: 429 });
    const delivery = await dispatch(side);
    expect(delivery.answer.status).toBe(429);
    expect(asked(side)).toBe('1:a 2:b');
    expect(side.cancelled).toEqual(['a']);
  });

  it('no more when the body has gone to the one before', async () => {
    for (const deed of ['lost', 503] as const) {
      const side = new Side({ a: deed, b: 200 });
      side.keeps = false;
      await dispatch(side).catch(() => {});
      expect(asked(side)).toBe('1:a');
    }
  });

  it('past nodes that refuse, which is no retry and takes nothing from the budget', async () => {
    const refusing = Object.fromEntries(Array.from({ length: 8 }, (_, n) => [`r${n}`, 'refused' as const]));
    const side = new Side({ ...refusing, z: 200 });
    side.retriesMax = 0;
    side.budget = 0;
    expect((await dispatch(side)).choice.node.session).toBe('z');
    const all = new Side(Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`r${n}`, 'refused' as const])));
    await expect(dispatch(all)).rejects.toMatchObject({ code: 'no_capacity' });
    expect(all.log.length).toBeLessThan(50);
  });

  it('only within what all requests together may repeat: the failure is told, the busy engine’s answer goes out', async () => {
    const broken = new Side({ a: 'lost', b: 200 });
    broken.budget = 0;
    await expect(dispatch(broken)).rejects.toMatchObject({ code: 'upstream_error' });
    const busy = new Side({ a: 503, b: 200 });
    busy.budget = 0;
    expect((await dispatch(busy)).answer.status).toBe(503);
    expect(busy.cancelled).toEqual([]);
  });

  it('and each retry is charged once, and only if there is a node to try', async () => {
    const side = new Side({ a: 503, b: 'lost', c: 200 });
    side.budget = 2;
    expect((await dispatch(side)).choice.node.session).toBe('c');
    expect(side.budget).toBe(0);
    const alone = new Side({ a: 'lost' });
    alone.budget = 5;
    await expect(dispatch(alone)).rejects.toMatchObject({ code: 'upstream_error' });
    expect(alone.budget).toBe(5);
  });

  it('waits a second if there is another node, ten if there is none', async () => {
    const side = new Side({ a: 'not_accepted', b: 'not_accepted' });
    await expect(dispatch(side)).rejects.toMatchObject({ code: 'no_capacity' });
    expect(side.accepts).toEqual([1_000, 10_000]);
  });
});

describe('an end is told once for each attempt', () => {
  it('when the answer that went out is read to its end', async () => {
    const side = new Side({ a: 'lost', b: 200 });
    side.stream = ['one', 'two'];
    const delivery = await dispatch(side);
    expect(side.log).toEqual(['1:a', 'a is failed', 'a lost', '2:b']);
    expect(delivery.chunks).toHaveLength(1);
    while ((await delivery.read()) !== undefined);
    await delivery.cancel();
    expect(side.log.slice(4)).toEqual(['b is complete']);
  });

  it('when it breaks after data was sent, and no other node is tried', async () => {
    const side = new Side({ a: 200, b: 200 });
    side.stream = ['one', 'lost'];
    const delivery = await dispatch(side);
    await expect(delivery.read()).rejects.toThrow(AttemptError);
    await delivery.cancel();
    expect(side.log).toEqual(['1:a', 'a is failed']);
    expect(side.cancelled).toEqual(['a']);
  });

  it('when the client leaves, in the middle of an answer or before there is one', async () => {
    const reading = new Side({ a: 200 });
    reading.stream = ['one', 'two'];
    await dispatch(reading);
    reading.leave();
    expect(reading.log).toEqual(['1:a', 'a is left']);

    const waiting = new Side({ a: 'cancelled', b: 200 });
    const pending = dispatch(waiting);
    waiting.gone = true;
    waiting.leave();
    await expect(pending).rejects.toMatchObject({ code: 'cancelled' });
    expect(waiting.log.filter((line) => line.includes('is'))).toEqual(['a is left']);
    expect(asked(waiting)).toBe('1:a');
  });

  it('as busy, slow or failed where the node was that', async () => {
    const cases: [Deed, string][] = [
      [429, 'busy'],
      [503, 'failed'],
      [500, 'failed'],
      [404, 'complete'],
      ['refused', 'busy'],
      ['overloaded', 'busy'],
      ['stall_timeout', 'slow'],
      ['engine_closed', 'failed'],
    ];
    for (const [deed, ending] of cases) {
      const side = new Side({ a: deed });
      await dispatch(side).catch(() => {});
      expect(side.log, String(deed)).toContain(`a is ${ending}`);
    }
  });
});

it('a unary answer that breaks before its end is asked of another node; one above 1 MiB has gone out', async () => {
  const cut = new Side({ a: 200 });
  const whole = cut.attempt.bind(cut);
  const broken: ResponseStream = {
    status: 200,
    head: { headers: [], forwardMs: 0, engineMs: 0 },
    read: () => Promise.reject(new AttemptError('engine_closed', 'cut short')),
    cancel: () => void cut.cancelled.push('broken'),
  };
  let tries = 0;
  cut.attempt = (choice, attempt) => (tries++ === 0 ? startResponse(broken) : whole(choice, attempt));
  cut.choose = (tried) => ({ node: { session: `n${tried.size}` }, others: true });
  expect((await dispatch(cut)).choice.node.session).toBe('n1');
  expect(cut.cancelled).toEqual(['broken']);

  const large = new Side({ a: 200 });
  let left = 3;
  const begun = await startResponse({
    ...broken,
    read: async () => (left-- > 0 ? new Uint8Array(512 * 1024) : undefined),
  });
  expect(begun.complete).toBe(false);
  expect(large.log).toEqual([]);
});

it('audio goes out with its first byte, an error in place of it when it is whole', async () => {
  const answer = (type: string, ...pieces: string[]): ResponseStream => ({
    status: 200,
    head: { headers: [['content-type', type]], forwardMs: 0, engineMs: 0 },
    read: async () => {
      const next = pieces.shift();
      return next === undefined ? new Promise<never>(() => {}) : new TextEncoder().encode(next);
    },
    cancel: () => {},
  });
  const orHeld = (begun: Promise<unknown>) =>
    Promise.race([begun, new Promise((resolve) => setImmediate(resolve, 'held'))]);
  for (const type of ['audio/mpeg', 'Audio/WAV', 'audio/L16; rate=24000'])
    expect(await orHeld(startResponse(answer(type, 'RIFF')))).toMatchObject({ complete: false, chunks: [{}] });
  expect(await orHeld(startResponse(answer('application/json', '{"half":')))).toBe('held');
});

describe('an SDK is told not to send a request again', () => {
  const headersOf = (deeds: Record<string, Deed>) =>
    dispatch(new Side(deeds)).then(
      () => undefined,
      (error: ApiError) => error.headers['x-should-retry'],
    );
  it('where two engines worked on it in vain, or one for as long as it may', async () => {
    expect(await headersOf({ a: 'engine_closed', b: 'lost' })).toBe('false');
    expect(await headersOf({ a: 'first_byte_timeout' })).toBe('false');
    expect(await headersOf({ a: 'stall_timeout' })).toBe('false');
  });
  it('and may where one engine broke, or none was reached', async () => {
    expect(await headersOf({ a: 'engine_closed' })).toBeUndefined();
    expect(await headersOf({ a: 'not_accepted', b: 'engine_unreachable', c: 'unreachable' })).toBeUndefined();
    expect(await headersOf({ a: 'hung' })).toBeUndefined();
  });
});
