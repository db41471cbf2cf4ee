/**
 * Sealed requests through a real gateway and real agents: what a lying gateway cannot do. sealed-eavesdropper.test.ts
 * tests what a curious gateway cannot see.
 */
import { generateKeyPairSync } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { AnswerOpener } from '../../clients/seal/answer-opener.ts';
import { type Pins, type SealNode, type SealOptions, sealedFetch } from '../../clients/seal/index.ts';
import { verifyCandidate } from '../../clients/seal/pinned-candidates.ts';
import { seal } from '../../clients/seal/seal-request.ts';
import { buildFrame, FrameSplitter } from '../../shared/seal/response-frames.ts';
import { readSealCandidates } from '../../shared/seal/seal-candidates.ts';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../support/provider-root.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

const PATH = '/v1/chat/completions';
let cluster: TestCluster;
let root: ProviderRoot;

beforeAll(async () => {
  root = await providerRoot('lab');
  cluster = await openTestCluster({ nodes: 2, agentArgs: ['--delegate-file', root.delegateFile] });
});
afterAll(endAll);

const pins = (): Pins => ({ [root.provider]: root.pin });

function ask(words: string, options: SealOptions = {}, more: object = {}) {
  const fetch = sealedFetch({ pins: pins(), ...options });
  return fetch(cluster.gateway.url + PATH, {
    method: 'POST',
    headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: words }], ...more }),
  });
}

const listSchema = z.looseObject({ data: z.array(z.record(z.string(), z.unknown())) });

/** A hostile gateway's changes to requests and responses; the discovery passes unchanged unless `list` changes it. */
function hostile(does: {
  list?: (data: Record<string, unknown>[]) => unknown;
  request?: (headers: Headers, body: Uint8Array) => void;
  answer?: (response: Response) => Promise<Response> | Response;
}): SealOptions['fetch'] {
  return async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    if (url.includes('/v1/otela/seal')) {
      const listed = await fetch(input, init);
      const answer = listSchema.parse(await listed.json());
      return Response.json({ ...answer, data: does.list?.(answer.data) ?? answer.data });
    }
    const headers = new Headers(init?.headers);
    const body = new Uint8Array(init?.body as Uint8Array<ArrayBuffer>);
    does.request?.(headers, body);
    const response = await fetch(input, { ...init, headers, body });
    return does.answer?.(response) ?? response;
  };
}

