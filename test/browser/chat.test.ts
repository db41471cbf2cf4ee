/**
 * Questions and answers in the chat, in a real browser against a real gateway with a real agent; the engine is a mock.
 */
import type { Page } from 'playwright-core';
import { beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import { eventually } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { send } from './chat-page.ts';
import { pdf } from './pdf.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

/** Short answers, for tests that are about something else. */
beforeEach(() => visitors.house.engine.control({ tokens: 12, tokensPerSecond: 60 }));

const bodySchema = z.object({
  temperature: z.number().optional(),
  reasoning_effort: z.string().optional(),
  seed: z.number().optional(),
  stop: z.array(z.string()).optional(),
  response_format: z.object({ type: z.string() }).optional(),
  messages: z.array(z.object({ role: z.string(), content: z.unknown() })),
});

/** The body of the engine's last request. */
function lastAsked(): z.infer<typeof bodySchema> {
  return bodySchema.parse(JSON.parse(visitors.house.engine.requests.at(-1)?.bodyStart ?? ''));
}

/** Answers every request with these deltas. */
async function answerWith(page: Page, deltas: readonly object[], headers: Record<string, string> = {}): Promise<void> {
  const events = deltas.map((delta) => `data: ${JSON.stringify({ choices: [{ delta }] })}\n\n`).join('');
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({ headers: { 'content-type': 'text/event-stream', ...headers }, body: `${events}data: [DONE]\n\n` }),
  );
}

it('a chat streams, says which node answered and how fast, stops, is edited and made again, on branches', async () => {
  visitors.house.engine.control({ tokens: 40, tokensPerSecond: 40 });
  const { page, complaints } = await visitors.enter(visitors.house.key);
  const named: (string | undefined)[] = [];
  page.on('request', (request) => {
    const { 'x-otela-session': session, 'x-otela-resume': resumes } = request.headers();
    if (request.url().endsWith('/v1/chat/completions')) named.push(resumes === '1' ? session : 'does not resume');
  });
  await send(page, 'Tell me');
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  const told = page.locator('.told');
  await told.getByText('tokens/s').waitFor();
  expect(await told.innerText()).toMatch(
    /^lab · node [a-z2-7]{8} · time to first token .* · \d+ input tokens, 40 output tokens · \d+\.\d tokens\/s$/,
  );
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await visitors.house.engine.when(() => visitors.house.engine.running() > 0, 10_000);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped.').waitFor();
  expect(await page.getByLabel('Message').and(page.locator(':focus')).count()).toBe(1);
  await eventually('the engine to stop', 5_000, async () => (visitors.house.engine.running() === 0 ? true : undefined));
  await page.getByText('2 of 2').waitFor();
  await page.getByRole('button', { name: 'Earlier version' }).click();
  await told.getByText('tokens/s').waitFor();
  await page.getByRole('button', { name: 'Settings of this chat' }).click();
  await page.getByLabel('System prompt').fill('Be brief');
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Reasoning effort').selectOption('low');
  await page.getByLabel('Seed').fill('7');
  await page.getByLabel('Stop at').fill('END\n\\n\\n');
  await page.getByLabel('Answer as JSON').check();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Edit' }).click();
  expect(await page.getByLabel('Message').inputValue()).toBe('Tell me');
  await page.getByText('You are editing a message.').waitFor();
  await page.getByLabel('Message').fill('Tell me more');
  await page.getByLabel('Message').press('Enter');
  await told.getByText('tokens/s').waitFor();
  expect(await page.locator('.turn').count()).toBe(2);
  expect(lastAsked()).toEqual({
    temperature: 0.5,
    reasoning_effort: 'low',
    seed: 7,
    stop: ['END', '\n\n'],
    response_format: { type: 'json_object' },
    messages: [
      { role: 'system', content: 'Be brief' },
      { role: 'user', content: 'Tell me more' },
    ],
  });
  await page.getByRole('button', { name: 'Earlier version' }).click();
  await page.locator('.said').getByText('Tell me', { exact: true }).waitFor();
  // All turns of a conversation name it, and another conversation has another name.
  await page.getByRole('button', { name: 'New chat' }).click();
  await send(page, 'Something else');
  await expect.poll(() => named.length).toBe(4);
  expect(named[0]).toMatch(/^[0-9a-f]{24}$/);
  expect(named.map((name) => name === named[0])).toEqual([true, true, true, false]);
  expect(complaints).toEqual([]);
});

