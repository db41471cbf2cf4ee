/** One realtime session after the engine has accepted it: engine to client, and everything that ends it. */
import { AttemptError, apiErrorFor } from '../../../shared/attempts/attempt-error.ts';
import { ApiError, toApiError } from '../../../shared/openai/api-errors.ts';
import { encodeUtf8 } from '../../../shared/openai/byte-search.ts';
import { decodeClose, type MessageRecord, RecordReader } from '../../../shared/openai/realtime/message-records.ts';
import type { ProxyResponse, ResponseSink } from '../../../shared/proxy/proxy-http-types.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { ClientWebSocket } from '../../http/client-websocket.ts';
import { startTimer } from '../../platform/start-timer.ts';
import type { RealtimeRequest } from './realtime-request.ts';

/** Maximum duration of a session, as at OpenAI. */
const SESSION_MAX_MS = 60 * 60_000;
/** Interval at which the client's key is checked: a revoked key ends its sessions. */
const RECHECK_MS = 5_000;
/** Close codes of RFC 6455 §7.4.1. */
const [NORMAL, POLICY, SERVER_ERROR, RESTART] = [1000, 1008, 1011, 1012];

interface Options {
  socket: ClientWebSocket;
  request: RealtimeRequest;
  /** Rejects with an ApiError if the client may no longer use the model. */
  recheck(): Promise<void>;
  /** Aborted when this process begins to stop. */
  stopping: AbortSignal | undefined;
}

export class RealtimeSession implements ResponseSink {
  readonly #options: Options;
  readonly #records = new RecordReader();
  readonly #cancels: (() => void)[] = [];
  #over = false;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Sends the engine's messages until the session ends. Never rejects. */
  async run(body: Exclude<ProxyResponse['body'], string | null>): Promise<void> {
    const { socket, request, stopping } = this.#options;
    socket.onBroken = () => this.#left();
    request.onForeignModel = () => {
      const message = `This session is for the model '${request.model}'. Open another session for another model.`;
      return this.#tell(new ApiError('model_not_allowed', message, { param: 'model' }));
    };
    if (!(await socket.opened)) this.#left();
    else this.#watch(stopping);
    if (typeof body === 'function') await body(this);
    else await this.#sendWhole(body);
    this.#end();
  }

  /** The session ended before its first message was sent. */
  async #sendWhole(body: Uint8Array | ReadableStream<Uint8Array>): Promise<void> {
    try {
      const bytes = body instanceof Uint8Array ? body : new Uint8Array(await new Response(body).arrayBuffer());
      await this.write(bytes);
      this.end();
    } catch (error) {
      this.abort(error);
    }
  }

  #watch(stopping: AbortSignal | undefined): void {
    const onStop = () => {
      const message = 'This gateway is stopping. Connect again.';
      this.#close(RESTART, new ApiError('server_is_overloaded', message));
    };
    if (stopping?.aborted === true) return onStop();
    stopping?.addEventListener('abort', onStop);
    this.#cancels.push(() => stopping?.removeEventListener('abort', onStop));
    const expired = new ApiError('session_expired', `A session lasts at most ${SESSION_MAX_MS / 60_000} minutes.`);
    this.#cancels.push(startTimer(SESSION_MAX_MS, () => this.#close(NORMAL, expired)));
    this.#recheckLater();
  }

  #recheckLater(): void {
    const again = () => {
      if (!this.#over) this.#recheckLater();
    };
    const cancel = startTimer(RECHECK_MS, () => {
      this.#options.recheck().then(again, (error: unknown) => {
        const { status } = toApiError(error);
        if (status === 401 || status === 403) this.#close(POLICY, toApiError(error));
        else again(); // The accounts cannot be read at the moment.
      });
    });
    this.#cancels[2] = cancel;
  }

  /** @throws Error if the client disconnected; AttemptError if the node sent bytes that are not messages */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#over) throw new Error('the client disconnected');
    for (const record of this.#read(bytes)) {
      if (record.kind === 'close') {
        const { code, reason } = decodeClose(record);
        this.#options.socket.close(code, reason);
      } else if (record.kind !== 'opened') await this.#options.socket.send(record);
    }
  }

  #read(bytes: Uint8Array): MessageRecord[] {
    try {
      return this.#records.push(bytes);
    } catch (cause) {
      throw new AttemptError('failed', `the node sent no messages: ${cause}`);
    }
  }

  end(): void {
    if (!this.#over) this.#options.socket.close(NORMAL, '');
  }

  abort(reason: unknown): void {
    const error = reason instanceof AttemptError ? apiErrorFor(reason) : toApiError(reason);
    this.#close(SERVER_ERROR, error);
  }

  /** Ends the session: sends the client the error, and cancels the engine's work. */
  #close(code: number, error: ApiError): void {
    if (this.#over) return;
    neverRejects(this.#tell(error));
    this.#options.socket.close(code, error.code);
    this.#left();
  }

  /** Sends an error in the form of OpenAI's realtime API. Resolves when the client's side can take more. Never rejects. */
  async #tell(error: ApiError): Promise<void> {
    const { type, code, message, param } = error;
    const event = { type: 'error', event_id: `event_${crypto.randomUUID()}`, error: { type, code, message, param } };
    try {
      await this.#options.socket.send({ kind: 'text', bytes: encodeUtf8(JSON.stringify(event)) });
    } catch {
      // The client disconnected.
    }
  }

  /** Cancels the engine's work. */
  #left(): void {
    if (this.#over) return;
    this.#over = true;
    this.#options.request.client.leave();
    this.#end();
  }

  #end(): void {
    this.#over = true;
    for (const cancel of this.#cancels.splice(0)) cancel();
    this.#options.request.over();
  }
}
