/**
 * `npm run figures:page [-- --minutes 30]` measures the cost of the page, in Chromium against a real gateway and agent.
 * The engine is a mock that writes 200 tokens a second. Run it on a quiet machine, because other programs cause dropped
 * frames.
 */
import { parseArgs } from 'node:util';
import type { CDPSession, Page } from 'playwright-core';
import * as z from 'zod';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { endAll } from '../support/processes.ts';
import { openTestCluster } from '../support/test-cluster.ts';

const RATE = 200;
const FIRST_LOAD_MAX_KIB = 250;
const READY_MAX_MS = 1_000;
/** 12,000 tokens a minute are kept as text, as elements and as React's state. */
const HEAP_MAX_MIB_PER_MIN = 5;
/** For a screen with 60 frames a second. */
const FRAME_MS = 1000 / 60;

const framesSchema = z.object({ frames: z.number(), dropped: z.number(), longestMs: z.number() });

/** Counts late frames: an interval of two frames between two frames is one dropped frame. */
const COUNT_FRAMES = `new Promise((resolve) => {
  let last = performance.now(); let frames = 0; let dropped = 0; let longestMs = 0;
  window.stopFrames = () => resolve({ frames, dropped, longestMs });
  const next = (now) => {
    const took = now - last; last = now; frames++;
    dropped += Math.max(0, Math.round(took / ${FRAME_MS}) - 1); longestMs = Math.max(longestMs, took);
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})`;

/** The mock writes one endless paragraph, which no model does: here each of its sentences becomes a paragraph. */
const PARAGRAPHS = `{
  const ask = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await ask(...asked);
    if (!String(answer.headers.get('content-type')).startsWith('text/event-stream') || answer.body === null) return answer;
    const [decoder, encoder] = [new TextDecoder(), new TextEncoder()];
    const cut = (piece, out) =>
      out.enqueue(encoder.encode(decoder.decode(piece, { stream: true }).replaceAll('"content":" ."', '"content":".\\\\n\\\\n"')));
    return new Response(answer.body.pipeThrough(new TransformStream({ transform: cut })), answer);
  };
}`;

const traceSchema = z.object({
  traceEvents: z.array(
    z.looseObject({ name: z.string(), pid: z.number(), tid: z.number(), tdur: z.number().optional() }),
  ),
});

/**
 * Tasks of the page's thread that use more CPU time than one frame lasts: each drops a frame on any machine, even an
 * idle one. Unlike dropped frames, they do not depend on other programs.
 */
