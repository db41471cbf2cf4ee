/** The server of an agent's control socket. */
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { errorText } from '../../shared/text/error-text.ts';
import {
  type AgentStatus,
  type ControlRequest,
  controlRequestSchema,
  type NetworkRow,
  type PullStatus,
  REQUEST_MAX_BYTES,
  type WeightsReport,
} from './control-protocol.ts';
import { withShortPath } from './short-socket-path.ts';
import { CONTROL_SOCKET } from './state-directory.ts';

export interface ControlHandlers {
  status(): AgentStatus;
  /** Returns all sessions that this agent knows. */
  network(): NetworkRow[];
  /** Returns the agent's metrics in Prometheus' text format. */
  metrics(): string;
  /** Undefined if this agent stores no weights. */
  readonly weights: WeightsHandlers | undefined;
  /** Begins to drain. No effect if the agent drains already. */
  drain(): void;
  /** Returns the stored end of the engine's output. */
  tail(): Buffer;
  /** Calls `listener` with later output. Returns a function that stops this. */
  follow(listener: (chunk: Buffer) => void): () => void;
}

/** Handlers of `otela-agent weights`. A rejection is answered with its message. */
export interface WeightsHandlers {
  report(): Promise<WeightsReport>;
  /** Calls `onStatus` at intervals, and at the end before it resolves. */
  pull(source: string, onStatus: (status: PullStatus) => void): Promise<void>;
  collect(source: string | undefined): Promise<number>;
}

/**
 * Maximum number of connections. It is enough for people and scripts on one machine, and keeps a faulty script from
 * using all file descriptors of the agent.
 */
const CONNECTIONS_MAX = 32;

/** A client that follows the output and is more bytes behind it than this is disconnected. */
const FOLLOWER_MAX_BYTES = 4 * 1024 * 1024;

/** A client that has not sent its whole request is disconnected if it sends nothing for this long. */
const REQUEST_TIMEOUT_MS = 30_000;

export class ControlServer {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #path: string;

  constructor(directory: string, handlers: ControlHandlers) {
    this.#path = join(directory, CONTROL_SOCKET);
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => this.#sockets.delete(socket));
      serve(socket, handlers);
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  async open(): Promise<void> {
    await withShortPath(this.#path, (path) => {
      return new Promise<void>((resolve, reject) => {
        this.#server.once('error', reject);
        this.#server.listen(path, () => resolve());
      });
    });
    // The directory is already 0700, but security scanners check the socket's own mode.
    chmodSync(this.#path, 0o600);
    this.#server.on('error', () => {});
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    rmSync(this.#path, { force: true });
  }
}

function serve(socket: Socket, handlers: ControlHandlers): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  socket.setTimeout(REQUEST_TIMEOUT_MS, () => socket.destroy());
  const onData = (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > REQUEST_MAX_BYTES) return refuse(socket, 'the request is longer than 4 KiB');
    chunks.push(chunk);
    if (!chunk.includes(10)) return;
    socket.off('data', onData);
    socket.resume();
    socket.setTimeout(0);
    const [line = ''] = Buffer.concat(chunks).toString('utf8').split('\n');
    const request = parseRequest(line);
    if (request) answer(socket, request, handlers);
    else refuse(socket, 'this agent does not know the request; is the command newer than the agent?');
  };
  socket.on('data', onData);
}

function parseRequest(line: string): ControlRequest | undefined {
  try {
    const parsed = controlRequestSchema.safeParse(JSON.parse(line));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

function answer(socket: Socket, request: ControlRequest, handlers: ControlHandlers): void {
  switch (request.op) {
    case 'status':
      socket.end(`${JSON.stringify({ ok: true, status: handlers.status() })}\n`);
      return;
    case 'network':
      socket.end(`${JSON.stringify({ ok: true, network: handlers.network() })}\n`);
      return;
    case 'metrics':
      socket.end(`${JSON.stringify({ ok: true, metrics: handlers.metrics() })}\n`);
      return;
    case 'weights':
    case 'pull':
    case 'collect':
      answerWeights(socket, request, handlers.weights).catch((error: unknown) => refuse(socket, errorText(error)));
      return;
    case 'drain':
      // The connection stays open. Its end shows the client that the agent has ended.
      socket.write('{"ok":true}\n');
      handlers.drain();
      return;
    case 'logs':
      sendLogs(socket, request.follow ?? false, handlers);
  }
}

async function answerWeights(
  socket: Socket,
  request: Extract<ControlRequest, { op: 'weights' | 'pull' | 'collect' }>,
  weights: WeightsHandlers | undefined,
): Promise<void> {
  if (weights === undefined) throw new Error('this agent stores no weights: start it with --weights or --weights-dir');
  const say = (answer: object) => void socket.write(`${JSON.stringify({ ok: true, ...answer })}\n`);
  if (request.op === 'weights') say({ weights: await weights.report() });
  else if (request.op === 'collect') say({ freed: await weights.collect(request.source) });
  else await weights.pull(request.source, (pull) => say({ pull }));
  socket.end();
}

function sendLogs(socket: Socket, follow: boolean, handlers: ControlHandlers): void {
  const send = (chunk: Buffer) => socket.write(`${JSON.stringify({ data: chunk.toString('base64') })}\n`);
  socket.write('{"ok":true}\n');
  send(handlers.tail());
  if (!follow) {
    socket.end();
    return;
  }
  const stop = handlers.follow((chunk) => {
    send(chunk);
    if (socket.writableLength > FOLLOWER_MAX_BYTES) socket.destroy();
  });
  socket.on('close', stop);
}

function refuse(socket: Socket, error: string): void {
  socket.removeAllListeners('data');
  socket.resume();
  socket.end(`${JSON.stringify({ ok: false, error })}\n`);
}
