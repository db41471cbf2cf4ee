/**
 * `npm run screenshots` saves every page of the dashboard, light, dark and on a phone, to docs/screenshots. The engines
 * are mocks.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { startEngine } from '../support/engine.ts';
import { MockFactory } from '../support/factory.ts';
import { ordinaryDay } from '../support/factory-day.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { ROOT } from '../support/where.ts';

const OUT = join(ROOT, 'docs/screenshots');
const SECOND = 'stand-in/model-2';
/** Sizes of a laptop and of a phone. */
const LOOKS = [
  { name: 'light', colorScheme: 'light', viewport: { width: 1280, height: 800 } },
  { name: 'dark', colorScheme: 'dark', viewport: { width: 1280, height: 800 } },
  { name: 'phone', colorScheme: 'light', viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
] as const;
type Look = (typeof LOOKS)[number];

/** Written by hand, because the mock engine has no formulas. */
const ANSWER = `The **Gaussian integral** is

$$\\int_{-\\infty}^{\\infty} e^{-x^2}\\,dx = \\sqrt{\\pi}$$

and for $a > 0$ it becomes $\\sqrt{\\pi / a}$. A numerical check:

\`\`\`python
import numpy as np

def gauss(a: float, n: int = 10_000) -> float:
    """Trapezoids over ten widths."""
    x = np.linspace(-10 / a**0.5, 10 / a**0.5, n)
    return np.trapezoid(np.exp(-a * x**2), x)
\`\`\`

| a | exact | trapezoids |
|---|---|---|
| 1 | 1.7725 | 1.7725 |
| 2 | 1.2533 | 1.2533 |
`;

async function writtenAnswer(page: Page): Promise<void> {
  const deltas = [{ reasoning_content: 'In polar coordinates it is elementary.' }, { content: ANSWER }];
  const usage = { prompt_tokens: 1_912, completion_tokens: 240 };
  const events = [...deltas.map((delta) => ({ choices: [{ delta }] })), { choices: [], usage }];
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
  const headers = { 'content-type': 'text/event-stream', 'x-otela-node': 'k3vq7mzd', 'x-otela-provider': 'lab' };
  await page.route('**/v1/chat/completions', (route) => route.fulfill({ headers, body: `${body}data: [DONE]\n\n` }));
}

const PAGES: Readonly<Record<string, (page: Page) => Promise<void>>> = {
  models: async (page) => {
    await page.locator('.card strong').first().waitFor();
    await page.getByText('2 running').waitFor();
    await page
      .locator('.now')
      .getByText(/^[1-9]\d*(\.\d)?$/)
      .first()
      .waitFor();
  },
  usage: (page) => page.locator('figure canvas').waitFor(),
  keys: (page) => page.getByRole('table').waitFor(),
  access: (page) => page.getByText('no node serves it').or(page.getByText('served')).first().waitFor(),
  ...Object.fromEntries(
    ['users', 'projects', 'routing', 'audit'].map((tab) => [
      `admin/${tab}`,
      (page: Page) => page.getByRole('table').waitFor(),
    ]),
  ),
  'admin/peers': (page) => page.getByText('There are no peers').waitFor(),
  'admin/settings': (page) => page.getByLabel('Public address').waitFor(),
  batches: (page) => page.getByText('running', { exact: true }).waitFor(),
  factory: (page) => page.locator('figure canvas').first().waitFor(),
  nodes: (page) => page.locator('figure canvas').waitFor(),
  providers: (page) => page.getByRole('table').first().waitFor(),
};

async function takeChat(page: Page, url: string, take: (what: string) => Promise<void>): Promise<void> {
  await page.goto(`${url}/#/chat`);
  await page.getByLabel('Message').waitFor();
  await take('chat-new');
  await writtenAnswer(page);
  const notes = { name: 'lecture-07.md', mimeType: 'text/markdown', buffer: Buffer.from('# Integrals') };
  await page.locator('input[type=file]').setInputFiles(notes);
  await page.getByLabel('Message').fill('What is the Gaussian integral of this lecture? Check it in Python.');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.token-keyword').first().waitFor();
  await page.locator('.markdown math').first().waitFor();
  await page.locator('.told').getByText('240 output tokens').waitFor();
  await take('chat');
}

async function main(): Promise<void> {
  mkdirSync(OUT, { recursive: true });
  // The GPUs are mocks, like the engines.
  process.env.PATH = `${join(ROOT, 'test/slurm')}:${process.env.PATH}`;
  const facts = ['--fact', 'quantization=bf16'];
  const cluster = await openTestCluster({ agentArgs: facts });
  const { gateway } = cluster;
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const token = await gateway.createJoinToken('summer-school', 'clariden');
  const start = () => startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args: facts });
  await start();
  const leaves = await start();
  await gateway.serving(2, 15_000, SECOND);
  leaves.signal('SIGTERM');
  await gateway.serving(1, 15_000, SECOND);
  await describe(cluster);
  await makeAccounts(cluster);
  await gateway.createKey('ada’s laptop', { limits: { requests_per_minute: 60 }, trusted_providers: ['lab'] });
  cluster.engine.control({ tokens: 60, tokensPerSecond: 200 });
  const counted = await cluster.ask('/v1/chat/completions', {
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello' }],
  });
  await counted.text();
  const stop = await keepBusy(cluster);
  const running = await makeBatches(cluster);
  const factory = await openFactory(cluster);
  const browser = await openBrowser();
  for (const look of LOOKS) await takeAll(browser, cluster, look, running);
  await factory.close();
  await stop();
}

