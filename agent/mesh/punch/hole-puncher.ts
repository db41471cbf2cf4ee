/**
 * Opens direct paths between two agents behind NATs, which already reach each other through a relay (as libp2p's DCUtR,
 * with TCP).
 */
import { randomInt } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ProvenConnection } from '../channel/accept-channel.ts';
import { asChannelError, ChannelError } from '../channel/channel-error.ts';
import { withDeadline } from '../channel/handshake-reads.ts';
import type { Address } from '../channel/happy-eyeballs.ts';
import { type PunchMessage, receivePunchMessage, sendPunchMessage } from './punch-messages.ts';
import { SimultaneousOpen } from './simultaneous-open.ts';

/** Time for the messages of the two agents, which include a handshake with a relay at each end. */
const AGREE_MS = 10_000;
/** Time for the connection: the kernel repeats its first segment after 1 s and after 3 s. */
const OPEN_MS = 4_000;
/** Maximum attempts of other agents that are answered at the same time. */
const ANSWERING_MAX = 8;
/** Time for the last message to an agent that does not read. */
const LINGER_MS = 1_000;
/** Ports from which connections begin (Linux' own range). */
const [PORT_FROM, PORT_TO] = [32_768, 60_999];

/** This agent's outside address of a local port. The mapping holds until `end` is called. */
export interface ObservedPort {
  address: Address;
  end(): void;
}

interface HolePuncherOptions {
  /** Opens a connection for punch messages to a session, through a relay. */
  dial(session: string, signal: AbortSignal): Promise<ProvenConnection>;
  /** Asks a relay from which address it sees a connection from this port; undefined: no relay sees a usable one. */
  observe(localPort: number, signal: AbortSignal): Promise<ObservedPort | undefined>;
  /** Does the channel's handshake as the dialing end. */
  secure(socket: Duplex, session: string): Promise<ProvenConnection>;
  /** Handles a connection as the listening end. */
  accept(socket: Socket): Promise<boolean>;
}

export class HolePuncher {
  readonly #options: HolePuncherOptions;
  readonly #abort = new AbortController();
  #answering = 0;

  constructor(options: HolePuncherOptions) {
    this.#options = options;
  }

  /** Resolves with a direct connection to the session. @throws ChannelError if their NATs allow none */
  async punch(session: string): Promise<ProvenConnection> {
    const { signal } = this.#abort;
    const { dial, secure } = this.#options;
    const { localPort, observed } = await this.#observe();
    try {
      const { socket } = await dial(session, signal);
      socket.on('error', () => {});
      try {
        const { remote, roundTripMs } = await withDeadline(socket, AGREE_MS, 'timeout', () =>
          agree(socket, observed.address),
        );
        sendPunchMessage(socket, { type: 'go' });
        await sleep(roundTripMs / 2, undefined, { signal });
        return await this.#firstProven(localPort, remote, (opened) => secure(opened, session));
      } finally {
        socket.destroy();
      }
    } catch (error) {
      throw asChannelError(error);
    } finally {
      observed.end();
    }
  }

  async #observe(): Promise<{ localPort: number; observed: ObservedPort }> {
    const localPort = randomInt(PORT_FROM, PORT_TO + 1);
    const observed = await this.#options.observe(localPort, this.#abort.signal);
    if (observed === undefined)
      throw new ChannelError('unreachable', 'no relay sees the outside address of this agent');
    return { localPort, observed };
  }

  /** Resolves with the first connection to the session. Later ones are closed. */
  #firstProven(
    localPort: number,
    remote: Address,
    secure: (socket: Socket) => Promise<ProvenConnection>,
  ): Promise<ProvenConnection> {
    return new Promise((resolve, reject) => {
      let isOver = false;
      const end = (act: () => void) => {
        if (isOver) return;
        isOver = true;
        clearTimeout(timer);
        this.#abort.signal.removeEventListener('abort', onAbort);
        opening.close();
        act();
      };
      const fail = (why: string) => end(() => reject(new ChannelError('unreachable', why)));
      const onAbort = () => fail('the agent is shutting down');
      const timer = setTimeout(() => fail(`no direct path within ${OPEN_MS} ms`), OPEN_MS);
      this.#abort.signal.addEventListener('abort', onAbort, { once: true });
      const onSocket = (socket: Socket) => {
        socket.on('error', () => {});
        if (isOver) return void socket.destroy();
        secure(socket).then(
          (proven) => (isOver ? proven.socket.destroy() : end(() => resolve(proven))),
          () => socket.destroy(),
        );
      };
      const opening = new SimultaneousOpen({ localPort, remote, onSocket });
    });
  }

  /** Answers an agent that wants to open a direct path. Owns the connection. Never rejects. */
  async answer({ socket }: Pick<ProvenConnection, 'socket'>): Promise<void> {
    socket.on('error', () => {});
    if (this.#answering >= ANSWERING_MAX || this.#abort.signal.aborted) return void socket.destroy();
    this.#answering++;
    let observed: ObservedPort | undefined;
    try {
      const localPort = randomInt(PORT_FROM, PORT_TO + 1);
      const remote = await withDeadline(socket, AGREE_MS, 'timeout', async () => {
        const message = expected(await receivePunchMessage(socket), 'from');
        observed = await this.#options.observe(localPort, this.#abort.signal);
        sendPunchMessage(
          socket,
          observed === undefined ? { type: 'unable' } : { type: 'from', address: observed.address },
        );
        if (observed === undefined) return undefined;
        expected(await receivePunchMessage(socket), 'ping');
        sendPunchMessage(socket, { type: 'pong' });
        expected(await receivePunchMessage(socket), 'go');
        return message.address;
      });
      if (remote !== undefined) await this.#acceptFrom(localPort, remote);
    } catch {
      // The caller keeps its path through the relay.
    } finally {
      observed?.end();
      // The last message must still arrive.
      socket.end(() => socket.destroy());
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
      this.#answering--;
    }
  }

  async #acceptFrom(localPort: number, remote: Address): Promise<void> {
    const { accept } = this.#options;
    const onSocket = (socket: Socket) => {
      socket.on('error', () => {});
      accept(socket).catch(() => socket.destroy());
    };
    const opening = new SimultaneousOpen({ localPort, remote, onSocket });
    await sleep(OPEN_MS, undefined, { signal: this.#abort.signal }).catch(() => {});
    opening.close();
  }

  /** Ends all attempts. Idempotent. */
  close(): void {
    this.#abort.abort();
  }
}

/** The caller's messages up to `go`. */
async function agree(socket: Duplex, own: Address): Promise<{ remote: Address; roundTripMs: number }> {
  sendPunchMessage(socket, { type: 'from', address: own });
  const { address: remote } = expected(await receivePunchMessage(socket), 'from');
  const sentAt = performance.now();
  sendPunchMessage(socket, { type: 'ping' });
  expected(await receivePunchMessage(socket), 'pong');
  return { remote, roundTripMs: performance.now() - sentAt };
}

/** @throws ChannelError if the message has another type */
function expected<T extends PunchMessage['type']>(message: PunchMessage, type: T): Extract<PunchMessage, { type: T }> {
  if (message.type !== type) throw new ChannelError('unreachable', `the other end answered ${message.type}`);
  return message as Extract<PunchMessage, { type: T }>;
}