it('a new conversation while an answer streams ends it, and nothing of it comes back', async () => {
  visitors.house.engine.control({ tokens: 400, tokensPerSecond: 40 });
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await send(page, 'Tell me');
  await page.locator('.turn .markdown').first().waitFor();
  await page.getByRole('button', { name: 'New chat' }).click();
  await eventually('the engine to stop', 5_000, async () => (visitors.house.engine.running() === 0 ? true : undefined));
  await page.getByRole('button', { name: 'Send' }).waitFor();
  expect(await page.locator('.turn').count()).toBe(0);
  expect(complaints).toEqual([]);
});

it('what the user sends as markup is text, and an answer with markup does nothing', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  const evil = [
    '<img src=x onerror="document.title=`evil`"><script>document.title="evil"</script> [x](javascript:alert(1)) **bold**',
    '<style>body{display:none}</style><iframe src="https://evil.example"></iframe><form action="https://evil.example">',
    '![beacon](https://evil.example/p.png) [y](data:text/html,<script>1</script>)',
    '$\\pmb{y}$ and $\\href{javascript:alert(1)}{x}$ and $\\def\\a{\\a\\a}\\a$',
    '| a |\n|---|\n| <b onclick=alert(1)>c</b> |',
    '```html\n<script>document.title="evil"</script>\n```',
    '\u202Egnihtemos',
  ].join('\n\n');
  const elsewhere: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(visitors.house.gateway.url) && !/^(data|blob):/.test(request.url()))
      elsewhere.push(request.url());
  });
  await answerWith(page, [{ content: evil }]);
  await send(page, evil);
  await page.locator('.markdown strong').getByText('bold').waitFor();
  await page.locator('.markdown .code-block .token-keyword, .markdown .code-block [class^=token]').first().waitFor();
  await page.locator('.markdown math').first().waitFor();
  const acting = '.turns :is(img, script, style, iframe, form, [onclick], a[href^="javascript"], a[href^="data"])';
  expect(await page.locator(acting).count()).toBe(0);
  expect(await page.locator('.turns [href^="javascript"]').count()).toBe(0);
  expect(await page.title()).not.toBe('evil');
  expect(elsewhere).toEqual([]);
  expect(complaints).toEqual([]);
});

it.each([
  ['quotations', '>'.repeat(3_000)],
  ['lists', '- '.repeat(3_000)],
  ['quotations of lists', '> 1. '.repeat(1_000)],
  ['lists by indentation', Array.from({ length: 700 }, (_, n) => `${'  '.repeat(n)}- x`).join('\n')],
  ['emphasis', `${'*a **b '.repeat(2_000)}c${'** *'.repeat(2_000)}`],
  ['links', '[a]('.repeat(8_000)],
])('an answer of %s within each other stops neither the page nor the next visit', async (_, evil) => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await answerWith(page, [{ content: `Begin\n\n${evil} end-of-evil` }]);
  await send(page, 'Go');
  await page.locator('.markdown').getByText('end-of-evil').waitFor({ state: 'attached' });
  await page.reload();
  await page.locator('.markdown').getByText('end-of-evil').waitFor({ state: 'attached' });
  await page.getByLabel('Message').fill('still here');
  expect(complaints.filter((one) => !/call stack/.test(one))).toEqual([]);
});

it('formulas are MathML, code has colors and a button to copy it, tables are tables', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  const text =
    'Inline \\(a^2\\) and\n\n$$\\int_0^1 x\\,dx$$\n\n```python\ndef f(x):\n    return x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nPrices: $5 and `$x$`';
  await answerWith(page, [{ content: text }]);
  await send(page, 'Show me');
  await page.locator('.markdown math').nth(1).waitFor();
  expect(await page.locator('.markdown math[display=block]').count()).toBe(1);
  await page.locator('.token-keyword').getByText('def').waitFor();
  await page.getByRole('button', { name: 'Copy code' }).waitFor();
  expect(await page.locator('.markdown table').innerText()).toMatch(/a\s+b\s+1\s+2/);
  expect(await page.locator('.markdown code').getByText('$x$').count()).toBe(1);
  expect(complaints).toEqual([]);
});

