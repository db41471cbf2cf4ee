/**
 * The engine of the benchmarks: a bare TCP server with canned HTTP answers and no model. It does as little as possible,
 * so that on a small machine it takes processor time from nothing else. A request's prompt, which every gateway passes
 * on, says what it wants: `[bench unary]`, `[bench stream TOKENS RATE]` (rate 0: unpaced), `[bench paced SLOTS MS]` (at
 * most SLOTS concurrently, each takes MS; the others wait in order of arrival) or `[bench bytes N]`. `GET /asked`
 * returns the number of requests, and `GET /metrics` as much text as vLLM does. Each token carries the time of its
 * write (CLOCK_MONOTONIC in µs, one clock for all processes).
 */
import { createServer, type Socket } from 'node:net';
import { parseArgs } from 'node:util';
import { neverRejects } from '../shared/timing/in-background.ts';
import { MODEL, UNARY_BODY } from './engine-answers.ts';

/** A longer body is counted and discarded. */
const KEPT_BYTES = 16 * 1024;
const BLOCK = Buffer.alloc(256 * 1024, 'x');
const HEAD_END = Buffer.from('\r\n\r\n');

const json = (body: unknown, status = '200 OK') => {
  const text = JSON.stringify(body);
  return Buffer.from(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  );
};
const MODELS = json({
  object: 'list',
  data: [{ id: MODEL, object: 'model', owned_by: 'otela-bench-stand-in', max_model_len: 8192 }],
});
const UNARY = json(UNARY_BODY);
/** As long as vLLM's, most of which are histograms. An agent reads it while requests run. */
const METRICS_BYTES = 200 * 1024;
const HISTOGRAM = Array.from(
  { length: Math.ceil(METRICS_BYTES / 100) },
  (_, at) => `vllm:request_time_bucket{engine="0",model_name="${MODEL}",le="${at}",phase="decode"} 0.0\n`,
).join('');

/** @param running number of requests in progress */
function metrics(running: number): Buffer {
  const gauges = [`vllm:num_requests_running{engine="0"} ${running}`, 'vllm:num_requests_waiting{engine="0"} 0'];
  const text = `${gauges.join('\n')}\n${HISTOGRAM}`;
  return Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: ${text.length}\r\n\r\n${text}`);
}
const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n';
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
const event = (choices: unknown[], more: object = {}) =>
  `data: ${JSON.stringify({ id: 'bench', object: 'chat.completion.chunk', created: 0, model: MODEL, choices, ...more })}\n\n`;
const STAMP = '0000000000000000';
const [TOKEN_BEFORE = '', TOKEN_AFTER = ''] = chunk(
  event([{ index: 0, delta: { content: STAMP }, logprobs: null, finish_reason: null }]),
).split(STAMP);

function now(): number {
  const [seconds, nanos] = process.hrtime();
  return seconds * 1e6 + nanos / 1e3;
}

const token = () => TOKEN_BEFORE + Math.round(now()).toString().padStart(STAMP.length, '0') + TOKEN_AFTER;

interface Stream {
  socket: Socket;
  left: number;
  total: number;
  /** µs between tokens; 0: as fast as the socket accepts them. */
  every: number;
  due: number;
  usage: boolean;
}

const streams = new Set<Stream>();
let ticking = false;

function finish(stream: Stream): void {
  streams.delete(stream);
  const usage = { prompt_tokens: 16, completion_tokens: stream.total, total_tokens: 16 + stream.total };
  stream.socket.write(`${stream.usage ? chunk(event([], { usage })) : ''}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
}

/** Writes one token for each stream that is due, like a step of continuous batching. */
function tick(): void {
  const at = now();
  let nextDue = Number.POSITIVE_INFINITY;
  let unpaced = false;
  for (const stream of streams) {
    if (stream.every === 0) {
      unpaced = true;
      if (stream.socket.writableNeedDrain) continue;
    } else if (stream.due > at) {
      nextDue = Math.min(nextDue, stream.due);
      continue;
    }
    stream.socket.write(token());
    stream.due += stream.every;
    if (--stream.left <= 0) finish(stream);
    else if (stream.every > 0) nextDue = Math.min(nextDue, stream.due);
  }
  ticking = streams.size > 0;
  if (unpaced && streams.size > 0) setImmediate(tick);
  else if (streams.size > 0) setTimeout(tick, Math.max(0, Math.floor((nextDue - now()) / 1000)));
}

function startStream(socket: Socket, tokens: number, rate: number, usage: boolean): void {
  socket.write(STREAM_HEAD);
  const every = rate > 0 ? 1e6 / rate : 0;
  const stream: Stream = { socket, left: tokens, total: tokens, every, due: now(), usage };
  streams.add(stream);
  socket.once('close', () => streams.delete(stream));
  if (!ticking) {
    ticking = true;
    setImmediate(tick);
  } else if (every > 0) {
    // A paced stream's first token is due immediately, and the timer may be set for later.
    stream.socket.write(token());
    stream.left--;
    stream.due += every;
  }
}

