/** The dashboard in a real browser, served by a real self-hosted gateway with a real agent; the engine is a stand-in. */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { startEngine } from '../support/engine.ts';
import { type House, MODEL, openHouse } from '../support/house.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';

const SECOND = 'stand-in/model-2';
const PAGES = ['models', 'chat', 'keys', 'usage', 'nodes', 'providers'];

let house: House;
let browser: Browser;

beforeAll(async () => {
  house = await openHouse();
  browser = await openBrowser();
});
afterAll(endAll);

async function enter(key = house.gateway.adminKey, options = {}) {
  const visit = await openPage(browser, options);
  await logIn(visit.page, house.gateway.url, key);
  return visit;
}

async function loaded(page: Page): Promise<void> {
  await expect.poll(() => page.getByText('Loading …').count()).toBe(0);
}

const go = (page: Page, name: string) => page.getByRole('navigation').getByRole('link', { name, exact: true }).click();

it('a wrong key is told so; a right one opens the models, and no script can read it', async () => {
  const { page, complaints } = await openPage(browser);
  await page.goto(house.gateway.url);
  await page.getByLabel('Or with an API key').fill('sk-otela-wrong');
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.getByRole('alert').getByText('not known here').waitFor();
  await logIn(page, house.gateway.url, house.key);
  await page.getByRole('heading', { name: MODEL }).waitFor();
  const held = await page.evaluate('JSON.stringify({ ...localStorage, ...sessionStorage, cookie: document.cookie })');
  expect(held).not.toContain('otela');
  const cookies = await page.context().cookies();
  expect(cookies).toHaveLength(1);
  expect(cookies[0]).toMatchObject({ name: 'otela-session', httpOnly: true, sameSite: 'Lax' });
  expect(cookies[0]?.value).not.toContain(house.key);
  expect(complaints).toEqual([]);
});

it('whoever is a consumer sees no nodes and no providers; logging out ends it', async () => {
  const { page } = await enter(house.key);
  expect(await page.getByRole('navigation').getByRole('link').allTextContents()).toEqual([
    'Models',
    'Chat',
    'Keys',
    'Usage',
  ]);
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Or with an API key').waitFor();
  await page.reload();
  await page.getByLabel('Or with an API key').waitFor();
});

it('another site cannot act with the session', async () => {
  const { page } = await enter();
  const [cookie] = await page.context().cookies();
  const headers = {
    cookie: `${cookie?.name}=${cookie?.value}`,
    'content-type': 'application/json',
    'sec-fetch-site': 'cross-site',
  };
  const body = JSON.stringify({ name: 'stolen' });
  const stolen = await fetch(`${house.gateway.url}/admin/keys`, { method: 'POST', headers, body });
  expect(stolen.status).toBe(403);
  const forged = { ...headers, cookie: `${cookie?.name}=key.AAAA.BBBB`, 'sec-fetch-site': 'same-origin' };
  expect((await fetch(`${house.gateway.url}/admin/me`, { headers: forged })).status).toBe(401);
});

