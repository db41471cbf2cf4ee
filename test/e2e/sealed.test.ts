/** Sealed requests through a real gateway and real agents: what the gateway cannot see, and what it cannot do. */
import { generateKeyPairSync } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { type Pins, type SealNode, type SealOptions, sealedFetch } from '../../clients/seal/index.ts';
import { type House, MODEL, openHouse } from '../support/house.ts';
import { endAll } from '../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../support/provider-root.ts';

const PATH = '/v1/chat/completions';
let house: House;
let root: ProviderRoot;

beforeAll(async () => {
  root = await providerRoot('lab');
  house = await openHouse({ nodes: 2, agentArgs: ['--delegate-file', root.delegateFile] });
});
afterAll(endAll);

const pins = (): Pins => ({ [root.provider]: root.pin });

function ask(words: string, options: SealOptions = {}, more: object = {}) {
  const fetch = sealedFetch({ pins: pins(), ...options });
  return fetch(house.gateway.url + PATH, {
    method: 'POST',
    headers: { authorization: `Bearer ${house.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: words }], ...more }),
  });
}

const listSchema = z.looseObject({ data: z.array(z.record(z.string(), z.unknown())) });

/** What a hostile gateway does to requests and answers; the discovery passes unless `list` changes it. */
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

describe('a gateway that looks', () => {
  it('finds the words of a sealed prompt and of its answer nowhere: not in its memory, its data, its log, its metrics', async () => {
    const [sealedWord, answerWord, clearWord] = ['canary-sealed-7d1f0c', 'canary-answer-5e08aa', 'canary-clear-93be52'];
    for (const stream of [false, true]) {
      const answer = await ask(sealedWord, {}, { stream, stand_in: { id: answerWord } });
      expect([answer.status, (await answer.text()).includes(answerWord)]).toEqual([200, true]);
    }
    await ask(sealedWord, {}, { stand_in: { status: 400 } }).then((failed) => failed.text());
    const clear = await house.ask(PATH, { model: MODEL, messages: [{ role: 'user', content: clearWord }] });
    expect(clear.status).toBe(200);
    await clear.text();
    expect(house.engines.some(({ requests }) => JSON.stringify(requests).includes(sealedWord))).toBe(true);
    const { process: gateway, data } = house.gateway;
    // What a core dump of it would have. The word of the prompt in clear shows that one would be found.
    expect(await inMemory(gateway.pid, [clearWord, sealedWord, answerWord])).toEqual([true, false, false]);
    const stored = filesUnder(data).map((file) => readFileSync(file));
    expect(stored.length).toBeGreaterThan(2);
    const metrics = await house.gateway.admin('GET', 'usage').then((usage) => JSON.stringify(usage));
    for (const text of [...stored, Buffer.from(gateway.output), Buffer.from(metrics)])
      expect([text.includes(sealedWord), text.includes(answerWord)]).toEqual([false, false]);
  });
});

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
    // Without a pin the gateway's word counts, as the page says: that is what it stops and what not.
    const seen: SealNode[] = [];
    const believed = hostile({ list: (data) => data.map((one) => ({ ...one, key: own, kid })) });
    const answer = await ask('x', { fetch: believed, pins: undefined, onAnswer: (node) => void seen.push(node) });
    expect([answer.status, seen]).toEqual([409, []]);
  });

  it('cannot give a node’s vouch to another one, another provider or another time', async () => {
    const changes: ((one: Record<string, unknown>) => object)[] = [
      () => ({ session: 'a'.repeat(26) }),
      () => ({ provider: 'eth' }),
      ({ vouch }) => ({ vouch: `${String(vouch).slice(0, -2)}AA` }),
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

  it('cannot have a request answered by more nodes than it was sealed to, nor twice by one', async () => {
    let copy: [string, RequestInit] | undefined;
    const keeps: SealOptions['fetch'] = async (input, init) => {
      if (init?.method === 'POST') copy = [String(input), init];
      return fetch(input, init);
    };
    expect((await ask('x', { fetch: keeps, candidates: 1 })).status).toBe(200);
    if (copy === undefined) throw new Error('nothing was sent');
    const again = await fetch(...copy);
    expect([again.status, (await again.text()).includes('could open the sealed request')]).toEqual([400, true]);
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
      fetching(house.gateway.url + PATH, {
        method: 'POST',
        headers: { authorization: `Bearer ${house.key}` },
        body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }] }),
      });
    expect((await one()).status).toBe(200);
    await expect(one()).rejects.toEqual(refusedAs('not_opened'));
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
    house.engines[0]?.control({ status: 503 }, 20);
    for (let n = 0; n < 4; n++) {
      const answer = await ask('x');
      expect([answer.status, (await answer.text()).includes('"choices"')]).toEqual([200, true]);
    }
    house.engines[0]?.control({}, 1);
  });

  it('is refused by its client where it cannot be sealed, and nothing of it is sent', async () => {
    const fetching = sealedFetch({ pins: pins(), fetch: () => expect.fail('sent') });
    for (const path of ['/v1/files', '/v1/batches', '/v1/chat/other'])
      await expect(fetching(house.gateway.url + path, { method: 'POST', body: '{"model":"m"}' })).rejects.toEqual(
        expect.objectContaining({ code: 'not_sealable' }),
      );
  });

  it('that stands under the wrong headers is refused with a word that says so', async () => {
    const answer = await house.ask(PATH, '{}', { headers: { 'content-type': 'application/otela-sealed' } });
    expect([answer.status, (await answer.text()).includes('x-otela-seal-to')]).toEqual([400, true]);
  });

  it('counts as any other: the gateway knows its tokens', async () => {
    const key = await house.gateway.createKey('sealed');
    const fetching = sealedFetch({ pins: pins() });
    const answer = await fetching(house.gateway.url + PATH, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }], max_tokens: 7, stream: true }),
    });
    expect((await answer.text()).includes('"usage":{')).toBe(false);
    await expect.poll(tokensByKey, { timeout: 20_000 }).toContain(7);
  });
});

async function tokensByKey(): Promise<number[]> {
  const { data } = totalsSchema.parse(await house.gateway.admin('GET', 'usage?group_by=key'));
  return data.map(({ completion_tokens: tokens }) => tokens);
}

const totalsSchema = z.object({ data: z.array(z.object({ completion_tokens: z.number() })) });

/** Whether each of the words is in the memory of a process, as its core dump would have it. */
async function inMemory(pid: number, words: readonly string[]): Promise<boolean[]> {
  const memory = await open(`/proc/${pid}/mem`, 'r');
  const found = words.map(() => false);
  try {
    for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
      const [, from = '', to = '', flags = ''] = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/.exec(line) ?? [];
      if (!flags.startsWith('rw')) continue;
      const [start, end] = [Number.parseInt(from, 16), Number.parseInt(to, 16)];
      for (let at = start; at < end; at += PIECE_BYTES - OVERLAP_BYTES) {
        const piece = Buffer.alloc(Math.min(PIECE_BYTES, end - at));
        const { bytesRead } = await memory.read(piece, 0, piece.length, at).catch(() => ({ bytesRead: 0 }));
        for (const [n, word] of words.entries())
          found[n] ||=
            piece.subarray(0, bytesRead).includes(word) || piece.subarray(0, bytesRead).includes(word, 0, 'utf16le');
      }
    }
  } finally {
    await memory.close();
  }
  return found;
}

const PIECE_BYTES = 8 * 1024 * 1024;
const OVERLAP_BYTES = 128;

function filesUnder(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => join(directory, name))
    .filter((file) => statSync(file).isFile());
}
