/** What a curious gateway can see of sealed requests: its sockets on both sides, its memory, data, log and metrics. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { sealedFetch } from '../../clients/seal/index.ts';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { inMemory } from '../support/process-memory.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { providerRoot } from '../support/provider-root.ts';
import { MODEL } from '../support/test-cluster.ts';
import { wiretap } from '../support/wiretap.ts';

afterAll(endAll);

const [PROMPT, ANSWER, TOOL, ERROR, FILE] = [
  'canary-prompt-7d1f0c',
  'canary-answer-5e08aa',
  'canary-tool-2bb914',
  'canary-error-c0de77',
  'canary-file-11fa3e',
];
const SEALED = [PROMPT, ANSWER, TOOL, ERROR, FILE];
const [CLEAR, CLEAR_ANSWER] = ['canary-clear-93be52', 'canary-clear-answer-a1'];

it('words of prompts, answers, tools, errors and files are nowhere in it; those of a request in clear are everywhere', async () => {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const [toClients, toAgents] = await Promise.all([wiretap(gateway.url), wiretap(gateway.url)]);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const root = await providerRoot('lab');
  const args = ['--delegate-file', root.delegateFile];
  await startAgent({ gateways: [toAgents.url], token, engineUrl: engine.url, args });
  await gateway.serving(1);

  const sealed = sealedFetch({ pins: { lab: root.pin } });
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const chat = (fetching: typeof fetch, words: string, more: object) =>
    fetching(`${toClients.url}/v1/chat/completions`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: words }], ...more }),
    });
  for (const stream of [false, true]) {
    const answer = await chat(sealed, PROMPT, { stream, stand_in: { id: ANSWER } });
    expect([answer.status, (await answer.text()).includes(ANSWER)]).toEqual([200, true]);
  }
  const parameters = { type: 'object', properties: { [TOOL]: { type: 'string' } } };
  const tooled = await chat(sealed, PROMPT, {
    tools: [{ type: 'function', function: { name: 'look_up', parameters } }],
  });
  expect((await tooled.text()).includes(TOOL), 'the engine calls the tool with its own parameter').toBe(true);
  const failed = await chat(sealed, ERROR, { stand_in: { status: 400, headers: { 'x-engine': ERROR } } });
  expect(failed.status).toBe(400);
  await failed.text();
  const form = new FormData();
  form.set('model', MODEL);
  form.set('file', new File([FILE.repeat(2_000)], `${FILE}.wav`));
  const heard = await sealed(`${toClients.url}/v1/audio/transcriptions`, {
    method: 'POST',
    headers: { authorization: headers.authorization },
    body: form,
  });
  expect(heard.status).toBe(200);
  await heard.text();
  const clear = await chat(fetch, CLEAR, { stream: true, stand_in: { id: CLEAR_ANSWER } });
  expect((await clear.text()).includes(CLEAR_ANSWER)).toBe(true);

  const seen = JSON.stringify(engine.requests);
  for (const word of [PROMPT, TOOL, ERROR]) expect(seen, 'the node reads it').toContain(word);
  for (const tap of [toClients, toAgents]) {
    expect([CLEAR, CLEAR_ANSWER].map(tap.heard), 'what is in clear is found here').toEqual([true, true]);
    expect(SEALED.filter(tap.heard)).toEqual([]);
  }
  const [control, ...inside] = await inMemory(gateway.process.pid, [CLEAR, ...SEALED]);
  expect([control, ...inside]).toEqual([true, false, false, false, false, false]);

  const data = filesUnder(gateway.data).map((file) => readFileSync(file));
  expect(data.length).toBeGreaterThan(2);
  const told = await Promise.all([gateway.admin('GET', 'usage'), gateway.nodes()]);
  const metrics = await fetch(`${gateway.url}/metrics`, {
    headers: { authorization: `Bearer ${gateway.adminKey}` },
  });
  expect(metrics.status).toBe(200);
  const texts = [gateway.process.output, JSON.stringify(told), await metrics.text()].map((text) => Buffer.from(text));
  for (const text of [...data, ...texts]) expect(SEALED.filter((word) => text.includes(word))).toEqual([]);
});

function filesUnder(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => join(directory, name))
    .filter((file) => statSync(file).isFile());
}
