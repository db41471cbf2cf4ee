/** Sealed requests through an agent's own endpoint: to the node of another agent, with the gateway gone. */
import { afterAll, expect, it } from 'vitest';
import { sealedFetch } from '../../clients/seal/index.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { IngressAgent } from '../support/ingress.ts';
import { inMemory } from '../support/process-memory.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { providerRoot } from '../support/provider-root.ts';
import { MODEL } from '../support/test-cluster.ts';

afterAll(endAll);

it('are opened by the node alone; the agent between reads nothing', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const root = await providerRoot('lab');
  const args = ['--delegate-file', root.delegateFile];
  const serving = await IngressAgent.start({ gateway, token, engineUrl: engine.url, args });
  const asking = await IngressAgent.start({ gateway, token, peer: serving });
  await asking.knows(1);
  await gateway.kill9();
  const { url, key } = await asking.door();
  const sealed = sealedFetch({ pins: { lab: root.pin } });
  const ask = (fetching: typeof fetch, content: string, stream: boolean) =>
    fetching(`${url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content }], stream }),
    });
  for (const stream of [false, true]) {
    const answer = await ask(sealed, 'canary-ingress-40ba', stream);
    const text = await answer.text();
    expect([answer.status, answer.headers.get('x-otela-sealed')], text).toEqual([200, 'pinned']);
    expect(text.includes(stream ? '[DONE]' : '"choices"')).toBe(true);
  }
  await ask(fetch, 'canary-ingress-clear', false).then((answer) => answer.text());
  const words = ['canary-ingress-clear', 'canary-ingress-40ba'];
  expect(await inMemory(asking.process.pid, words)).toEqual([true, false]);
});
