/**
 * Inputs that broke other gateways and clients, by the public report of each. An engine's bytes reach the client as
 * they are, but for the usage event that the gateway asked for.
 */
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { dial, postBytes, raw } from '../../support/raw.ts';

const MODEL = 'reported';
const PATH = '/v1/chat/completions';
const json = (value: unknown) => JSON.stringify(value);
const event = (value: unknown) => `data: ${json(value)}\n\n`;
const piece = (content: string, finish_reason: string | null = null, more = {}) =>
  event({ id: 'a', choices: [{ index: 0, delta: { content }, finish_reason }], ...more });
const tool = (call: object) => event({ choices: [{ index: 0, delta: { tool_calls: [call] }, finish_reason: null }] });
const counts = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
const USAGE = event({ id: 'a', choices: [], usage: counts });
const DONE = 'data: [DONE]\n\n';
const END = piece('', 'stop') + USAGE + DONE;
const UNARY = json({
  id: 'a',
  choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }],
  usage: counts,
});

const sse = (head = '') =>
  `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n${head}transfer-encoding: chunked\r\n\r\n`;
const unary = (head = '') =>
  `${head}HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${UNARY.length}\r\n\r\n${UNARY}`;
const chunked = (bytes: string | Buffer) =>
  Buffer.concat([Buffer.from(`${Buffer.byteLength(bytes).toString(16)}\r\n`), Buffer.from(bytes), Buffer.from('\r\n')]);
const LAST = '0\r\n\r\n';

let gateway: Gateway;
let key: string;
/** What the engine sends, in writes of their own; a function is waited for. */
let script: (string | Buffer | (() => Promise<unknown>))[] = [];
/** The last body that the engine got. */
let received: string | undefined;
beforeAll(async () => {
  const engine = createServer(async (request, response) => {
    if (request.method === 'GET') return void response.end(json({ data: [{ id: MODEL }] }));
    let body = '';
    for await (const bytes of request) body += bytes;
    received = body;
    const { socket } = request;
    for (const step of script) {
      if (typeof step === 'function') await step();
      else socket.write(step);
      await delay(1); // a packet of its own
    }
  });
  await new Promise<void>((resolve) => engine.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    engine.close();
    engine.closeAllConnections();
  });
  const address = engine.address();
  const engineUrl = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  key = await gateway.createKey();
  await startAgent({ gateways: [gateway.url], token, engineUrl });
  await gateway.serving(1, 15_000, MODEL);
});
afterAll(endAll);

const headers = () => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' });
const body = (more: object = {}) => json({ model: MODEL, messages: [{ role: 'user', content: 'x' }], ...more });
const ask = (more: object = {}) => raw(`${gateway.url}${PATH}`, { headers: headers(), body: body(more) });

