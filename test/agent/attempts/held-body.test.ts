import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { EngineConnection, EngineEvents } from '../../../agent/attempts/engine-call.ts';
import { HeldBody } from '../../../agent/attempts/held-body.ts';
import { BodyBudget } from '../../../agent/attempts/prefill-engines.ts';
import { TranslatedCall } from '../../../agent/attempts/translated-call.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

/** Memory of 10 bytes. */
function tenBytes() {
  const memory = {
    held: 0,
    hold: (bytes: number) => {
      if (memory.held + bytes > 10) return false;
      memory.held += bytes;
      return true;
    },
    giveBack: (bytes: number) => {
      memory.held -= bytes;
    },
  };
  return memory;
}

describe('a held body', () => {
  const made = (maxBytes = 100) => {
    const memory = tenBytes();
    const refusals: string[] = [];
    return { memory, refusals, body: new HeldBody({ maxBytes, memory, onRefused: (why) => refusals.push(why) }) };
  };

  it('counts in the memory until it is given back', async () => {
    const { memory, body } = made();
    expect(await body.read(Readable.from([Buffer.from('abc'), Buffer.from('de')]))).toEqual(Buffer.from('abcde'));
    expect(memory.held).toBe(5);
    body.giveBack();
    body.end();
    expect(memory.held).toBe(0);
  });

  it.each([
    ['too long', 4, Buffer.from('abcde')],
    ['too long', 4, Readable.from([Buffer.from('abc'), Buffer.from('de')])],
    ['no memory', 100, Buffer.alloc(11)],
    ['no memory', 100, Readable.from([Buffer.alloc(6), Buffer.alloc(6)])],
  ])('is refused after `read` has returned: %s', async (why, maxBytes, content) => {
    const { refusals, body } = made(maxBytes);
    const read = body.read(content);
    expect(refusals).toEqual([]);
    expect(await read).toBeUndefined();
    expect(refusals).toEqual([why]);
  });

  it('that was ended is not read', async () => {
    const { memory, refusals, body } = made();
    const content = new Readable({ read() {} });
    const read = body.read(content);
    await new Promise(setImmediate);
    content.push(Buffer.from('abc'));
    await new Promise(setImmediate);
    expect(memory.held).toBe(3);
    body.end();
    expect([await read, memory.held, content.destroyed, refusals]).toEqual([undefined, 0, true, []]);
  });
});

describe('a translated request', () => {
  /** A call at an engine that the test plays. */
  async function asked(budget: Pick<BodyBudget, 'hold' | 'giveBack'>) {
    const endpoint = findEndpoint('POST', '/v1/responses');
    if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
    const engine: { events?: EngineEvents } = {};
    const client = {
      usage: { state: 'taken' },
      call: (...[, , , , events]: Parameters<EngineConnection['call']>) => {
        engine.events = events;
        return { pause() {}, resume() {}, abort() {} };
      },
    } as unknown as ConstructorParameters<typeof TranslatedCall>[0]['client'];
    const seen: string[] = [];
    const events: EngineEvents = {
      onHead: (status) => seen.push(`head ${status}`),
      onData: (chunk) => seen.push(Buffer.from(chunk).toString()),
      onEnd: () => seen.push('end'),
      onError: (code) => seen.push(code),
    };
    const open = openingFrame(1, { endpoint: endpoint.id, streaming: true });
    const options = { client, api: 'responses' as const, budget: budget as BodyBudget, open, endpoint, events };
    new TranslatedCall(options).start(Buffer.from('{"model":"m","input":"x","stream":true}'));
    await new Promise(setImmediate);
    return { engine, seen };
  }
  const STREAM: [string, string][] = [['content-type', 'text/event-stream']];

  it('holds its memory until the engine answers, and others are refused meanwhile', async () => {
    let held = 0;
    const budget = {
      hold: (bytes: number) => {
        if (held > 0) return false;
        held = bytes;
        return true;
      },
      giveBack: (bytes: number) => {
        held -= bytes;
      },
    };
    const { engine } = await asked(budget);
    expect((await asked(budget)).seen).toEqual(['overloaded']);
    expect(held).toBeGreaterThan(0);
    engine.events?.onHead(200, STREAM, false);
    expect(held).toBe(0);
    expect((await asked(budget)).seen).toEqual([]);
  });

  it('passes on that the engine is alive while there is nothing to translate', async () => {
    const { engine, seen } = await asked(new BodyBudget());
    engine.events?.onHead(200, STREAM, false);
    engine.events?.onData(Buffer.from(': alive\n\n'));
    expect(seen).toEqual(['head 200', ':\n\n']);
  });
});