/** Users and a project, as in a small lab. */
async function makeAccounts({ gateway }: TestCluster): Promise<void> {
  const made = await gateway.admin('POST', 'projects', {
    name: 'Climate models',
    limits: { requests_per_minute: 120, tokens_per_month: 50_000_000 },
    models: [MODEL],
  });
  const { id } = z.object({ id: z.string() }).parse(made);
  await gateway.admin('POST', 'users', { name: 'Ada Lovelace', email: 'ada@example.org', project_id: id });
  await gateway.admin('POST', 'users', { name: 'Grace Hopper', email: 'grace@example.org', role: 'operator' });
  await gateway.admin('PATCH', `catalogue/${MODEL}`, { always_on: true });
  await gateway.admin('PATCH', 'catalogue/org/old-8b', {
    access: [id],
    sunset_at: '2027-06-30T00:00:00Z',
    successor: MODEL,
  });
  const aliases = { policy: 'least-load', aliases: ['small'], fallbacks: [SECOND] };
  await gateway.admin('PUT', `models/${MODEL}`, aliases);
}

/** Describes the models as an operator would. */
async function describe({ gateway }: TestCluster): Promise<void> {
  const common = { license: 'Apache-2.0', output: ['text'], tools: true };
  await gateway.admin('PUT', `model-cards/${MODEL}`, {
    ...common,
    description: 'Small and quick. Good for **classification** and short answers in many languages.',
    size: '8B',
    context_length: 32_768,
    input: ['text'],
  });
  await gateway.admin('PUT', `model-cards/${SECOND}`, {
    ...common,
    description: 'Reads pictures, thinks before it answers.',
    size: '235B, 22B active',
    context_length: 131_072,
    input: ['text', 'image'],
    reasoning: true,
  });
}

/** Keeps two streams running, so that there is a load to show. */
async function keepBusy(cluster: TestCluster): Promise<() => Promise<void>> {
  const running = new AbortController();
  const streams = [1, 2].map(() =>
    cluster.ask(
      '/v1/chat/completions',
      {
        model: SECOND,
        stream: true,
        messages: [{ role: 'user', content: 'Go on' }],
        stand_in: { tokens: 1_000_000, tokensPerSecond: 45 },
      },
      { signal: running.signal },
    ),
  );
  const read = (await Promise.all(streams)).map((answer) => answer.text().catch(() => ''));
  return async () => {
    running.abort();
    await Promise.all(read);
  };
}

