import { expect, test } from 'vitest';
import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { allowsResuming, dispatchResumable } from '../../../shared/proxy/dispatch-resumable.ts';
import type { AttemptContext, QueueRequest } from '../../../shared/proxy/proxy-host.ts';
import { entry } from '../routing/support.ts';
import { contextOf, FakeHost, requestOf, settle } from './fake-host.ts';

const BODY = JSON.stringify({ model: 'm', prompt: 'Once', max_tokens: 10, stream: true });
const OPTIONS = { path: '/v1/completions', whole: BODY };
/** Endpoint of `/tokenize`: while resuming, the host asks how an engine reads the text. */
const TOKENIZE = 9;
const GONE = new AttemptError('lost', 'its node is gone');

const piece = (text: string, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: 'c', object: 'text_completion', created: 1, model: 'm', choices: [{ index: 0, text, finish_reason: finish }] })}\n\n`;
const REST = [piece(' a time', 'stop'), 'data: [DONE]\n\n'];

/** Engines without a tokenizer; completions do not need one. */
class Resuming extends FakeHost {
  readonly opened: AttemptContext<string>[] = [];
  readonly queued: QueueRequest<string>[] = [];

  override open(attempt: AttemptContext<string>) {
    this.opened.push(attempt);
    if (attempt.dispatch.endpoint.id !== TOKENIZE) return super.open(attempt);
    const head = { headers: [], forwardMs: 0, engineMs: 0 };
    return Promise.resolve({ status: 404, head, read: async () => undefined, cancel: () => {} });
  }

  override async waitForTurn(place?: QueueRequest<string>) {
    if (place !== undefined) this.queued.push(place);
    await this.clock.advance(1_000);
    return super.waitForTurn();
  }

  /** Sessions that were asked for text, in order. */
  get asked(): string[] {
    return this.opened
      .filter(({ dispatch }) => dispatch.endpoint.id !== TOKENIZE)
      .map(({ choice }) => choice.node.session);
  }
}

const served = (more: object): Partial<RegistryEntry> => ({ models: [{ id: 'm', state: 'ready', ...more }] });

async function textOf(response: Awaited<ReturnType<typeof dispatchResumable>>): Promise<string> {
  const all = [...response.chunks];
  for (let next = await response.read(); next !== undefined; next = await response.read()) all.push(next);
  return Buffer.concat(all).toString();
}

test.each([
  [undefined, true, true],
  [undefined, false, false],
  ['1', false, true],
  ['0', true, false],
])('x-otela-resume: %s over the key’s %s is %s', (header, resumes, allowed) => {
  const headers = header === undefined ? {} : { 'x-otela-resume': header };
  expect(allowsResuming(requestOf({ headers }), { resumes })).toBe(allowed);
});

test('a stream whose node is gone goes on at another one, from where its text ends', async () => {
  const host = new Resuming();
  host.add(entry('a'), [piece(' upon'), GONE]);
  host.add(entry('b'), REST);
  const text = await textOf(await dispatchResumable(await contextOf(host, OPTIONS)));
  expect(host.asked).toEqual(['a', 'b']);
  expect(text).toContain(': otela continued node=b');
  expect(text).toMatch(/upon.* a time.*\[DONE\]/s);
  const [{ dispatch } = { dispatch: undefined }] = host.opened.slice(-1);
  const body = dispatch?.parsed.body;
  if (body?.kind !== 'kept') throw new Error('the body is not kept');
  expect(JSON.parse(Buffer.from(body.bytes).toString()).prompt).toBe('Once upon');
});

test('requests made in between are charged to no key, and are not attempts of the request', async () => {
  const host = new Resuming();
  host.add(entry('a'), [piece(' upon'), GONE]);
  host.add(entry('b'), REST);
  const route = { receiptFor: () => 'paid', unpaidReceipt: () => 'unpaid' };
  const context = await contextOf(host, { ...OPTIONS, route });
  await textOf(await dispatchResumable({ ...context, receipt: 'paid' }));
  const tokenizing = host.opened.filter(({ dispatch }) => dispatch.endpoint.id === TOKENIZE);
  expect(tokenizing.length).toBeGreaterThan(0);
  for (const { dispatch } of tokenizing) {
    expect(dispatch.receipt).toBe('unpaid');
    expect(dispatch.name).not.toBe('req');
  }
  expect(host.log.filter((line) => line.startsWith('attempt'))).toEqual(['attempt: 200', 'attempt: 200']);
});

test('a node with another revision or quantisation does not go on', async () => {
  const host = new Resuming();
  host.add(entry('a', served({ quantization: 'bf16' })), [piece(' upon'), GONE]);
  host.add(entry('b', served({ quantization: 'fp8' })), REST);
  const response = await dispatchResumable(await contextOf(host, OPTIONS));
  await expect(textOf(response)).rejects.toMatchObject({ code: 'lost' });
  expect(host.asked).toEqual(['a']);
});

test('if no node is free, the stream waits for its turn among requests for the same nodes', async () => {
  const host = new Resuming();
  host.waitMs = 60_000;
  host.turns.push({ kind: 'turn' });
  const same = served({ quantization: 'bf16' });
  host.add(entry('a', same), [piece(' upon'), GONE]);
  host.add(entry('b', same), 'overloaded');
  host.refresh = () => {
    host.log.push('refreshed');
    if (host.queued.length > 0) host.scripts.set('b', REST);
  };
  const text = await textOf(await dispatchResumable(await contextOf(host, OPTIONS)));
  expect(text).toContain(' a time');
  expect(host.queued).toHaveLength(1);
  expect(host.queued[0]).toMatchObject({ begun: true, scope: expect.stringContaining('[null,"bf16"]') });
});

test('a node that did not take a stream in one search may take it in the next: a slow node is no broken one', async () => {
  const host = new Resuming();
  host.add(entry('a'), [piece(' upon'), GONE]);
  host.add(entry('b'), 'not_accepted');
  host.add(entry('c'), [piece(' a'), GONE]);
  const response = await dispatchResumable(await contextOf(host, OPTIONS));
  const { open } = host;
  host.open = (attempt) => {
    if (attempt.choice.node.session === 'c') host.scripts.set('b', [piece(' time', 'stop'), 'data: [DONE]\n\n']);
    return open.call(host, attempt);
  };
  expect(await textOf(response)).toMatch(/upon.* a.* time.*\[DONE\]/s);
  expect(host.asked).toEqual(['a', 'b', 'c', 'b']);
});

test('what is kept for a stream is given back when its client leaves', async () => {
  const host = new Resuming();
  host.add(entry('a'), [piece(' upon'), piece(' a'), GONE]);
  const context = await contextOf(host, OPTIONS);
  const room = () => host.bodies.resumable.hasRoom(1024 * 1024, 1024 * 1024);
  await dispatchResumable(context);
  expect(room()).toBe(false);
  context.request.client.leave();
  await settle();
  expect(room()).toBe(true);
});