/** Running paced requests, and those that wait for a slot. */
let working = 0;
const waiting: (() => void)[] = [];

function pace(socket: Socket, slots: number, ms: number): void {
  const work = () => {
    working++;
    setTimeout(() => {
      working--;
      if (!socket.destroyed) socket.write(UNARY);
      waiting.shift()?.();
    }, ms);
  };
  if (working < slots) work();
  else waiting.push(work);
}

async function sendBytes(socket: Socket, size: number): Promise<void> {
  socket.write(`HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: ${size}\r\n\r\n`);
  for (let left = size; left > 0 && !socket.destroyed; left -= BLOCK.length) {
    if (!socket.write(left >= BLOCK.length ? BLOCK : BLOCK.subarray(0, left))) {
      await new Promise<void>((resolve) => {
        socket.once('drain', resolve);
        socket.once('close', () => resolve());
      });
    }
  }
}

let asked = 0;

function answer(socket: Socket, path: string, body: string): void {
  if (path.startsWith('/v1/models')) return void socket.write(MODELS);
  if (path === '/asked') return void socket.write(json(asked));
  if (path === '/metrics') return void socket.write(metrics(streams.size + working));
  asked++;
  const [kind = 'unary', first = '', second = ''] = (/\[bench ([^\]]*)\]/.exec(body)?.[1] ?? 'unary').split(' ');
  if (kind === 'stream')
    return startStream(socket, Number(first), Number(second), body.includes('"include_usage":true'));
  if (kind === 'paced') return pace(socket, Number(first), Number(second));
  if (kind === 'bytes') return neverRejects(sendBytes(socket, Number(first)));
  socket.write(UNARY);
}

/** Reads the requests of one connection in order. */
class Connection {
  readonly #socket: Socket;
  #buffer: Buffer = Buffer.alloc(0);
  #path = '';
  /** Body bytes still to come; -1: the body is chunked; undefined: waiting for a head. */
  #left: number | undefined;
  #body = '';

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy());
    socket.on('data', (piece) => this.#take(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)));
  }

  #take(piece: Buffer): void {
    this.#buffer = this.#buffer.length === 0 ? piece : Buffer.concat([this.#buffer, piece]);
    while (this.#buffer.length > 0 && (this.#left === undefined ? this.#head() : this.#some())) {
      // Continues while there is input to process.
    }
  }

  #head(): boolean {
    const end = this.#buffer.indexOf(HEAD_END);
    if (end < 0) return false;
    const head = this.#buffer.toString('latin1', 0, end);
    this.#buffer = this.#buffer.subarray(end + HEAD_END.length);
    this.#path = head.slice(head.indexOf(' ') + 1, head.indexOf(' HTTP/'));
    this.#left = /\r\ntransfer-encoding: *chunked/i.test(head)
      ? -1
      : Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
    this.#body = '';
    if (this.#left === 0) this.#done();
    return true;
  }

  #keep(bytes: Buffer): void {
    if (this.#body.length < KEPT_BYTES) this.#body += bytes.toString('latin1', 0, KEPT_BYTES - this.#body.length);
  }

  #some(): boolean {
    if (this.#left === -1) return this.#chunk();
    const bytes = this.#buffer.subarray(0, this.#left);
    this.#keep(bytes);
    this.#buffer = this.#buffer.subarray(bytes.length);
    this.#left = (this.#left ?? 0) - bytes.length;
    if (this.#left === 0) this.#done();
    return true;
  }

  #chunk(): boolean {
    const line = this.#buffer.indexOf('\r\n');
    if (line < 0) return false;
    const size = Number.parseInt(this.#buffer.toString('latin1', 0, line), 16);
    const end = line + 2 + size + 2;
    if (this.#buffer.length < end) return false;
    this.#keep(this.#buffer.subarray(line + 2, end - 2));
    this.#buffer = this.#buffer.subarray(end);
    if (size === 0) this.#done();
    return true;
  }

  #done(): void {
    this.#left = undefined;
    answer(this.#socket, this.#path, this.#body);
  }
}

const { values } = parseArgs({
  options: { port: { type: 'string', default: '0' }, host: { type: 'string', default: '127.0.0.1' } },
});
const server = createServer((socket) => new Connection(socket));
server.listen(Number(values.port), values.host, () => {
  const address = server.address();
  console.log('bench engine: canned answers, no model');
  console.log(
    `bench engine ready http://${values.host}:${typeof address === 'object' && address !== null ? address.port : 0}`,
  );
});
process.once('SIGTERM', () => process.exit(0));
