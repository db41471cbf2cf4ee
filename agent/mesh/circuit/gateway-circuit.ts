/**
 * A path to another agent through a gateway: a WebSocket whose bytes the gateway passes on. See
 * shared/wire/gateway-circuit.ts.
 */
import { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import {
  CIRCUIT_STEP_BYTES,
  CIRCUIT_WINDOW_BYTES,
  CONNECTED_TEXT,
  circuitCost,
  MORE_TEXT,
  READ_TEXT,
} from '../../../shared/wire/gateway-circuit.ts';
import { DATA_MAX_BYTES, PROTOCOL_VERSION } from '../../../shared/wire/protocol-constants.ts';
import { openWebSocket, type WebSocketOptions } from '../../tunnel/open-websocket.ts';
import { helloFrame } from '../../tunnel/session-identity.ts';
import type { SessionIdentity } from '../../tunnel/tunnel-types.ts';
import { ChannelError } from '../channel/channel-error.ts';

/** Maximum wait for the other end. The gateway gives the other end 10 s to connect. */
const CONNECTED_MS = 12_000;

interface LegOptions {
  gateway: URL;
  /** The session to call, or the name of the circuit at which another agent waits for this one. */
  to: string;
  identity: SessionIdentity;
  ticket: Uint8Array;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  signal: AbortSignal;
}

/** Resolves when the other end is connected. @throws ChannelError */
export async function openGatewayLeg(options: LegOptions): Promise<Duplex> {
  const { gateway, to, ticket, env, proxy, signal } = options;
  const headers = {
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': Buffer.from(ticket).toString('base64url'),
  };
  try {
    return await openWebSocket({ gateway, path: `/agent/circuit/${to}`, headers, env, proxy }, (socket) => {
      socket.binaryType = 'nodebuffer';
      return connected(socket, options.identity, signal);
    });
  } catch (error) {
    throw error instanceof ChannelError ? error : new ChannelError('unreachable', String(error), { cause: error });
  }
}

function connected(socket: WebSocket, identity: SessionIdentity, signal: AbortSignal): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    let why = 'the gateway does not connect the circuit';
    const done = (act: () => void) => {
      clearTimeout(timer);
      signal.removeEventListener('abort', give);
      socket.off('message', hear).off('close', onClose);
      act();
    };
    const give = () => {
      done(() => reject(new ChannelError('unreachable', why)));
      socket.terminate();
    };
    const onClose = (_code: number, reason: Buffer) => {
      why = reason.toString() || why;
      give();
    };
    const hear = (data: Buffer, isBinary: boolean) => {
      try {
        if (isBinary) answerChallenge(socket, data, identity);
        else if (data.toString() === CONNECTED_TEXT) done(() => resolve(new GatewayLeg(socket))); // no await in between: the other end's first bytes may be in the same chunk
      } catch {
        give();
      }
    };
    const timer = setTimeout(give, CONNECTED_MS);
    socket.on('error', (error) => {
      why = error.message;
    });
    socket.on('message', hear).on('close', onClose);
    signal.addEventListener('abort', give, { once: true });
    if (signal.aborted) give();
  });
}

function answerChallenge(socket: WebSocket, data: Uint8Array, identity: SessionIdentity): void {
  readFrames(data, (frame) => {
    if (frame.type !== 'challenge')
      throw new ChannelError('broken', `unexpected frame "${frame.type}" before the challenge`);
    const audience = `circuit:${new URL(socket.url).host}`;
    socket.send(encodeFrame(helloFrame(identity, { nonce: frame.nonce, audience, generation: 0, window: 0 })));
  });
}

/**
 * The circuit's bytes as a stream. The gateway's grants and the reads here bound the waiting bytes in each direction.
 */
class GatewayLeg extends Duplex {
  readonly #socket: WebSocket;
  #granted = CIRCUIT_WINDOW_BYTES;
  /** Bytes that wait for a grant of the gateway; `done` is called when they are sent. */
  #waiting: { bytes: Buffer; done: (error?: Error | null) => void } | undefined;

  constructor(socket: WebSocket) {
    super({ allowHalfOpen: false });
    this.#socket = socket;
    socket.on('message', (data: Buffer, isBinary: boolean) => this.#onMessage(data, isBinary));
    socket.on('close', () => this.destroy());
    if (socket.readyState !== socket.OPEN) this.destroy();
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    // The gateway asks after some bytes whether they were read. A paused socket delivers neither further bytes nor this
    // question, so answering the question confirms that all bytes before it were read.
    if (isBinary) return void (this.push(data) || this.#socket.pause());
    const text = data.toString();
    if (text === MORE_TEXT) {
      this.#granted = Math.min(CIRCUIT_WINDOW_BYTES, this.#granted + CIRCUIT_STEP_BYTES);
      this.#send();
    } else if (READ_TEXT.test(text)) this.#socket.send(text);
    else this.destroy();
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#waiting = { bytes, done };
    this.#send();
  }

  #send(): void {
    for (let now = this.#waiting; now !== undefined && this.#granted > 0; now = this.#waiting) {
      const length = Math.min(this.#granted, now.bytes.length, DATA_MAX_BYTES);
      this.#granted -= circuitCost(length);
      this.#socket.send(now.bytes.subarray(0, length));
      const bytes = now.bytes.subarray(length);
      this.#waiting = bytes.length > 0 ? { ...now, bytes } : undefined;
      if (bytes.length === 0) now.done();
    }
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.close(1000);
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.close(1000);
    this.#waiting?.done(new ChannelError('broken', 'the circuit has ended'));
    this.#waiting = undefined;
    this.push(null);
    done(error);
  }
}
