/**
 * Logging in and out, and a session's rights, in a real browser against a real gateway with a real agent; the engine is
 * a mock.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { build } from 'esbuild';
import { expect, it } from 'vitest';
import { logIn, openPage } from '../support/browser.ts';
import { atEnd } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { ROOT } from '../support/where.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

it('a wrong key is told so; a right one opens the page, and no script can read it', async () => {
  const { page, complaints } = await openPage(visitors.browser);
  await page.goto(visitors.house.gateway.url);
  await page.getByLabel('API key').fill('sk-otela-wrong');
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.getByRole('alert').getByText('does not know this API key').waitFor();
  await logIn(page, visitors.house.gateway.url, visitors.house.key);
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
  const held = await page.evaluate('JSON.stringify({ ...localStorage, ...sessionStorage, cookie: document.cookie })');
  expect(held).not.toContain('otela');
  const cookies = await page.context().cookies();
  expect(cookies).toHaveLength(1);
  expect(cookies[0]).toMatchObject({ name: 'otela-session', httpOnly: true, sameSite: 'Lax' });
  expect(cookies[0]?.value).not.toContain(visitors.house.key);
  expect(complaints).toEqual([]);
});

it('a consumer sees no nodes and no providers; logging out ends it', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  expect(await page.getByRole('navigation').getByRole('link').allTextContents()).toEqual([
    'Chat',
    'Models',
    'Batches',
    'Usage',
    'Keys',
    'Access',
  ]);
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Log out' }).click();
  await page.getByLabel('API key').waitFor();
  await page.reload();
  await page.getByLabel('API key').waitFor();
});

it('another site cannot act with the session', async () => {
  const { page } = await visitors.enter();
  const [cookie] = await page.context().cookies();
  const headers = {
    cookie: `${cookie?.name}=${cookie?.value}`,
    'content-type': 'application/json',
    'sec-fetch-site': 'cross-site',
  };
  const body = JSON.stringify({ name: 'stolen' });
  const stolen = await fetch(`${visitors.house.gateway.url}/admin/keys`, { method: 'POST', headers, body });
  expect(stolen.status).toBe(403);
  const forged = { ...headers, cookie: `${cookie?.name}=key.AAAA.BBBB`, 'sec-fetch-site': 'same-origin' };
  expect((await fetch(`${visitors.house.gateway.url}/admin/me`, { headers: forged })).status).toBe(401);
});

/**
 * Serves an empty page and openai-js, from an origin that is not the gateway's. The site is the same, so cookies go.
 */
async function otherOrigin(): Promise<string> {
  const stdin = { contents: "export { OpenAI } from 'openai'", resolveDir: ROOT };
  const options = { bundle: true, format: 'esm', platform: 'browser', logLevel: 'silent', write: false } as const;
  const [library] = (await build({ stdin, ...options })).outputFiles;
  const server = createServer(({ url }, response) => {
    const isLibrary = url === '/openai.mjs';
    response.setHeader('content-type', isLibrary ? 'text/javascript' : 'text/html');
    response.end(isLibrary ? library?.contents : '<title>chat</title>');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
}

it('a page of another origin chats by openai-js with a key, and reads nothing with the session cookie', async () => {
  const { url } = visitors.house.gateway;
  const { page } = await visitors.enter(visitors.house.key);
  await page.goto(await otherOrigin());
  // A text, because Vite would replace the import of a function.
  const said = await page.evaluate(`(async () => {
    const { OpenAI } = await import('/openai.mjs');
    const client = new OpenAI({ baseURL: '${url}/v1', apiKey: '${visitors.house.key}', dangerouslyAllowBrowser: true });
    const { data, response } = await client.chat.completions
      .create({ model: '${MODEL}', messages: [{ role: 'user', content: 'Hi' }], stream: true, stand_in: { tokens: 3 } })
      .withResponse();
    let text = '';
    for await (const { choices } of data) text += choices[0]?.delta.content ?? '';
    const refused = await client.models.retrieve('no/such').catch(({ code }) => code);
    return { text, node: response.headers.get('x-otela-node'), refused };
  })()`);
  expect(said).toEqual({ text: expect.stringMatching(/./), node: expect.any(String), refused: 'model_not_found' });
  const withCookie = async (base: string) => {
    const asked = [
      ['GET', '/v1/models'],
      ['GET', '/v1/registry/nodes'],
      ['GET', '/admin/me'],
      ['POST', '/v1/chat/completions'],
    ] as const;
    const read = asked.map(([method, path]) =>
      fetch(`${base}${path}`, { method, credentials: 'include' }).then(
        ({ status }) => `${path}: ${status}`,
        () => 'nothing',
      ),
    );
    return Promise.all(read);
  };
  expect(await page.evaluate(withCookie, url)).toEqual(['nothing', 'nothing', 'nothing', 'nothing']);
});

it('the page speaks the browser’s language, and another one that is chosen and remembered', async () => {
  const { page, complaints } = await openPage(visitors.browser, { locale: 'de-CH' });
  const { url } = visitors.house.gateway;
  await page.goto(url);
  await page.getByLabel('API-Schlüssel').fill(visitors.house.key);
  await page.getByRole('button', { name: 'Anmelden', exact: true }).click();
  await page.getByText('Wie kann ich helfen?').waitFor();
  expect(await page.locator('html').getAttribute('lang')).toBe('de');
  await page.getByRole('button', { name: 'Konto' }).click();
  await page.getByRole('menuitemradio', { name: 'Français' }).click();
  await page.getByText('Que puis-je faire pour vous ?').waitFor();
  await page.reload();
  await page.getByText('Que puis-je faire pour vous ?').waitFor();
  expect(await page.locator('html').getAttribute('lang')).toBe('fr');
  for (const name of ['Modèles', 'Lots', 'Utilisation', 'Clés', 'Accès']) {
    await page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
    await page.getByRole('heading', { level: 1, name }).waitFor();
  }
  expect(complaints).toEqual([]);
});
