/** One realtime session at the engine: the request's message records go to a WebSocket, and its messages come back. */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { type RawData, WebSocket } from 'ws';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import {
  decodeClose,
  encodeClose,
  encodeRecord,
  MESSAGE_RECORDS_TYPE,
  type MessageRecord,
  REALTIME_MESSAGE_MAX_BYTES,
  RecordReader,
} from '../../shared/openai/realtime/message-records.ts';
import { REALTIME_MODEL_HEADER } from '../../shared/openai/realtime/realtime-model.ts';
import type { OpenFrame } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { EngineCall, EngineEvents } from './engine-call.ts';
import { engineHeaders } from './engine-headers.ts';

/** An engine that accepts no session within this time is considered unreachable. */
const HANDSHAKE_MS = 30_000;
/** Maximum bytes that wait for the engine's socket. */
const UNSENT_MAX_BYTES = 256 * 1024;
/** Maximum bytes of a refusal's body that are sent to the client. */
const REFUSAL_MAX_BYTES = 64 * 1024;
/** Close code for an abnormal end (RFC 6455 §7.4.1): the connection broke without a close frame. */
const ABNORMAL = 1006;

interface Options {
  target: EngineTarget;
  open: OpenFrame;
  endpoint: Endpoint;
  content: Buffer | Readable;
  events: EngineEvents;
}

export class RealtimeCall implements EngineCall {
  readonly #events: EngineEvents;
  readonly #socket: WebSocket;
  readonly #content: Readable;
  readonly #records = new RecordReader();
  /** True if the engine accepted the session. */
  #opened = false;
  /** True if the caller has received the end, or needs nothing more. */
  #finished = false;
  #fault = 'the connection closed';

  constructor({ target, open, endpoint, content, events }: Options) {
    this.#events = events;
    this.#content = Buffer.isBuffer(content) ? Readable.from([content]) : content;
    const url = new URL(`${target.pathPrefix}${endpoint.enginePath}`, target.origin.replace(/^http/, 'ws'));
    url.searchParams.set('model', modelOf(open.headers));
    const socket = new WebSocket(url, {
      headers: headersOf(open, target),
      perMessageDeflate: false,
      handshakeTimeout: HANDSHAKE_MS,
      maxPayload: REALTIME_MESSAGE_MAX_BYTES,
      followRedirects: false,
    });
    this.#socket = socket;
    socket.binaryType = 'nodebuffer';
    socket.on('open', () => this.#onOpen());
    socket.on('unexpected-response', (_request, response) => this.#onRefusal(response));
    socket.on('message', (data, isBinary) => this.#onMessage(data, isBinary));
    socket.on('error', ({ message }) => {
      this.#fault = message;
    });
    socket.on('close', (code, reason) => this.#onClose(code, reason));
  }

  #onOpen(): void {
    if (this.#finished) return;
    this.#opened = true;
    this.#events.onHead(200, [['content-type', MESSAGE_RECORDS_TYPE]], false);
    this.#events.onData(encodeRecord('opened'));
    this.#content.on('data', (chunk: Buffer) => this.#send(chunk));
    this.#content.on('end', () => this.#socket.close());
    this.#content.on('error', () => this.#socket.terminate());
  }

  /** Sends the client's messages, and reads no further ones while the engine's socket takes none. */
  #send(chunk: Buffer): void {
    let records: MessageRecord[];
    try {
      records = this.#records.push(chunk);
    } catch {
      return this.#fail('failed', 'the messages are not valid records');
    }
    for (const record of records) {
      if (this.#socket.readyState !== WebSocket.OPEN) return;
      if (record.kind === 'close') {
        const { code, reason } = decodeClose(record);
        this.#socket.close(code, reason);
      } else if (record.kind !== 'opened') {
        this.#socket.send(record.bytes, { binary: record.kind === 'binary' }, () => this.#continue());
      }
    }
    if (this.#socket.bufferedAmount > UNSENT_MAX_BYTES) this.#content.pause();
  }

  #continue(): void {
    if (this.#content.isPaused() && this.#socket.bufferedAmount <= UNSENT_MAX_BYTES / 2) this.#content.resume();
  }

  #onMessage(data: RawData, isBinary: boolean): void {
    if (!this.#finished && Buffer.isBuffer(data)) this.#events.onData(encodeRecord(isBinary ? 'binary' : 'text', data));
  }

  /** The engine has no such path, does not know the model, or requires a key: its answer becomes the response. */
  #onRefusal(response: IncomingMessage): void {
    const status = response.statusCode ?? 0;
    // With a listener of this event, `ws` leaves the connection to us.
    if (status < 400 || status > 599) {
      response.destroy();
      return this.#fail('engine_closed', `the engine answered a WebSocket request with status ${status}`);
    }
    const pairs = Object.entries(response.headers).flatMap(([name, value]): [string, string][] =>
      typeof value === 'string' ? [[name, value]] : [],
    );
    this.#events.onHead(status, engineHeaders(pairs), false);
    let bytes = 0;
    response.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (this.#finished) return;
      if (bytes > REFUSAL_MAX_BYTES) response.destroy();
      else this.#events.onData(chunk);
    });
    response.on('close', () => this.#finish(() => this.#events.onEnd()));
  }

  #onClose(code: number, reason: Buffer): void {
    if (!this.#opened) return this.#fail('engine_unreachable', this.#fault);
    if (code === ABNORMAL) return this.#fail('engine_closed', this.#fault);
    this.#finish(() => {
      this.#events.onData(encodeClose(code, reason.toString()));
      this.#events.onEnd();
    });
  }

  #fail(code: 'failed' | 'engine_closed' | 'engine_unreachable', message: string): void {
    this.#finish(() => this.#events.onError(code, message));
  }

  #finish(tell: () => void): void {
    if (this.#finished) return;
    this.#finished = true;
    tell();
    this.#socket.terminate();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  abort(): void {
    this.#finished = true;
    this.#content.destroy();
    this.#socket.terminate();
  }
}

function modelOf(headers: HeaderList): string {
  const name = headers.find(([header]) => header === REALTIME_MODEL_HEADER)?.[1] ?? '';
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // No honest gateway sends this. The engine does not know the model.
  }
}

function headersOf(open: OpenFrame, { key }: EngineTarget): Record<string, string> {
  const passed = open.headers.filter(([name]) => name !== REALTIME_MODEL_HEADER && name !== 'content-type');
  return {
    'x-request-id': open.requestId,
    ...Object.fromEntries(passed),
    ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
  };
}