it.each<[what: string, report: string, events: string | string[], withoutUsage?: string]>([
  ['no space after the colon', 'openai/openai-python#498', (piece('a') + END).replaceAll('data: ', 'data:'), 'data:'],
  ['lines that end with CR', 'WHATWG event streams', (piece('a') + END).replaceAll('\n', '\r'), '\r'],
  ['several events in one packet', 'tenstorrent/tt-studio#936', [piece('a') + piece('b') + piece('c'), END]],
  ['a first event without choices', 'BerriAI/litellm#27969', event({ choices: [], usage: null }) + piece('a') + END],
  [
    'a tool call whose arguments are empty, then null',
    'BerriAI/litellm#40069',
    tool({ index: 0, id: 'c', function: { name: 'f', arguments: '' } }) +
      tool({ index: 0, id: null, function: { arguments: null } }) +
      piece('', 'tool_calls') +
      USAGE +
      DONE,
  ],
  ['finish reasons that are empty texts', 'ollama/ollama#4357', [piece('a', ''), piece('b', ''), END]],
  ['the last text beside its finish reason', 'NousResearch/hermes-agent#91373', piece('a', 'stop') + USAGE + DONE],
  ['no [DONE]', 'vllm-project/vllm#27572', [piece('a'), piece('', 'stop') + USAGE]],
  ['usage beside choices', 'alfredapp/openai-workflow#52', piece('a', 'stop', { usage: counts }) + DONE],
  ['comments between events', 'WHATWG event streams', [': PROCESSING\n\n', piece('a'), ': \n\n', END]],
  ['fields besides data', 'SamSaffron/term-llm#487', `id: 1\nretry: 3000\nevent: message\n${piece('a')}${END}`],
  ['data over several lines', 'WHATWG event streams', `data: {"choices":[{"index":0,\ndata: "delta":{}}]}\n\n${END}`],
  ['a byte order mark', 'WHATWG event streams', `\ufeff${piece('a')}${END}`],
  ['one line end behind [DONE]', 'WHATWG event streams', [piece('a', 'stop'), USAGE, 'data: [DONE]\n']],
  ['none behind it', 'WHATWG event streams', [piece('a', 'stop'), USAGE, 'data: [DONE]']],
  ['an event of 9 MB', 'open-webui/open-webui#17626', [piece('x'.repeat(9_000_000)), END]],
])('a stream with %s passes as it is (%s)', async (_what, _report, events, form = '') => {
  const pieces = typeof events === 'string' ? [events] : events;
  script = [sse(), ...pieces.map(chunked), LAST];
  const { status, body: got, complete } = await ask({ stream: true });
  const usage =
    form === 'data:' ? USAGE.replaceAll('data: ', 'data:') : form === '\r' ? USAGE.replaceAll('\n', '\r') : USAGE;
  expect([status, complete]).toEqual([200, true]);
  expect(got.equals(Buffer.from(pieces.join('').replace(usage, '')))).toBe(true);
});

it('a letter may come in packets of one byte (api7/aisix#111)', async () => {
  const letters = Buffer.from(piece('日本語🌍'));
  script = [sse(), ...Array.from(letters, (_, at) => chunked(letters.subarray(at, at + 1))), chunked(END), LAST];
  const { body: got } = await ask({ stream: true });
  expect(got.toString()).toBe(piece('日本語🌍') + piece('', 'stop') + DONE);
});

it('a stream that ends where every finish reason is an empty text broke off (sgl-project/sglang#3912)', async () => {
  script = [sse(), chunked(piece('a', '')), LAST];
  const { body: got } = await ask({ stream: true });
  expect(got.toString()).toContain('"code":"upstream_error"');
});

it('a stream that its engine calls JSON is one: each event goes out at once (vllm-project/vllm#47526)', async () => {
  let saw = () => {};
  const seen = new Promise<void>((resolve) => {
    saw = resolve;
  });
  script = [
    sse().replace('text/event-stream', 'application/json'),
    chunked(piece('a')),
    () => seen,
    chunked(END),
    LAST,
  ];
  const response = await fetch(`${gateway.url}${PATH}`, {
    method: 'POST',
    headers: headers(),
    body: body({ stream: true }),
  });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
  let text = '';
  for await (const bytes of response.body ?? []) {
    text += Buffer.from(bytes).toString();
    saw();
  }
  expect(text).toBe(piece('a') + piece('', 'stop') + DONE);
});

it('JSON in answer to a streaming request stays JSON (BerriAI/litellm#25766, the other way round)', async () => {
  script = [sse().replace('text/event-stream', 'application/json'), chunked(` ${UNARY}`), LAST];
  const { headers: head, body: got } = await ask({ stream: true });
  expect([head['content-type'], got.toString()]).toEqual(['application/json', ` ${UNARY}`]);
});

it('a stream in answer to a unary request passes as it is (BerriAI/litellm#25766)', async () => {
  script = [sse(), chunked(piece('a') + END), LAST];
  const { headers: head, body: got } = await ask();
  expect([head['content-type'], got.toString()]).toEqual(['text/event-stream', piece('a') + END]);
});

it('a compressed stream says so, and is compressed once (epam/ai-dial-core#1646)', async () => {
  const packed = gzipSync(piece('a') + END);
  script = [sse('content-encoding: gzip\r\n'), chunked(packed.subarray(0, 20)), chunked(packed.subarray(20)), LAST];
  const { headers: head, body: got } = await ask({ stream: true });
  expect(head['content-encoding']).toBe('gzip');
  expect(gunzipSync(got).toString()).toBe(piece('a') + END);
});

