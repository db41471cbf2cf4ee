/** A tunnel's object sleeps whenever no stream is open, and wakes with the counters that its socket keeps. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { AgentSocket, type TunnelAttachment } from '../../../gateway/tunnel/agent-socket.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { InboundStream } from '../../../shared/wire/inbound-stream.ts';
import { Link } from '../../../shared/wire/link.ts';
import { OutboundStream } from '../../../shared/wire/outbound-stream.ts';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';

/** Credit that a link may hold back until there is enough for a frame: see SocketWindow. */
const UNTOLD_MAX = 256 * 1024;

const ACTIVE: TunnelAttachment = {
  phase: 'active',
  ticket: '',
  audience: '',
  gateway: '',
  provider: '',
  nonce: '',
  generation: 1,
  connectedAt: 0,
};

/** An agent's link, and the socket of a gateway's object that sleeps and wakes. */
class Tunnel {
  readonly #turns: (() => void)[] = [];
  readonly #toAgent: Uint8Array[] = [];
  readonly #toGateway: Uint8Array[] = [];
  #now = 0;
  readonly #meter = new FrameMeter(() => (this.#now += 1_000));
  readonly #schedule = (flush: () => void) => void this.#turns.push(flush);
  readonly agent: Link;
  gateway: AgentSocket;
  #attachment: TunnelAttachment = ACTIVE;
  #stream = 0;
  #incoming = new InboundStream();

  constructor() {
    const port = {
      send: (message: Uint8Array) => void this.#toGateway.push(message.slice()),
      busy: () => false,
      schedule: this.#schedule,
      stuck: () => expect.fail('stuck'),
    };
    const windows = { send: SOCKET_WINDOW_BYTES, receive: SOCKET_WINDOW_BYTES };
    this.agent = new Link(port, windows, this.#meter);
    this.gateway = this.#made();
    this.gateway.link.open(SOCKET_WINDOW_BYTES);
    this.gateway.save(true);
  }

  #made(): AgentSocket {
    const socket = {
      send: (message: string | ArrayBuffer | ArrayBufferView) =>
        void this.#toAgent.push((message as Uint8Array).slice()),
      close: () => expect.fail('closed'),
      readyState: 1,
    };
    const host = {
      session: 'session',
      sockets: {
        note: (_socket: unknown, note: unknown) => {
          this.#attachment = structuredClone(note) as TunnelAttachment;
        },
        schedule: this.#schedule,
      },
      meter: this.#meter,
      stuck: () => expect.fail('stuck'),
    };
    return new AgentSocket(socket, host, this.#attachment, this.#attachment.idle);
  }

  /** The object loses its memory. */
  sleep(): void {
    this.gateway.save(true);
    this.gateway = this.#made();
  }

  /** A response of this length arrives, of which the reader takes `read` bytes; then its request is over. */
  respond(bytes: number, read: number): void {
    this.gateway.save(false);
    this.#incoming = new InboundStream();
    this.send(bytes);
    this.gateway.link.consumed(this.#incoming.consume(read));
    this.gateway.link.consumed(this.#incoming.consume(this.#incoming.buffered));
    this.settle();
  }

  /** The agent sends bytes of a stream. `late`: its request is over at the gateway. */
  send(bytes: number, late = false): void {
    const outgoing = new OutboundStream();
    this.agent.attach(++this.#stream, { outgoing, ending: () => [] });
    outgoing.push(new Uint8Array(bytes));
    outgoing.finish();
    this.agent.kick(this.#stream);
    this.settle(late);
    this.agent.detach(this.#stream);
  }

  settle(late = false): void {
    while (this.#turns.length + this.#toAgent.length + this.#toGateway.length > 0) {
      for (const flush of this.#turns.splice(0)) flush();
      for (const message of this.#toGateway.splice(0)) {
        this.gateway.receive(message, (frame) => {
          if (frame.type !== 'data') return;
          if (late) this.gateway.link.consumed(frame.bytes.length);
          else this.#incoming.accept(frame.offset, frame.bytes);
        });
        // As AgentSockets.settle does.
        if (this.gateway.countersDiffer) this.gateway.save(true);
      }
      for (const message of this.#toAgent.splice(0)) this.agent.receive(message, () => {});
    }
  }
}

const steps = fc.array(
  fc.record({
    what: fc.constantFrom('respond', 'respond', 'late', 'sleep', 'sleep'),
    bytes: fc.integer({ min: 1, max: 200_000 }),
    read: fc.nat(200_000),
  }),
  { maxLength: 80 },
);

test('an object that sleeps between streams neither loses nor makes credit', () => {
  fc.assert(
    fc.property(steps, (all) => {
      const tunnel = new Tunnel();
      for (const { what, bytes, read } of all) {
        if (what === 'respond') tunnel.respond(bytes, read);
        else if (what === 'late') {
          tunnel.sleep();
          tunnel.send(bytes, true);
        } else tunnel.sleep();
        const { sent, sendLimit } = tunnel.agent.state;
        const { received, receiveLimit } = tunnel.gateway.link.state;
        expect([sent, sendLimit]).toEqual([received, receiveLimit]);
        expect(SOCKET_WINDOW_BYTES - (sendLimit - sent)).toBeLessThan(UNTOLD_MAX);
        expect(tunnel.gateway.link.reclaim()).toBe(0);
      }
    }),
    { numRuns: 200 },
  );
});