it('a model appears when its node serves and is gone when it is, without a reload; its code answers', async () => {
  const { page, complaints } = await enter();
  await page.getByRole('heading', { name: MODEL }).waitFor();
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const agent = await startAgent({ gateways: [house.gateway.url], token: house.token, engineUrl: engine.url });
  await house.gateway.serving(1, 15_000, SECOND);
  const known = performance.now();
  await page.getByRole('heading', { name: SECOND }).waitFor();
  expect(performance.now() - known).toBeLessThan(3_000);
  agent.signal('SIGTERM');
  await page.getByRole('heading', { name: SECOND }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Code' }).click();
  const code = await page.getByRole('dialog').locator('pre').innerText();
  const env = { ...process.env, OPENAI_API_KEY: house.key };
  // Not spawnSync: the stand-in engine lives in this process.
  const done = await promisify(execFile)('bash', ['-c', code], { env });
  expect(z.object({ model: z.string() }).parse(JSON.parse(done.stdout)).model).toBe(MODEL);
  expect(complaints).toEqual([]);
});

it('a chat streams, says who answered and how fast, stops, is edited and made again', async () => {
  house.engine.control({ tokens: 40, tokensPerSecond: 40 });
  const { page, complaints } = await enter(house.key);
  await go(page, 'Chat');
  await page.getByLabel('Message').fill('Tell me');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  const told = page.locator('.told');
  await told.getByText('tokens/s').waitFor();
  expect(await told.innerText()).toMatch(/^lab, node [a-z2-7]{8}, first token .*, \d+\.\d tokens\/s$/);
  await page.getByRole('button', { name: 'Regenerate' }).click();
  const running = house.engine.when(() => house.engine.running() > 0, 10_000);
  await page.getByRole('button', { name: 'Stop' }).click();
  await running;
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await eventually('the engine to stop', 5_000, async () => (house.engine.running() === 0 ? true : undefined));
  await page.getByRole('button', { name: 'Edit' }).click();
  expect(await page.getByLabel('Message').inputValue()).toBe('Tell me');
  expect(await page.locator('.turn').count()).toBe(0);
  await page.getByText('System prompt, temperature').click();
  await page.getByLabel('System prompt').fill('Be brief');
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Message').press('Enter');
  await told.getByText('tokens/s').waitFor();
  const body = z.object({
    temperature: z.number(),
    messages: z.array(z.object({ role: z.string(), content: z.string() })),
  });
  expect(body.parse(JSON.parse(house.engine.requests.at(-1)?.bodyStart ?? ''))).toEqual({
    temperature: 0.5,
    messages: [
      { role: 'system', content: 'Be brief' },
      { role: 'user', content: 'Tell me' },
    ],
  });
  house.engine.control({});
  expect(complaints).toEqual([]);
});

it('what the user sends as markup is text, and an answer with markup does nothing', async () => {
  const { page, complaints } = await enter(house.key);
  const evil =
    '<img src=x onerror="document.title=`evil`"><script>document.title="evil"</script> [x](javascript:alert(1)) **bold**';
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `data: ${JSON.stringify({ choices: [{ delta: { content: evil } }] })}\n\ndata: [DONE]\n\n`,
    }),
  );
  await go(page, 'Chat');
  await page.getByLabel('Message').fill(evil);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.markdown strong').getByText('bold').waitFor();
  expect(await page.locator('.turns img, .turns script, .turns a[href^="javascript"]').count()).toBe(0);
  expect(await page.title()).not.toBe('evil');
  expect(complaints).toEqual([]);
});

it('two models answer side by side, with a picture', async () => {
  const { page } = await enter(house.key);
  await go(page, 'Chat');
  await page.getByRole('button', { name: 'Two models side by side' }).click();
  const panes = page.locator('.pane');
  await panes.nth(1).waitFor();
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  await panes.nth(0).locator('input[type=file]').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: png });
  await panes.nth(0).locator('.thumb').waitFor();
  for (const n of [0, 1]) {
    await panes.nth(n).getByLabel('Message').fill(`To ${n}`);
    await panes.nth(n).getByRole('button', { name: 'Send' }).click();
    await panes.nth(n).locator('.told').getByText('tokens/s').waitFor();
  }
  const withPicture = house.engine.requests
    .map(({ bodyStart }) => bodyStart)
    .filter((text) => text.includes('image_url'));
  expect(withPicture).toHaveLength(1);
});