it('reasoning is folded, tool calls are shown, and only the providers that were named may see a question', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  const asked: (string | null)[] = [];
  page.on('request', async (request) => {
    if (request.url().endsWith('/v1/chat/completions'))
      asked.push(await request.headerValue('x-otela-trusted-providers'));
  });
  await answerWith(page, [
    { reasoning_content: 'Seven times six' },
    { content: 'It is 42.' },
    { tool_calls: [{ index: 0, id: 'c1', function: { name: 'lookup', arguments: '{"q":' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '"deep thought"}' } }] },
  ]);
  await page.getByRole('button', { name: 'Settings of this chat' }).click();
  await page.getByLabel('Trusted providers').fill('lab, eth');
  await page.keyboard.press('Escape');
  await send(page, 'What is it?');
  await page.getByText('It is 42.').waitFor();
  const thought = page.getByText('Seven times six');
  expect(await thought.isVisible()).toBe(false);
  await page.getByText('Reasoning').click();
  await thought.waitFor({ state: 'visible' });
  await page.getByText('Calls lookup').click();
  await page.getByText('"deep thought"').waitFor({ state: 'visible' });
  expect(asked).toEqual(['lab, eth']);
});

it('one question goes to two models side by side, with a picture, and one of them is kept', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  await page.getByRole('button', { name: 'Compare two models' }).click();
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  await page.locator('input[type=file]').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: png });
  await page.locator('.thumb').waitFor();
  await send(page, 'What is on it?');
  const panes = page.locator('.pane');
  for (const n of [0, 1]) await panes.nth(n).locator('.told').getByText('12 output tokens').waitFor();
  const withPicture = visitors.house.engine.requests.filter(({ bodyStart }) => bodyStart.includes('image_url'));
  expect(withPicture).toHaveLength(2);
  await panes.nth(1).getByRole('button', { name: 'Continue with this one' }).click();
  await expect.poll(() => panes.count()).toBe(1);
});

it.each([
  [
    400,
    { error: { message: 'This model reads no pictures.', type: 'BadRequestError', code: 400 } },
    'This model reads no pictures.',
  ],
  [422, { detail: 'Field required' }, 'Field required'],
  [500, 'Internal Server Error', 'The gateway returned 500 without a reason.'],
])('an error is told in the words of whatever said no (%s)', async (status, body, words) => {
  const { page } = await visitors.enter(visitors.house.key);
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({ status, body: typeof body === 'string' ? body : JSON.stringify(body) }),
  );
  await send(page, 'Hello');
  await page.getByRole('alert').getByText(words).waitFor();
  await page.unroute('**/v1/chat/completions');
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.locator('.told').getByText('tokens').waitFor();
});

it('a wait says why: its place in the queue, loading, reading', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  // Mocks a gateway that reports waits: comments in a stream that stays open.
  await page.addInitScript(`
    const real = fetch;
    window.fetch = (input, init) => !String(input.url ?? input).endsWith('/v1/chat/completions') ? real(input, init) :
      Promise.resolve(new Response(new ReadableStream({ start(c) { window.tell = (t) => c.enqueue(new TextEncoder().encode(t)); window.end = () => c.close(); } })));
  `);
  await page.reload();
  await page
    .getByRole('button', { name: MODEL })
    .or(page.getByLabel('Model', { exact: true }))
    .first()
    .waitFor();
  await send(page, 'Hello');
  const status = page.locator('.turn').getByRole('status');
  await status.getByText('Waiting for a free node').waitFor();
  await page.evaluate("tell(': otela queued 3rd\\n\\n')");
  await status.getByText('Waiting: 3rd in the queue').waitFor();
  await page.evaluate("tell(': otela loading 60%\\n\\n')");
  await status.getByText('The model is loading: 60 %').waitFor();
  await page.evaluate("tell(': otela node=abcdefgh1 attempts=1 provider=lab\\n\\n')");
  await status.getByText('Reading').waitFor();
  await page.evaluate(`tell('data: {"choices":[{"delta":{"content":"Here"}}]}\\n\\n')`);
  await page.getByText('Here').waitFor();
  expect(await page.getByText('Another node continued').count()).toBe(0);
  await page.evaluate("tell(': otela continued node=zyxwvuts1 attempts=2\\n\\n')");
  await page.getByText('The node was lost. Another node continued this response.').waitFor();
  await page.evaluate(`tell('data: {"choices":[{"delta":{"content":" it is"}}]}\\n\\ndata: [DONE]\\n\\n')`);
  await page.evaluate('end()');
  await page.getByText('Here it is').waitFor();
  expect(await status.count()).toBe(0);
  expect(await page.locator('.told').innerText()).toContain('lab · node zyxwvuts');
});