it.each([
  ['103 Early Hints before it', 'RFC 8297', unary('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n')],
  [
    'trailers behind it',
    'RFC 9112',
    `${sse('trailer: x-t\r\n').replace('text/event-stream', 'application/json')}${chunked(UNARY)}0\r\nx-t: 1\r\n\r\n`,
  ],
])('a unary answer with %s is whole (%s)', async (_what, _report, bytes) => {
  script = [bytes];
  const { status, body: got, complete } = await ask();
  expect([status, got.toString(), complete]).toEqual([200, UNARY, true]);
});

it.each<[what: string, report: string, more: object]>([
  ['nulls for optional fields', 'vllm-project/vllm#19862', { max_tokens: null, stop: null, stream: null, n: null }],
  ['max_completion_tokens', 'vllm-project/vllm-ascend#15931', { max_completion_tokens: 50 }],
  ['an empty list of stops', 'vllm-project/vllm#19862', { stop: [], max_tokens: 5 }],
  ['half of a surrogate pair', 'musistudio/claude-code-router#1672', { user: '\ud83d' }],
])('a request with %s reaches the engine as it is (%s)', async (_what, _report, more) => {
  script = [unary()];
  expect((await ask(more)).status).toBe(200);
  expect(received).toBe(body(more));
});

it.each(['base64', null])(
  'embeddings take encoding_format %j as it is (BerriAI/litellm#21474)',
  async (encoding_format) => {
    script = [unary()];
    const asked = json({ model: MODEL, input: [[1, 2], [3]], encoding_format });
    expect((await raw(`${gateway.url}/v1/embeddings`, { headers: headers(), body: asked })).status).toBe(200);
    expect(received).toBe(asked);
  },
);

it.each([
  ['/v1//chat/completions', 'BerriAI/litellm#8350'],
  ['/v1/chat/completions/', 'sigoden/aichat#767'],
  ['/v1/v1/chat/completions', 'nextcloud/integration_openai#164'],
  ['/chat/completions', 'tsundereraws/aisub-translator#2'],
])('%s is 404 that names the path which there is (%s)', async (path) => {
  for (const method of ['GET', 'POST']) {
    const { status, body: got } = await raw(`${gateway.url}${path}`, {
      method,
      headers: headers(),
      ...(method === 'POST' && { body: body() }),
    });
    expect(status).toBe(404);
    expect(got.toString()).toContain(`There is no ${path} here; there is ${PATH}: correct the client's base address.`);
  }
  const { body: got } = await raw(`${gateway.url}/v1/nothing`, { headers: headers() });
  expect(got.toString()).toContain('There is no /v1/nothing here.');
});

it.each(['gzip', 'zstd'])('a body in %s is 415 with its reason (zyycn/codex-proxy-rs#66)', async (encoding) => {
  const { status, body: got } = await raw(`${gateway.url}/v1/responses`, {
    headers: { ...headers(), 'content-encoding': encoding },
    body: gzipSync(body()),
  });
  expect(status).toBe(415);
  expect(got.toString()).toContain(`content-encoding: ${encoding}`);
});

it('a client that expects 100 Continue gets it before its body (postmanlabs/httpbin#429)', async () => {
  script = [unary()];
  const request = postBytes(`${gateway.url}${PATH}`, { ...headers(), expect: '100-continue' }, body());
  const at = request.indexOf('\r\n\r\n') + 4;
  const socket = await dial(gateway.url);
  atEnd(() => void socket.destroy());
  let got = '';
  socket.on('data', (bytes) => {
    got += bytes;
  });
  socket.write(request.slice(0, at));
  await eventually('100 Continue', 10_000, () => (got === 'HTTP/1.1 100 Continue\r\n\r\n' ? true : undefined));
  socket.write(request.slice(at));
  await eventually('the answer', 10_000, () => (got.includes(UNARY) ? true : undefined));
});
