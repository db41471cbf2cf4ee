/**
 * `npm run screenshots` takes the pictures of the dashboard that the pages show. The engines are mocks. `npm run
 * screenshots -- status` takes only that of the status page, from a report that is always the same.
 */
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import type { StatusReport } from '../../gateway/status/status-object.ts';
import { statusPage } from '../../gateway/status/status-page.ts';
import { textsFor } from '../../gateway/status/status-texts.ts';
import { startAgent } from '../support/agent.ts';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { ROOT } from '../support/where.ts';

const OUT = join(ROOT, 'docs/screenshots');
const SECOND = 'stand-in/model-2';
const COLOR_SCHEMES = ['light', 'dark'] as const;
type ColorScheme = (typeof COLOR_SCHEMES)[number];
const LAPTOP = { width: 1280, height: 800 };

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

async function openModels(page: Page): Promise<void> {
  await page.locator('.card strong').first().waitFor();
  await page.getByText('2 running').waitFor();
  await page
    .locator('.now')
    .getByText(/^[1-9]\d*(\.\d)?$/)
    .first()
    .waitFor();
}

async function openChat(page: Page): Promise<void> {
  await page.getByLabel('Message').waitFor();
  await writtenAnswer(page);
  const notes = { name: 'lecture-07.md', mimeType: 'text/markdown', buffer: Buffer.from('# Integrals') };
  await page.locator('input[type=file]').setInputFiles(notes);
  await page.getByLabel('Message').fill('What is the Gaussian integral of this lecture? Check it in Python.');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.token-keyword').first().waitFor();
  await page.locator('.markdown math').first().waitFor();
  await page.locator('.told').getByText('240 output tokens').waitFor();
}

async function openNode(page: Page): Promise<void> {
  await page.getByRole('link', { name: 'details of this node' }).last().click();
  await page.getByText(/ago$/).waitFor();
  // Two samples make a line.
  await page.waitForTimeout(5_000);
}

/** The pages, by the route at which each begins. */
const PAGES: Readonly<Record<string, { scheme: readonly ColorScheme[]; open: (page: Page) => Promise<void> }>> = {
  models: { scheme: COLOR_SCHEMES, open: openModels },
  chat: { scheme: ['dark'], open: openChat },
  nodes: { scheme: ['light'], open: openNode },
};

/** 90 days of three models, until a fixed day: the picture changes only with the page. */
function statusReport(): StatusReport {
  const last = Date.UTC(2026, 10, 28);
  const models = [
    { id: MODEL, state: 'up' as const, outages: new Map([[61, 0.96]]), from: 0 },
    {
      id: SECOND,
      state: 'down' as const,
      outages: new Map([...[12, 13].map((n) => [n, 0.4] as const), [89, 0.7]]),
      from: 0,
    },
    { id: 'stand-in/model-3', state: 'up' as const, outages: new Map(), from: 70 },
  ];
  return {
    checked_at: new Date(last).toISOString(),
    banner: { level: 'warning', text: 'Maintenance of the cluster on Monday from 8 to 10. Requests wait until then.' },
    models: models.map(({ id, state, outages, from }) => {
      const days = Array.from({ length: 90 }, (_, n) => ({
        day: new Date(last - (89 - n) * 86_400_000).toISOString().slice(0, 10),
        availability: n < from ? null : (outages.get(n) ?? 1),
      }));
      const mean = (count: number) => {
        const known = days.slice(-count).flatMap(({ availability }) => availability ?? []);
        return Math.floor((known.reduce((sum, one) => sum + one, 0) / known.length) * 10_000) / 10_000;
      };
      return { id, state, day: mean(1), week: mean(7), quarter: mean(90), days };
    }),
  };
}

async function takeStatusPage(browser: Browser): Promise<void> {
  const { page } = await openPage(browser, { viewport: { width: 1000, height: 560 } });
  await page.setContent(statusPage(statusReport(), textsFor('en')));
  await page.screenshot({ path: join(OUT, 'status-light.png') });
}

async function main(): Promise<void> {
  if (process.argv[2] === 'status') return takeStatusPage(await openBrowser());
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
  cluster.engine.control({ tokens: 60, tokensPerSecond: 200 });
  const counted = await cluster.ask('/v1/chat/completions', {
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello' }],
  });
  await counted.text();
  const stop = await keepBusy(cluster);
  const browser = await openBrowser();
  await takeStatusPage(browser);
  for (const scheme of COLOR_SCHEMES) await takeAll(browser, cluster, scheme);
  await stop();
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

async function takeAll(browser: Browser, { gateway }: TestCluster, colorScheme: ColorScheme): Promise<void> {
  const { page } = await openPage(browser, { colorScheme, viewport: LAPTOP });
  await logIn(page, gateway.url, gateway.adminKey);
  for (const [name, { scheme, open }] of Object.entries(PAGES)) {
    if (!scheme.includes(colorScheme)) continue;
    await page.goto(`${gateway.url}/#/${name}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await open(page);
    await page.screenshot({ path: join(OUT, `${name === 'nodes' ? 'node' : name}-${colorScheme}.png`) });
  }
}

try {
  await main();
  console.log(`screenshots in ${OUT}`);
} finally {
  await endAll();
}