function longTasks(trace: Buffer): { long: number; longestMs: number } {
  const { traceEvents } = traceSchema.parse(JSON.parse(trace.toString()));
  const thread = new Set(
    traceEvents
      .filter(({ args, name }) => name === 'thread_name' && isMainThread(args))
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  const costs = traceEvents
    .filter(({ name, pid, tid }) => name === 'ThreadControllerImpl::RunTask' && thread.has(`${pid} ${tid}`))
    .map(({ tdur = 0 }) => tdur / 1000);
  return { long: costs.filter((ms) => ms > FRAME_MS).length, longestMs: Math.max(0, ...costs) };
}

const isMainThread = (args: unknown) => z.object({ name: z.literal('CrRendererMain') }).safeParse(args).success;

const metricsSchema = z.object({ metrics: z.array(z.object({ name: z.string(), value: z.number() })) });

const PARTS = ['TaskDuration', 'ScriptDuration', 'RecalcStyleDuration', 'LayoutDuration'] as const;

/** Seconds that the page's thread has worked: total, scripts, styles and layout. */
async function worked(cdp: CDPSession): Promise<number[]> {
  const { metrics } = metricsSchema.parse(await cdp.send('Performance.getMetrics'));
  return PARTS.map((part) => metrics.find(({ name }) => name === part)?.value ?? 0);
}

function perToken(before: readonly number[], after: readonly number[], tokens: number): string {
  const [all, script, style, layout] = after.map((at, n) => ((1000 * (at - (before[n] ?? 0))) / tokens).toFixed(2));
  return `${all} ms of work per token: scripts ${script}, styles ${style}, layout ${layout}`;
}

/** Bytes on the wire and milliseconds until the user can write, with an empty cache and a session cookie. */
async function firstLoad(page: Page, url: string): Promise<{ kib: number; readyMs: number }> {
  const cdp = await page.context().newCDPSession(page);
  // First leaves the page, so that its remaining requests are not counted for this one.
  await page.goto('about:blank');
  await cdp.send('Network.enable');
  await cdp.send('Network.clearBrowserCache');
  let bytes = 0;
  cdp.on('Network.loadingFinished', ({ encodedDataLength }) => {
    bytes += encodedDataLength;
  });
  await page.goto(`${url}/#/chat`);
  await page.getByPlaceholder(/^Message ./).waitFor();
  const readyMs = z.number().parse(await page.evaluate('performance.now()'));
  await cdp.detach();
  return { kib: bytes / 1024, readyMs };
}

async function heapMib(cdp: CDPSession): Promise<number> {
  await cdp.send('HeapProfiler.collectGarbage');
  const { usedSize } = await cdp.send('Runtime.getHeapUsage');
  return usedSize / 1024 / 1024;
}

async function send(page: Page): Promise<void> {
  await page.getByLabel('Message').fill('Go on');
  await page.getByRole('button', { name: 'Send' }).click();
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { minutes: { type: 'string', default: '1' } } });
  const cluster = await openTestCluster();
  const browser = await openBrowser();
  const { page } = await openPage(browser, { viewport: { width: 1280, height: 800 } });
  const { url } = cluster.gateway;
  await page.addInitScript(PARAGRAPHS);
  await logIn(page, url, cluster.key);
  const loads = [await firstLoad(page, url), await firstLoad(page, url), await firstLoad(page, url)];
  const kib = Math.max(...loads.map((one) => one.kib));
  const readyMs = loads.map((one) => one.readyMs).sort((a, b) => a - b)[1] ?? 0;
  console.log(`first load            ${kib.toFixed(0)} KiB compressed (at most ${FIRST_LOAD_MAX_KIB})`);
  console.log(`ready to write after  ${readyMs.toFixed(0)} ms, the middle one of 3 (at most ${READY_MAX_MS})`);

  cluster.engine.control({ tokens: 10 * RATE, tokensPerSecond: RATE });
  const idle = page.evaluate(COUNT_FRAMES);
  await page.waitForTimeout(3_000);
  await page.evaluate('stopFrames()');
  const still = framesSchema.parse(await idle);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const idle0 = await worked(cdp);
  await send(page);
  await page.locator('.turn .markdown').first().waitFor();
  const counting = page.evaluate(COUNT_FRAMES);
  await browser.startTracing(page, { categories: ['toplevel'] });
  await page.locator('.told').waitFor({ timeout: 60_000 });
  await page.evaluate('stopFrames()');
  const streaming = framesSchema.parse(await counting);
  const { long, longestMs: longestTaskMs } = longTasks(await browser.stopTracing());
  console.log(`10 s of streaming     ${perToken(idle0, await worked(cdp), 10 * RATE)}`);
  for (const [name, { frames, dropped, longestMs }] of Object.entries({ still, streaming }))
    console.log(`frames, ${name.padEnd(12)}  ${frames} drawn, ${dropped} dropped, longest ${longestMs.toFixed(0)} ms`);
  console.log(
    `tasks, streaming      ${long} of more than a frame's time of the processor (none), longest ${longestTaskMs.toFixed(1)} ms`,
  );

  const minutes = Number(values.minutes);
  cluster.engine.control({ tokens: minutes * 60 * RATE, tokensPerSecond: RATE });
  await page.getByRole('button', { name: 'New chat' }).click();
  const before = await heapMib(cdp);
  const rested = await worked(cdp);
  await send(page);
  await page.locator('.told').waitFor({ timeout: minutes * 60_000 + 120_000 });
  const work = perToken(rested, await worked(cdp), minutes * 60 * RATE);
  const after = await heapMib(cdp);
  const told = await page.locator('.told').innerText();
  console.log(
    `memory                ${before.toFixed(1)} MiB before, ${after.toFixed(1)} MiB after ${minutes} min of streaming`,
  );
  console.log(`                      ${told}`);
  console.log(`                      ${work}`);
  const isLarge = after - before > 1 + minutes * HEAP_MAX_MIB_PER_MIN;
  if (kib > FIRST_LOAD_MAX_KIB || readyMs > READY_MAX_MS || long > 0 || isLarge) process.exitCode = 1;
}

try {
  await main();
} finally {
  await endAll();
}