describe('a gateway that lies, against a client that pins', () => {
  const refusedAs = (code: string) => expect.objectContaining({ code });

  it('gets nothing sealed to a key of its own', async () => {
    const { publicKey } = generateKeyPairSync('x25519');
    const own = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64url');
    const digest = await crypto.subtle.digest(
      'SHA-256',
      Buffer.concat([Buffer.from('otela seal 1'), Buffer.from(own, 'base64url')]),
    );
    const kid = Buffer.from(digest).subarray(0, 8).toString('base64url');
    const swapped = hostile({
      list: (data) => data.map((one) => ({ ...one, key: own, kid })),
      request: () => expect.fail('sent'),
    });
    await expect(ask('x', { fetch: swapped })).rejects.toEqual(refusedAs('no_candidate'));
    // Without a pin the client trusts the gateway, as the page says: the node still refuses a request that is sealed to
    // another key.
    const seen: SealNode[] = [];
    const believed = hostile({ list: (data) => data.map((one) => ({ ...one, key: own, kid })) });
    const answer = await ask('x', { fetch: believed, pins: undefined, onAnswer: (node) => void seen.push(node) });
    expect([answer.status, seen]).toEqual([409, []]);
  });

  it('cannot give a node’s vouch to another one, another provider or another time', async () => {
    const changes: ((one: Record<string, unknown>) => object)[] = [
      () => ({ session: 'a'.repeat(26) }),
      () => ({ provider: 'eth' }),
      ({ vouch }) => ({ vouch: `${String(vouch).slice(0, -8)}AAAAAAAA` }),
      () => ({ vouch: undefined }),
    ];
    for (const change of changes) {
      const lying = hostile({ list: (data) => data.map((one) => ({ ...one, ...change(one) })) });
      await expect(ask('x', { fetch: lying, pins: { ...pins(), eth: root.pin } })).rejects.toEqual(
        refusedAs('no_candidate'),
      );
    }
    const another = await providerRoot('lab');
    await expect(ask('x', { pins: { lab: another.pin } })).rejects.toEqual(refusedAs('no_candidate'));
  });

  it('cannot have another model, stream flag or body answered', async () => {
    const changes: ((headers: Headers, body: Uint8Array) => void)[] = [
      (headers) => headers.set('x-otela-stream', '1'),
      (headers) => headers.set('x-otela-resume', '1'),
      (headers) =>
        headers.set(
          'x-otela-seal',
          (headers.get('x-otela-seal') ?? '').replace(/until=(\d+)/, (_, s) => `until=${Number(s) - 1}`),
        ),
      (_, body) => body.set([(body[40] ?? 0) ^ 1], 40),
    ];
    for (const request of changes) {
      const answer = await ask('x', { fetch: hostile({ request }) });
      expect([answer.status, answer.headers.get('x-otela-unauthenticated')]).toEqual([400, '1']);
    }
  });

  it('cannot have another model of the node answer', async () => {
    const [answers, others] = [new Set<string>(), 'stand-in/model-2'];
    const engine = await startEngine({ models: [MODEL, others] });
    atEnd(() => engine.close());
    const { gateway, token } = cluster;
    const args = ['--delegate-file', root.delegateFile];
    await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args });
    await gateway.serving(3);
    const request = (headers: Headers) => headers.set('x-otela-model', others);
    for (let n = 0; n < 3; n++) {
      const answer = await ask('x', { fetch: hostile({ request }), candidates: 16 });
      answers.add(`${answer.status} ${answer.headers.get('x-otela-unauthenticated')}`);
    }
    expect([...answers]).toEqual(['400 1']);
    expect(engine.requests.filter(({ url }) => url.endsWith('/completions'))).toEqual([]);
  });

  it('cannot pass a node of its own for the provider’s: it has no delegate of that root', async () => {
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    const { gateway, token } = cluster;
    const before = (await gateway.nodes()).length;
    await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
    await gateway.serving(before + 1);
    const own = new Set<unknown>();
    const watched = hostile({
      list: (data) => {
        for (const { vouch, session } of data) if (vouch === undefined) own.add(session);
        return data.filter(({ session }) => own.has(session));
      },
      request: () => expect.fail('sent'),
    });
    await expect(ask('x', { fetch: watched })).rejects.toEqual(refusedAs('no_candidate'));
    expect(own.size).toBe(1);
    for (let n = 0; n < 6; n++) await ask('x', { candidates: 16 }).then((answer) => answer.text());
    expect(engine.requests.filter(({ url }) => url.endsWith('/completions'))).toEqual([]);
  });

  it('cannot reorder, repeat or drop pieces of a stream', async () => {
    const changes: ((frames: Uint8Array[]) => Uint8Array[])[] = [
      ([first, second, third, ...rest]) => [first, third, second, ...rest].filter((one) => one !== undefined),
      ([first, second, ...rest]) => [first, second, second, ...rest].filter((one) => one !== undefined),
      ([first, , ...rest]) => [first, ...rest].filter((one) => one !== undefined),
    ];
    for (const change of changes) {
      // Tokens that arrive too fast form one piece, and fewer than three pieces cannot be reordered.
      let [pieces, gapMs] = [0, 20];
      const answer = async (response: Response) => {
        const frames = new FrameSplitter().push(new Uint8Array(await response.arrayBuffer()));
        const [segment, head, ...rest] = frames.map(({ type, payload }) => buildFrame(type, payload));
        const begun = [segment, head].filter((one) => one !== undefined);
        pieces = rest.length;
        return new Response(Buffer.concat([...begun, ...change(rest)]), response);
      };
      const once = () => {
        const stand_in = { tokens: 6, tokensPerSecond: 1_000 / gapMs };
        return ask('x', { fetch: hostile({ answer }) }, { stream: true, stand_in });
      };
      let streamed = await once();
      for (; pieces < 3; streamed = await once()) gapMs *= 2;
      await expect(streamed.text()).rejects.toEqual(refusedAs('not_opened'));
    }
  });

  it('cannot fill its client’s memory with a list of nodes', async () => {
    let given = 0;
    const endless: SealOptions['fetch'] = async () => {
      const pull = (controller: ReadableStreamDefaultController<Uint8Array>) => {
        controller.enqueue(Buffer.alloc(16 * 1024, ' '));
        given++;
      };
      return new Response(new ReadableStream({ pull }));
    };
    await expect(ask('x', { fetch: endless })).rejects.toEqual(refusedAs('no_discovery'));
    expect(given).toBeLessThan(10);
  });

  it('cannot make its client ask for keys again without end', async () => {
    let sent = 0;
    const stale = hostile({
      request: () => void sent++,
      answer: () =>
        Response.json({ error: { message: '', type: '', param: null, code: 'seal_stale' } }, { status: 409 }),
    });
    const answer = await ask('x', { fetch: stale });
    expect([answer.status, answer.headers.get('x-otela-unauthenticated'), sent]).toEqual([409, '1', 2]);
  });

  it('cannot have a request answered by more nodes than it was sealed to, nor twice by one', async () => {
    let copy: [string, RequestInit] | undefined;
    const keeps: SealOptions['fetch'] = async (input, init) => {
      if (init?.method === 'POST') copy = [String(input), init];
      return fetch(input, init);
    };
    expect((await ask('x', { fetch: keeps, candidates: 1 })).status).toBe(200);
    if (copy === undefined) throw new Error('nothing was sent');
    const again = await fetch(...copy);
    expect([again.status, (await again.text()).includes('could decrypt the sealed request')]).toEqual([400, true]);
  });

  it('cannot answer in clear, cut an answer, or give another one’s', async () => {
    const plain = hostile({ answer: () => Response.json({ choices: [{ message: { content: 'a lie' } }] }) });
    await expect(ask('x', { fetch: plain })).rejects.toEqual(refusedAs('plain_answer'));
    const cut = hostile({
      answer: async (response) => new Response((await response.arrayBuffer()).slice(0, -20), response),
    });
    const answer = await ask('x', { fetch: cut });
    await expect(answer.text()).rejects.toEqual(refusedAs('cut'));
    let before: ArrayBuffer | undefined;
    const swaps = hostile({
      answer: async (response) => {
        const own = await response.arrayBuffer();
        const given = before ?? own;
        before = own;
        return new Response(given, response);
      },
    });
    const fetching = sealedFetch({ pins: pins(), candidates: 1, fetch: swaps });
    const one = () =>
      fetching(cluster.gateway.url + PATH, {
        method: 'POST',
        headers: { authorization: `Bearer ${cluster.key}` },
        body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }] }),
      });
    expect((await one()).status).toBe(200);
    await expect(one()).rejects.toEqual(refusedAs('not_opened'));
  });
});

