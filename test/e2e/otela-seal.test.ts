/** `otela seal`: what curl and tools without a fetch of their own talk to. */
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { main } from '../../agent/cli/main.ts';
import { sealCommand } from '../../clients/otela/seal-command.ts';
import { chatBody, MODEL, openHouse } from '../support/house.ts';
import { endAll, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';

afterAll(endAll);

it('seals what it gets on loopback, says who vouches, and is for no page of another site', async () => {
  const directory = await temporaryDirectory('otela-vouch');
  const [root, delegate] = [join(directory, 'lab.root'), join(directory, 'delegate.key')];
  expect(await main(['vouch', '--provider', 'lab', '--new-root', root], {})).toBe(0);
  expect(await main(['vouch', '--provider', 'lab', '--root', root, '--out', delegate], {})).toBe(0);
  expect(await main(['vouch', '--provider', 'lab', '--root', root, '--out', delegate], {}), 'over a key').toBe(2);
  const house = await openHouse({ agentArgs: ['--delegate-file', delegate] });
  const shown = new Managed(
    [NODE, join(ROOT, 'agent/cli/main.ts'), 'vouch', '--provider', 'lab', '--root', root, '--out', `${delegate}2`],
    { label: 'vouch' },
  );
  const [, pin = ''] = await shown.line(/clients pin: (lab=\S+)/, 20_000);
  const proxy = new Managed(
    [NODE, join(ROOT, 'clients/otela/main.ts'), 'seal', '--gateway', house.gateway.url, '--pin', pin, '--port', '0'],
    { label: 'otela seal' },
  );
  const [, url = ''] = await proxy.line(/otela seal ready (http:\S+)/, 20_000);
  const ask = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    fetch(url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${house.key}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const whole = await ask('/chat/completions', chatBody({ tokens: 3 }));
  expect([whole.status, whole.headers.get('x-otela-sealed')]).toEqual([200, 'pinned']);
  expect(await whole.text()).toContain('"choices"');
  const streamed = await ask('/chat/completions', chatBody({ tokens: 3 }, { stream: true }));
  expect((await streamed.text()).trim().endsWith('data: [DONE]')).toBe(true);
  await proxy.line(/sealed to \S+ of lab, key \S+: its provider’s root, which you pinned, vouches for it/, 5_000);
  const models = await fetch(`${url}/models`, { headers: { authorization: `Bearer ${house.key}` } });
  expect(await models.text()).toContain(MODEL);
  expect((await ask('/batches', {})).status).toBe(400);
  expect((await ask('/chat/completions', chatBody(), { origin: 'https://evil.example' })).status).toBe(403);
  const { origin } = new URL(url);
  expect((await ask('/chat/completions', chatBody({ tokens: 1 }), { origin })).status).toBe(200);
  const page = await fetch(`${origin}/`);
  expect([page.status, page.headers.get('content-security-policy')?.includes("default-src 'none'")]).toEqual([
    200,
    true,
  ]);
  expect(await page.text()).toContain('Only nodes of lab are sealed to');
});

it('says which gateway cannot be reached, and why', async () => {
  const gateway = `http://127.0.0.1:${await freePort()}`;
  const seal = await sealCommand({ gateway, pins: undefined, port: 0 }, { print: () => {}, complain: () => {} });
  const answer = await fetch(`http://127.0.0.1:${seal.port}/v1/models`);
  const said = await answer.text();
  seal.close();
  expect([answer.status, said]).toEqual([502, expect.stringContaining(`${gateway} cannot be reached: connect ECONN`)]);
});
