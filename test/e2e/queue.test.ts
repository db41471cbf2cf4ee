/** Requests that find no free node: who waits, who goes first, and what becomes of them. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { chatBody } from '../support/house.ts';
import { atEnd, endAll, type Managed } from '../support/processes.ts';

let gateway: Gateway;
let key: string;
let token: string;

beforeAll(async () => {
  gateway = await Gateway.start();
  [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
});
afterAll(endAll);

interface Node {
  engine: Engine;
  agent: Managed;
}

async function addNode(model: string, options: { slots?: number; args?: string[] } = {}): Promise<Node> {
  const { slots, args = [] } = options;
  const engine = await startEngine({ models: [model], ...(slots === undefined ? {} : { slots }) });
  atEnd(() => engine.close());
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args });
  return { engine, agent };
}

function ask(model: string, standIn: object = {}, init: RequestInit & { as?: string } = {}): Promise<Response> {
  const { as = key, ...more } = init;
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify(chatBody(standIn, { model })),
    ...more,
    headers: { authorization: `Bearer ${as}`, 'content-type': 'application/json', ...Object(init.headers) },
  });
}

/** The model's node was there and has gone. */
async function gone(model: string): Promise<void> {
  const { agent } = await addNode(model);
  await gateway.serving(1, 15_000, model);
  await agent.stop();
  await gateway.serving(0, 15_000, model);
}

it('a request for a model whose nodes are gone is answered by the next one that comes', async () => {
  await gone('back/soon');
  const asked = [ask('back/soon'), ask('back/soon'), ask('back/soon')];
  const { engine } = await addNode('back/soon');
  for (const response of await Promise.all(asked)) expect(response.status, await response.text()).toBe(200);
  expect(engine.requests).toHaveLength(3);
});

it('who leaves while it waits is never asked for', async () => {
  await gone('left/alone');
  const leaving = new AbortController();
  const asked = ask('left/alone', {}, { signal: leaving.signal }).catch(() => 'left');
  await new Promise((resolve) => setTimeout(resolve, 600)); // it is in the queue by then, or was never sent
  leaving.abort();
  expect(await asked).toBe('left');
  const { engine } = await addNode('left/alone');
  expect((await ask('left/alone')).status).toBe(200);
  expect(engine.requests).toHaveLength(1);
});