/** A mock that reports an ordinary day. */
async function openFactory({ gateway }: TestCluster): Promise<MockFactory> {
  const made = await gateway.admin('POST', 'factory-tokens', { provider: 'lab', name: 'night' });
  const { token } = z.object({ token: z.string() }).parse(made);
  const factory = new MockFactory({ url: gateway.url, token, name: 'night-shift', models: [] });
  factory.report = ordinaryDay(Date.now());
  return factory.open();
}

/** A finished batch, a refused one, and one that runs during the whole program. @returns the id of the last */
async function makeBatches(cluster: TestCluster): Promise<string> {
  const body = (n: number) => ({
    model: MODEL,
    messages: [{ role: 'user', content: `Claim ${n}: true?` }],
    stand_in: { tokens: 30, tokensPerSecond: 40 },
  });
  const line = (n: number, url: string) =>
    JSON.stringify({ custom_id: `claim-${n}`, method: 'POST', url, body: body(n) });
  const begin = async (name: string, lines: number, url = '/v1/chat/completions') => {
    const form = new FormData();
    form.append('purpose', 'batch');
    const text = Array.from({ length: lines }, (_, n) => line(n, n % 3 === 1 ? url : '/v1/chat/completions')).join(
      '\n',
    );
    form.append('file', new Blob([text]), `${name}.jsonl`);
    const headers = { authorization: `Bearer ${cluster.gateway.adminKey}` };
    const sent = await fetch(`${cluster.base}/files`, { method: 'POST', headers, body: form });
    const file = z.object({ id: z.string() }).parse(await sent.json());
    const asked = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' };
    const made = await cluster.ask('/v1/batches', { ...asked, metadata: { name } }, { headers });
    return z.object({ id: z.string() }).parse(await made.json()).id;
  };
  await begin('pilot', 12);
  await begin('typos', 9, '/v1/embeddings');
  // Enough lines that it runs until the last picture, even on a slow machine.
  return begin('claims of 2026', 40_000);
}

async function takeAll(
  browser: Browser,
  { gateway }: TestCluster,
  { name, ...options }: Look,
  running: string,
): Promise<void> {
  const { page } = await openPage(browser, options);
  const take = async (what: string) => void (await page.screenshot({ path: join(OUT, `${what}-${name}.png`) }));
  await page.goto(gateway.url);
  await page.getByLabel('API key').waitFor();
  await take('login');
  await logIn(page, gateway.url, gateway.adminKey);
  await takeChat(page, gateway.url, take);
  for (const [what, ready] of Object.entries(PAGES)) {
    await page.goto(`${gateway.url}/#/${what}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await ready(page);
    await take(what.replace('/', '-'));
  }
  await page.goto(`${gateway.url}/#/batches/${running}`);
  await page.getByText(/lines\/s/).waitFor();
  await take('batch');
  await page.goto(`${gateway.url}/#/nodes`);
  await page.getByRole('heading', { name: 'Joins and losses' }).scrollIntoViewIfNeeded();
  await take('history');
  await page.getByRole('link', { name: 'details of this node' }).last().click();
  await page.getByText(/ago$/).waitFor();
  // Two samples make a line.
  await page.waitForTimeout(5_000);
  await take('node');
  const [busy] = (await gateway.nodes()).filter(({ models, state }) => state === 'SERVING' && models[0]?.id === SECOND);
  await page.goto(`${gateway.url}/#/nodes/${busy?.session}`);
  await page.getByText(/ago$/).waitFor();
  await page.waitForTimeout(5_000);
  await page.getByRole('heading', { name: 'Load', exact: true }).scrollIntoViewIfNeeded();
  await take('node-busy');
  await page.goto(`${gateway.url}/docs#post_admin_projects`);
  await page.locator('#post_admin_projects').getByLabel('Body').waitFor();
  await take('api-reference');
}

try {
  await main();
  console.log(`screenshots in ${OUT}`);
} finally {
  await endAll();
}
