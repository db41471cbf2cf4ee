/** The mock engine's `/v1/realtime`: it answers like vLLM's transcription and OpenAI's responses. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import * as z from 'zod';
import type { EngineRequest, RequestLog } from './record.ts';

const MESSAGE_MAX_BYTES = 4 * 1024 * 1024;
const WORDS = ['eins', ' zwei', ' drei'];

/** Messages that the mock knows. `test.*`: what a test wants of the engine. */
const messageSchema = z.looseObject({
  type: z.string(),
  model: z.string().optional(),
  audio: z.string().optional(),
  final: z.boolean().optional(),
  code: z.number().optional(),
  bytes: z.number().optional(),
});

interface Engine {
  readonly log: RequestLog;
  readonly models: readonly string[];
  admits(authorization: string | undefined): boolean;
}

export class RealtimeSessions {
  readonly #engine: Engine;
  readonly #sockets = new WebSocketServer({ noServer: true, maxPayload: MESSAGE_MAX_BYTES });

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  accept(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const url = new URL(request.url ?? '/', 'http://engine');
    const model = url.searchParams.get('model') ?? '';
    socket.on('error', () => {});
    if (!this.#engine.admits(request.headers.authorization)) return refuse(socket, 401, 'no valid key');
    if (!url.pathname.endsWith('/v1/realtime') || !this.#engine.models.includes(model))
      return refuse(socket, 404, `The model '${model}' does not exist.`);
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const seen = this.#engine.log.begin('GET', request.url ?? '/', headers);
    this.#sockets.handleUpgrade(request, socket, head, (connection) => this.#serve(connection, seen, model));
    this.#engine.log.changed(seen);
  }

  #serve(connection: WebSocket, seen: EngineRequest, model: string): void {
    const say = (message: object) => connection.send(JSON.stringify(message));
    let audioBytes = 0;
    say({ type: 'session.created', session: { model } });
    connection.on('message', (data, isBinary) => {
      const bytes = bytesOf(data);
      seen.bodyBytes += bytes.length;
      if (isBinary) return connection.send(bytes);
      const message = messageSchema.parse(JSON.parse(bytes.toString()));
      switch (message.type) {
        case 'session.update':
          return say({ type: 'session.updated', model: message.model });
        case 'input_audio_buffer.append':
          audioBytes += Buffer.from(message.audio ?? '', 'base64').length;
          return;
        case 'input_audio_buffer.commit': {
          for (const delta of WORDS) say({ type: 'transcription.delta', delta });
          const usage = { prompt_tokens: audioBytes, completion_tokens: 3, total_tokens: audioBytes + 3 };
          return say({ type: 'transcription.done', text: WORDS.join(''), usage });
        }
        case 'response.create':
          return say({ type: 'response.done', response: { usage: { input_tokens: 7, output_tokens: 5 } } });
        case 'test.close':
          return connection.close(message.code, 'as asked');
        case 'test.send':
          return connection.send('x'.repeat(message.bytes ?? 0));
        default:
          return say({ type: 'error', error: { message: `unknown type ${message.type}` } });
      }
    });
    connection.on('close', (code) => this.#engine.log.end(seen, code === 1006 ? 'aborted' : 'finished'));
  }

  /** Breaks all sessions. */
  end(): void {
    for (const connection of this.#sockets.clients) connection.terminate();
  }
}

function bytesOf(data: RawData): Buffer {
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data as Buffer);
}

function refuse(socket: Duplex, status: number, message: string): void {
  const body = JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: status } });
  socket.end(
    `HTTP/1.1 ${status} Refused\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n` +
      `connection: close\r\n\r\n${body}`,
  );
}
