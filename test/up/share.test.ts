/** `otela share`: a key with a budget, and the address at which others use it. */
import { request } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { LocalGateway } from '../../up/gateway/local-gateway.ts';
import { stateDirectory } from '../../up/state/state-directory.ts';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd, endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';

const MODEL = 'shared-model';

afterEach(endAll);

/** Sends the path unchanged; `fetch` would remove dot segments. */
function statusOf(url: string, path: string, key: string): Promise<number> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) =>
    request({ hostname, port, path, headers: { authorization: `Bearer ${key}` } }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    })
      .once('error', reject)
      .end(),
  );
}

it('a colleague gets a key that ends with its budget, by an address with no other path than /v1', async () => {
  const home = await temporaryDirectory('otela-share');
  const env = { HOME: home, XDG_STATE_HOME: join(home, 'state') };
  const gateway = new LocalGateway(stateDirectory({ ...process.env, ...env }));
  await gateway.ensure();
  atEnd(() => gateway.stop());
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const { token } = await gateway.createJoinToken('up-test');
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
  await eventually('a node', 30_000, async () => (await gateway.nodes('up-test'))[0]?.state === 'SERVING' || undefined);
  const share = (...args: string[]) =>
    new Managed([NODE, OTELA_MAIN, 'share', ...args], { label: 'otela share', env, cwd: ROOT });

  const shared = share('--with', 'ada', '--tokens', '0.05k', '--listen', '127.0.0.1');
  const [, url = '', key = ''] = await shared.line(/export OPENAI_BASE_URL=(\S+)\/v1 OPENAI_API_KEY=(\S+)/, 30_000);
  await shared.line(/not encrypted/, 10_000);
  expect(url).not.toBe(gateway.url);
  const ask = async () => {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, max_tokens: 30, messages: [{ role: 'user', content: 'Hello' }] }),
    });
    return { status: response.status, text: await response.text() };
  };
  expect(await ask()).toMatchObject({ status: 200 });
  await eventually('the end of the budget', 20_000, async () => ((await ask()).status === 429 ? true : undefined));
  for (const path of ['/admin/keys', '/', '/v1/../admin/keys', '/v1/%2e%2e/admin/keys', '//v1/x/../../admin/me'])
    expect([path, await statusOf(url, path, key)]).toEqual([path, 404]);
  // Its key has no rights of an operator at the gateway itself.
  expect(await statusOf(gateway.url, '/admin/settings', key)).toBe(403);

  // The key is found behind a page of newer ones.
  const endsAt = new Date(Date.now() + 3_600_000);
  for (let made = 0; made < 100; made += 1) await gateway.createSharedKey({ name: 'bob', tokens: undefined, endsAt });
  expect(await share('--with', 'ada', '--revoke').end(30_000)).toMatchObject({ code: 0 });
  await eventually('the end of the key', 20_000, async () => ((await ask()).status === 401 ? true : undefined));
  expect(await share('--with', 'ada', '--revoke').end(30_000)).toMatchObject({ code: 69 });
  const refused = share('--with', 'ada', '--listen', '198.51.100.7');
  expect(await refused.end(30_000)).toMatchObject({ code: 2 });
  expect(refused.output).toContain('is not an address of a private network');
});