it('a key is made, shown once, works, and is refused after it was revoked', async () => {
  const { page, complaints } = await enter();
  await go(page, 'Keys');
  await page.getByRole('button', { name: 'New key' }).click();
  await page.getByLabel('Name').fill('paper');
  await page.getByLabel('Requests per minute').fill('100');
  await page.getByRole('button', { name: 'Make it' }).click();
  const key = await page.locator('.once code').innerText();
  const ask = () => fetch(`${house.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  expect((await ask()).status).toBe(200);
  await page.getByRole('button', { name: 'I have it' }).click();
  expect(await page.getByText(key).count()).toBe(0);
  const row = page.getByRole('row', { name: 'paper' });
  expect(await row.innerText()).toContain('100 requests/min');
  page.once('dialog', (dialog) => void dialog.accept());
  await row.getByRole('button', { name: 'Revoke paper' }).click();
  await row.getByText('revoked').waitFor();
  await eventually('its end', 6_000, async () => ((await ask()).status === 401 ? true : undefined));
  expect(complaints).toEqual([]);
});

it('usage is shown by model and as a CSV', async () => {
  expect(
    (await house.ask('/v1/chat/completions', { model: MODEL, messages: [{ role: 'user', content: 'count me' }] }))
      .status,
  ).toBe(200);
  const { page, complaints } = await enter();
  await eventually('the totals', 20_000, async () => {
    await go(page, 'Models');
    await go(page, 'Usage');
    await page.locator('.empty, table').first().waitFor();
    return (await page.getByRole('row', { name: MODEL }).count()) > 0 ? true : undefined;
  });
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'CSV' }).click(),
  ]);
  const csv = readFileSync(await download.path(), 'utf8');
  expect(csv).toMatch(/^model,requests,/);
  expect(csv).toContain(`"${MODEL}",`);
  await page.locator('figure canvas').waitFor();
  expect(complaints).toEqual([]);
});

it('nodes: the map, one node in detail, a filter, and what happened', async () => {
  const { page, complaints } = await enter();
  await go(page, 'Nodes');
  await page.getByRole('img', { name: /^One gateway and 1 cluster/ }).waitFor();
  await page.getByLabel('Find').fill('nobody');
  await page.getByText('No node is here').waitFor();
  await page.getByLabel('Find').fill('LAB model-1');
  const [node] = await house.gateway.nodes();
  await page.getByRole('button', { name: node?.session.slice(0, 8) ?? '' }).click();
  await page.getByRole('dialog').getByText('connected').waitFor();
  await page.getByRole('dialog').getByText('closed').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const agent = await startAgent({ gateways: [house.gateway.url], token: house.token, engineUrl: engine.url });
  await page.locator('.history li').first().waitFor();
  agent.signal('SIGTERM');
  await page.locator('.history').getByText('LEFT').waitFor();
  expect(complaints).toEqual([]);
});

it('providers: a join token that admits an agent, and a job script that is one whatever was typed', async () => {
  const { page, complaints } = await enter();
  await go(page, 'Providers');
  await page.getByRole('button', { name: 'New join token' }).click();
  await page.getByLabel('Name').fill('summer');
  await page.getByLabel('Provider', { exact: true }).fill('summer-school');
  await page.getByRole('button', { name: 'Make it' }).click();
  expect(await page.locator('.once code').innerText()).toMatch(/^otela-join-/);
  await page.getByLabel('Model').fill("x'; touch /tmp/otela-evil; '");
  await page.getByLabel('Partition').fill('gpu\n#SBATCH --uid=0');
  const script = await page.locator('.wizard pre').innerText();
  expect(spawnSync('bash', ['-n'], { input: script }).status).toBe(0);
  expect(
    script
      .split('\n')
      .filter((line) => line.startsWith('#SBATCH'))
      .join(),
  ).not.toContain('uid=0 ');
  expect(script.match(/^#SBATCH/gm)).toHaveLength(6);
  expect(script).toContain(`vllm serve 'x'\\''; touch /tmp/otela-evil; '\\'''`);
  expect(complaints).toEqual([]);
});

/** One per page and scheme; `serious` and `critical` are what the standard forbids. */
const resultSchema = z.object({
  violations: z.array(
    z.object({ id: z.string(), impact: z.string().nullish(), nodes: z.array(z.object({ html: z.string() })) }),
  ),
});

for (const colorScheme of ['light', 'dark'] as const) {
  it(`axe finds nothing serious on any page (${colorScheme})`, async () => {
    const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    // The page's own policy would keep the tester out.
    const { page } = await enter(house.gateway.adminKey, { colorScheme, bypassCSP: true, reducedMotion: 'reduce' });
    for (const name of PAGES) {
      await page.goto(`${house.gateway.url}/#/${name}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await loaded(page);
      await page.evaluate(axe);
      const { violations } = resultSchema.parse(await page.evaluate('axe.run()'));
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      expect(serious.map(({ id, nodes }) => `${name}: ${id} ${nodes[0]?.html.slice(0, 120)}`)).toEqual([]);
    }
  });
}

it('on a phone nothing is wider than the page', async () => {
  const { page } = await enter(house.gateway.adminKey, { viewport: { width: 360, height: 740 } });
  for (const name of PAGES) {
    await page.goto(`${house.gateway.url}/#/${name}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await loaded(page);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);
  }
});

it('a thousand nodes (a stand-in registry) are drawn and filtered without a hang', async () => {
  const { page } = await enter();
  const [like] = z
    .object({ data: z.array(z.looseObject({ session: z.string() })) })
    .parse(await house.gateway.admin('GET', '../v1/registry/nodes')).data;
  const data = Array.from({ length: 1000 }, (_, n) => ({
    ...like,
    session: `${String(n).padStart(4, 'a')}${'a'.repeat(22)}`,
    cluster: `c${n % 40}`,
  }));
  await page.route('**/v1/registry/nodes/stream', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `event: snapshot\ndata: ${JSON.stringify({ object: 'list', data })}\n\n`,
    }),
  );
  await page.goto(`${house.gateway.url}/#/nodes`);
  await page.reload();
  await page.locator('p').getByText('1,000 nodes').waitFor();
  const startedAt = performance.now();
  await page.getByLabel('Find').fill('c17');
  await page.locator('p').getByText('25 nodes').waitFor();
  expect(performance.now() - startedAt).toBeLessThan(3_000);
});
