/** Sends an answer at the requested pace, with the requested faults. */
import { existsSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer, SseEvent } from './answer.ts';
import type { Behaviour } from './behaviour.ts';
import type { Freeze } from './freeze.ts';
import type { EngineRequest } from './record.ts';
import { patternBytes } from './words.ts';

/** Size of one write of a large body; the next write waits until the socket accepted it. */
const BLOCK_BYTES = 64 * 1024;
/** Interval of checks for the file that a gated answer waits for. */
const GATE_MS = 50;

/** Resolves when the socket accepts more, or is closed. */
function writable(res: ServerResponse): Promise<void> {
  if (!res.writableNeedDrain || res.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      res.off('drain', done);
      res.off('close', done);
      resolve();
    };
    res.on('drain', done);
    res.on('close', done);
  });
}

/** A pause that ends early if the client disconnects. */
async function pause(res: ServerResponse, ms: number): Promise<void> {
  if (ms <= 0 || res.destroyed) return;
  const left = new AbortController();
  const onClose = () => left.abort();
  res.once('close', onClose);
  await sleep(ms, undefined, { signal: left.signal }).catch(() => undefined);
  res.off('close', onClose);
}

function render(event: SseEvent, eol: string): string {
  return event.event === undefined
    ? `data: ${event.data}${eol}${eol}`
    : `event: ${event.event}${eol}data: ${event.data}${eol}${eol}`;
}

/** Performs a fault that replaces the whole answer. Returns true if nothing is left to send. */
function failBeforeHead(res: ServerResponse, behaviour: Behaviour): boolean {
  switch (behaviour.fault) {
    case 'never':
      return true;
    case 'reset-before-head':
      res.socket?.resetAndDestroy();
      return true;
    case 'garbage':
      res.socket?.end('\u0000\u0001 this is not HTTP\r\n\r\n');
      return true;
    default:
      return false;
  }
}

/** Performs a fault in the middle of an answer. Returns true if the answer ends with it. */
function failNow(res: ServerResponse, behaviour: Behaviour, sent: number): boolean {
  if (sent < (behaviour.afterTokens ?? 0)) return false;
  switch (behaviour.fault) {
    case 'stall':
      return true;
    case 'reset':
      res.socket?.resetAndDestroy();
      return true;
    case 'end':
      res.end();
      return true;
    case 'close':
      // The bytes written so far are sent first; the end of the body (a last chunk, or the promised length) is never
      // sent.
      res.socket?.end();
      return true;
    default:
      return false;
  }
}

function sendStreamHead(res: ServerResponse, behaviour: Behaviour, request: EngineRequest): void {
  if (res.headersSent) return;
  res.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    ...behaviour.headers,
  });
  res.flushHeaders();
  request.headAt = Date.now();
}

async function sendStream(
  res: ServerResponse,
  events: Iterable<SseEvent>,
  { behaviour, freeze }: Pace,
  request: EngineRequest,
) {
  const eol = behaviour.eol === 'crlf' ? '\r\n' : '\n';
  const rate = behaviour.tokensPerSecond ?? 0;
  sendStreamHead(res, behaviour, request);
  const start = performance.now();
  for (const event of events) {
    if (event.token === true) {
      if (request.tokensSent === behaviour.afterTokens) await gateOpen(res, behaviour.faultGate);
      if (failNow(res, behaviour, request.tokensSent)) return;
      if (request.tokensSent === behaviour.pauseAfter) return;
      // Due times are absolute, so that a late timer does not slow down the whole stream.
      if (rate > 0) await pause(res, start + (request.tokensSent * 1000) / rate - performance.now());
      await freeze.over(res);
      request.tokensSent++;
    }
    if (res.destroyed) return;
    res.write(
      behaviour.fault === 'garbage-events' && event.token === true ? `data: {not json${eol}${eol}` : render(event, eol),
    );
    await writable(res);
  }
  if (behaviour.fault !== undefined && failNow(res, behaviour, Number.POSITIVE_INFINITY)) return;
  res.end();
}

async function sendBytes(
  res: ServerResponse,
  contentType: string,
  size: number,
  behaviour: Behaviour,
  request: EngineRequest,
) {
  res.writeHead(behaviour.status ?? 200, { 'content-type': contentType, 'content-length': size, ...behaviour.headers });
  request.headAt = Date.now();
  for (let at = 0; at < size; at += BLOCK_BYTES) {
    if (res.destroyed || (at > 0 && failNow(res, behaviour, Number.POSITIVE_INFINITY))) return;
    res.write(patternBytes(at, Math.min(BLOCK_BYTES, size - at)));
    await writable(res);
  }
  res.end();
}

function sendJson(res: ServerResponse, status: number, body: unknown, behaviour: Behaviour, request: EngineRequest) {
  const bytes = Buffer.from(JSON.stringify(body));
  res.writeHead(status, { 'content-type': 'application/json', 'content-length': bytes.length, ...behaviour.headers });
  request.headAt = Date.now();
  const fault = behaviour.fault;
  if (fault === 'reset' || fault === 'close' || fault === 'stall') {
    // Sends half of the promised bytes, and then performs the fault.
    res.write(bytes.subarray(0, bytes.length >> 1), () => failNow(res, behaviour, Number.POSITIVE_INFINITY));
    return;
  }
  res.end(bytes);
}

/** Resolves when the file exists, or when the client has disconnected. */
async function gateOpen(res: ServerResponse, gate: string | undefined): Promise<void> {
  while (gate !== undefined && !res.destroyed && !existsSync(gate)) await pause(res, GATE_MS);
}

interface Pace {
  behaviour: Behaviour;
  freeze: Freeze;
}

/** Sends `answer`. Resolves when nothing more will be written; the socket may still be open (a stall). */
export async function send(res: ServerResponse, answer: Answer, pace: Pace, request: EngineRequest): Promise<void> {
  const { behaviour, freeze } = pace;
  if (behaviour.earlyHead === true && answer.kind === 'stream') sendStreamHead(res, behaviour, request);
  await pause(res, behaviour.delayMs ?? 0);
  await gateOpen(res, behaviour.gate);
  if (answer.kind !== 'json' || answer.tokens !== undefined) await freeze.over(res);
  if (res.destroyed || failBeforeHead(res, behaviour)) return;
  if (behaviour.bytes !== undefined)
    return sendBytes(res, 'application/octet-stream', behaviour.bytes, behaviour, request);
  switch (answer.kind) {
    case 'stream':
      return sendStream(res, answer.events, pace, request);
    case 'bytes':
      return sendBytes(res, answer.contentType, answer.size, behaviour, request);
    case 'json': {
      const rate = behaviour.tokensPerSecond ?? 0;
      // A non-streaming answer takes as long as its tokens.
      if (rate > 0 && answer.tokens !== undefined) await pause(res, (answer.tokens * 1000) / rate);
      if (answer.tokens !== undefined) await freeze.over(res);
      if (res.destroyed) return;
      if (answer.tokens !== undefined) request.tokensSent = answer.tokens;
      return sendJson(res, answer.status, answer.body, behaviour, request);
    }
  }
}
