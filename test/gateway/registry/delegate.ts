/** An agent that gossips with the registry object: the real core, over a real socket to it. */
import { exports } from 'cloudflare:workers';
import { workerdCrypto } from '../../../gateway/issuer/ed25519.ts';
import {
  createGossip,
  type GossipAction,
  type GossipEvent,
  type GossipState,
  step,
} from '../../../shared/gossip/index.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { decodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { helloMessage } from '../../../shared/lattice/session-id.ts';
import { readFrames, writeFrame } from '../../../shared/wire/frame-codec.ts';
import { FrameWriter } from '../../../shared/wire/frame-writer.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import type { TestAgent } from './agent.ts';

export function messageOf(...frames: Frame[]): Uint8Array {
  const out = new FrameWriter();
  for (const frame of frames) writeFrame(out, frame, undefined);
  return out.take();
}

export async function openGossipSocket(agent: TestAgent): Promise<Response> {
  const headers = { upgrade: 'websocket', 'x-otela-protocol': '2', 'x-otela-ticket': toBase64url(agent.ticket.bytes) };
  return exports.default.fetch(new Request('https://gateway.test/agent/gossip', { headers }));
}

/** As an agent counts its sockets. */
let generations = 1;

export class TestDelegate {
  readonly agent: TestAgent;
  readonly replica: RegistryReplica;
  readonly #state: GossipState;
  readonly #socket: WebSocket;
  #gateway = '';
  #timer: ReturnType<typeof setTimeout> | null = null;
  sent = 0;
  readonly received: Uint8Array[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  readonly #ready = Promise.withResolvers<void>();

  private constructor(agent: TestAgent, socket: WebSocket, audience: string, generation: number) {
    this.agent = agent;
    this.#socket = socket;
    const { issuer } = agent.ticket;
    this.replica = new RegistryReplica({ crypto: workerdCrypto, accepts: (id) => id === issuer });
    this.#state = createGossip({
      self: { kind: 'agent', session: agent.session, cluster: agent.ticket.cluster, host: 'here' },
      replica: this.replica,
      crypto: workerdCrypto,
      signer: agent.signer,
    });
    this.closed = new Promise((resolve) => {
      socket.addEventListener('close', ({ code, reason }) => {
        clearTimeout(this.#timer);
        resolve({ code, reason });
      });
    });
    socket.accept();
    socket.addEventListener('message', async ({ data }) => {
      const bytes = data instanceof Blob ? await data.arrayBuffer() : data;
      if (typeof bytes !== 'string')
        readFrames(new Uint8Array(bytes), (frame) => this.#onFrame(frame, audience, generation));
    });
  }

  static async open(
    agent: TestAgent,
    audience = 'gossip:gateway.test',
    generation = ++generations,
  ): Promise<TestDelegate> {
    const { webSocket } = await openGossipSocket(agent);
    if (webSocket === null) throw new Error('no upgrade');
    return new TestDelegate(agent, webSocket, audience, generation);
  }

  static async join(agent: TestAgent): Promise<TestDelegate> {
    const delegate = await TestDelegate.open(agent);
    await delegate.#ready.promise;
    return delegate;
  }

  #onFrame(frame: Frame, audience: string, generation: number): void {
    // The gateway may close it, and frames that arrived earlier are still read.
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    if (frame.type === 'challenge') {
      const message = helloMessage(this.agent.session, generation, frame.nonce, audience);
      const { signer } = this.agent;
      const hello = { publicKey: signer.publicKey, signature: signer.sign(message), generation, window: 0 };
      this.#socket.send(messageOf({ type: 'hello', ...hello }));
    } else if (frame.type === 'welcome') {
      this.#gateway = frame.gateway;
      this.handle({ type: 'start' });
      this.handle({ type: 'gateways', gateways: [this.#gateway] });
      this.handle({ type: 'opened', peer: this.#gateway, inbound: false });
      this.#ready.resolve();
    } else if (frame.type === 'gossip') {
      this.received.push(frame.bytes.slice());
      this.handle({ type: 'message', peer: this.#gateway, bytes: frame.bytes.slice() });
    }
  }

  say(words: Uint8Array): void {
    const update = decodeUpdate(words);
    const { bytes } = this.agent.ticket;
    this.handle({ type: 'local', updates: [update.kind === 'entry' ? { ...update, ticket: bytes } : update] });
  }

  raw(bytes: Uint8Array | string): void {
    this.#socket.send(bytes);
  }

  handle(event: GossipEvent): void {
    for (const action of step(this.#state, event, Date.now(), Math.random)) this.#act(action);
  }

  #act(action: GossipAction): void {
    if (action.type === 'send' && action.peer === this.#gateway) {
      this.sent++;
      this.#socket.send(messageOf({ type: 'gossip', bytes: action.bytes }));
    } else if (action.type === 'timer') {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.handle({ type: 'timer' }), Math.max(0, action.at - Date.now()));
    }
    // No other agent is reachable in this test: dials stay open.
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#socket.close(1000, 'done');
  }
}