it('a text file and a PDF go with a question as text, and what is none is refused in words', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  const chooser = page.locator('input[type=file]');
  await chooser.setInputFiles([
    { name: 'notes.md', mimeType: 'text/markdown', buffer: Buffer.from('The secret word is heron.') },
    { name: 'paper.pdf', mimeType: 'application/pdf', buffer: pdf('Entropy never falls in here') },
  ]);
  await page.getByText('1 page').waitFor();
  await chooser.setInputFiles({ name: 'program.bin', mimeType: '', buffer: Buffer.from([1, 0, 2, 0]) });
  await page.getByRole('alert').getByText('program.bin is not a picture, PDF or text file.').waitFor();
  await send(page, 'What do they say?');
  await page.locator('.told').waitFor();
  const asked = JSON.stringify(lastAsked().messages);
  expect(asked).toContain('The secret word is heron.');
  expect(asked).toContain('Entropy never falls in here');
  expect(complaints).toEqual([]);
});

it('the page follows a long answer, and lets go when one scrolls up', async () => {
  // At this rate, the answer lasts an hour: it must not end before the page is scrolled, even on a slow machine.
  visitors.house.engine.control({ tokens: 1_000_000, tokensPerSecond: 300 });
  const { page } = await visitors.enter(visitors.house.key);
  await send(page, 'Go on and on');
  const scroller = page.locator('.pane > div').first();
  // This program has no types for a page's elements.
  const scrolled = () =>
    scroller.evaluate((element) => {
      const { scrollHeight, scrollTop, clientHeight } = element as unknown as Record<string, number>;
      return { height: scrollHeight ?? 0, top: scrollTop ?? 0, shown: clientHeight ?? 0 };
    });
  const left = () => scrolled().then(({ height, top, shown }) => height - top - shown);
  await expect.poll(() => scrolled().then(({ height, shown }) => height - shown)).toBeGreaterThan(300);
  await expect.poll(left).toBeLessThan(80);
  const composer = await page.getByLabel('Message').boundingBox();
  expect((composer?.y ?? Number.NaN) + (composer?.height ?? Number.NaN)).toBeLessThan(page.viewportSize()?.height ?? 0);
  await scroller.hover();
  await page.mouse.wheel(0, -400);
  await page.getByRole('button', { name: 'To the end' }).waitFor();
  const before = await scrolled();
  await expect.poll(() => scrolled().then(({ height }) => height)).toBeGreaterThan(before.height + 100);
  expect(Math.abs((await scrolled()).top - before.top)).toBeLessThan(5);
  await page.getByRole('button', { name: 'To the end' }).click();
  await expect.poll(left).toBeLessThan(80);
  await page.keyboard.press('Escape');
  await page.getByText('Stopped.').waitFor();
});

it('a sealed chat leaves the browser unreadable, says what that is worth, and sends nothing in clear where it cannot be sealed', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  const sent: { type: string | undefined; body: string }[] = [];
  page.on('request', (request) => {
    if (!request.url().endsWith('/v1/chat/completions')) return;
    sent.push({ type: request.headers()['content-type'], body: request.postDataBuffer()?.toString('latin1') ?? '' });
  });
  await page.getByRole('button', { name: 'Settings of this chat' }).click();
  await page.getByLabel('Seal this chat').check();
  await page.keyboard.press('Escape');
  await page.getByText('Its operator could still read it').waitFor();
  await send(page, 'canary-page-0c41');
  await page.locator('.told').getByText('sealed').waitFor();
  expect(lastAsked().messages.at(-1)?.content).toBe('canary-page-0c41');
  expect(sent.map(({ type }) => type)).toEqual(['application/otela-sealed']);
  expect(sent[0]?.body).not.toContain('canary-page-0c41');
  await page.route('**/v1/otela/seal?*', (route) =>
    route.fulfill({ json: { object: 'list', model: MODEL, data: [] } }),
  );
  await page.reload();
  await page.getByText('Its operator could still read it').waitFor();
  await send(page, 'Again');
  await page.getByRole('alert').getByText('can decrypt sealed requests').waitFor();
  expect(sent.length).toBe(1);
});