it('a client whose clock is ten minutes off is told so, and which clock is meant', async () => {
  const ahead = await ask('x', { now: () => Date.now() + 600_000 });
  expect([ahead.status, await ahead.text()]).toEqual([400, expect.stringMatching(/\b(599|600) s\b/)]);
  const behind = await ask('x', { now: () => Date.now() - 601_000 });
  expect([behind.status, await behind.text()]).toEqual([400, expect.stringMatching(/\b[1-9]\d* s\b/)]);
});

describe('a client that lies', () => {
  it('gets another model or stream than it says in clear from no node', async () => {
    const authorization = `Bearer ${cluster.key}`;
    const listed = await fetch(`${cluster.gateway.url}/v1/otela/seal?model=${MODEL}`, { headers: { authorization } });
    const all = readSealCandidates(await listed.json()) ?? [];
    const believed = await Promise.all(all.map((one) => verifyCandidate(one, pins(), Date.now() / 1000)));
    const nodes = believed.filter((node) => node !== undefined);
    const bodies = [{ model: 'other' }, { model: MODEL, stream: true }, { messages: [] }];
    for (const body of bodies) {
      const clear = { path: PATH, model: MODEL, stream: false, headers: [], body: Buffer.from(JSON.stringify(body)) };
      const made = await seal(clear, nodes, Date.now() / 1000);
      const headers = { authorization, ...made.headers };
      const response = await fetch(cluster.gateway.url + PATH, { method: 'POST', headers, body: made.body });
      const opener = new AnswerOpener(response.body ?? new ReadableStream(), made);
      expect(await opener.next()).toMatchObject({ kind: 'head', head: { status: 400 } });
    }
  });
});

describe('a sealed request', () => {
  it('goes to the next of its nodes where one is gone, without its client', async () => {
    const nodes = new Set<string>();
    for (let n = 0; n < 20 && nodes.size < 2; n++) {
      const answer = await ask('x', { onAnswer: ({ session }) => void nodes.add(session) });
      expect(answer.headers.get('x-otela-sealed')).toBe('pinned');
      await answer.text();
    }
    expect(nodes.size).toBe(2);
    cluster.engines[0]?.control({ status: 503 }, 20);
    for (let n = 0; n < 4; n++) {
      const answer = await ask('x');
      expect([answer.status, (await answer.text()).includes('"choices"')]).toEqual([200, true]);
    }
    cluster.engines[0]?.control({}, 1);
  });

  it('is refused by its client where it cannot be sealed, and nothing of it is sent', async () => {
    const fetching = sealedFetch({ pins: pins(), fetch: () => expect.fail('sent') });
    for (const path of ['/v1/files', '/v1/batches', '/v1/chat/other'])
      await expect(fetching(cluster.gateway.url + path, { method: 'POST', body: '{"model":"m"}' })).rejects.toEqual(
        expect.objectContaining({ code: 'not_sealable' }),
      );
  });

  it('that stands under the wrong headers is refused with a word that says so', async () => {
    const answer = await cluster.ask(PATH, '{}', { headers: { 'content-type': 'application/otela-sealed' } });
    expect([answer.status, (await answer.text()).includes('x-otela-seal-to')]).toEqual([400, true]);
  });

  it('counts as any other: the gateway knows its tokens', async () => {
    const key = await cluster.gateway.createKey('sealed');
    const fetching = sealedFetch({ pins: pins() });
    const answer = await fetching(cluster.gateway.url + PATH, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }], max_tokens: 7, stream: true }),
    });
    expect((await answer.text()).includes('"usage":{')).toBe(false);
    await expect.poll(tokensByKey).toContain(7);
  });
});

async function tokensByKey(): Promise<number[]> {
  const { data } = totalsSchema.parse(await cluster.gateway.admin('GET', 'usage?group_by=key'));
  return data.map(({ completion_tokens: tokens }) => tokens);
}

const totalsSchema = z.object({ data: z.array(z.object({ completion_tokens: z.number() })) });
