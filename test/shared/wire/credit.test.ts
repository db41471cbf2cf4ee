/**
 * A socket's credit is neither lost nor created: the granted credit equals the credit still to arrive, held here, or
 * returned.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { InboundStream } from '../../../shared/wire/inbound-stream.ts';
import { Link } from '../../../shared/wire/link.ts';
import { OutboundStream } from '../../../shared/wire/outbound-stream.ts';
import { WindowPool } from '../../../shared/wire/window-pool.ts';

const WINDOW = 1024 * 1024;
/** Credit that may be held back until there is enough for a frame: see SocketWindow. */
const UNTOLD_MAX = 256 * 1024;
const STREAMS = [1, 2, 3] as const;

/** A stream at its receiver, and the part of its held bytes for which this socket gets credit, by plain arithmetic. */
interface Held {
  incoming: InboundStream;
  outgoing: OutboundStream;
  own: number;
  foreign: number;
}

function bench() {
  const to: Uint8Array[] = [];
  const back: Uint8Array[] = [];
  const turns: (() => void)[] = [];
  const port = (out: Uint8Array[]) => ({
    send: (message: Uint8Array) => void out.push(message.slice()),
    busy: () => false,
    schedule: (flush: () => void) => void turns.push(flush),
    stuck: () => expect.fail('stuck'),
  });
  let now = 0;
  const meter = () => new FrameMeter(() => ++now * 1_000);
  const windows = { send: WINDOW, receive: WINDOW };
  const [sender, receiver] = [new Link(port(to), windows, meter()), new Link(port(back), windows, meter())];
  const streams = new Map<number, Held>();
  for (const stream of STREAMS) {
    const outgoing = new OutboundStream();
    streams.set(stream, { incoming: new InboundStream(), outgoing, own: 0, foreign: 0 });
    sender.attach(stream, { outgoing, ending: () => [] });
  }
  const pool = new WindowPool();
  const take = (stream: number) => {
    const credit = streams.get(stream)?.incoming.credit(pool);
    if (credit !== undefined) receiver.put({ type: 'credit', stream, ...credit });
  };
  const onFrame = (frame: Frame) => {
    const held = frame.type === 'data' ? streams.get(frame.stream) : undefined;
    if (frame.type === 'data' && held !== undefined) held.own += held.incoming.accept(frame.offset, frame.bytes).length;
  };
  const settle = () => {
    while (turns.length + to.length + back.length > 0) {
      for (const flush of turns.splice(0)) flush();
      for (const message of to.splice(0)) receiver.receive(message, onFrame);
      for (const message of back.splice(0)) sender.receive(message, () => {});
    }
  };
  return { sender, receiver, streams, take, settle };
}

const steps = fc.array(
  fc.record({
    what: fc.constantFrom('push', 'push', 'read', 'read', 'disown'),
    stream: fc.constantFrom(...STREAMS),
    bytes: fc.integer({ min: 1, max: 200_000 }),
  }),
  { maxLength: 60 },
);

test('granted credit equals bytes that may arrive, are held or were returned, whatever readers do', () => {
  fc.assert(
    fc.property(steps, (all) => {
      const { sender, receiver, streams, take, settle } = bench();
      const check = () => {
        const held = [...streams.values()].reduce((sum, { own }) => sum + own, 0);
        const { received, receiveLimit } = receiver.state;
        expect(receiver.buffered).toBe(held);
        expect(sender.state.sendLimit).toBe(receiveLimit);
        expect(sender.state.sent).toBe(received);
        const untold = received - held + WINDOW - receiveLimit;
        expect(untold).toBeGreaterThanOrEqual(0);
        expect(untold).toBeLessThan(UNTOLD_MAX);
      };
      const read = (stream: number, held: Held, bytes: number) => {
        const taken = Math.min(bytes, held.own + held.foreign);
        const foreign = Math.min(held.foreign, taken);
        held.foreign -= foreign;
        held.own -= taken - foreign;
        receiver.consumed(held.incoming.consume(bytes));
        take(stream);
      };
      for (const { what, stream, bytes } of all) {
        const held = streams.get(stream);
        if (held === undefined) continue;
        if (what === 'push') {
          held.outgoing.push(new Uint8Array(bytes));
          sender.kick(stream);
        } else if (what === 'read') read(stream, held, bytes);
        else {
          receiver.consumed(held.incoming.disown());
          held.foreign += held.own;
          held.own = 0;
        }
        settle();
        check();
      }
      // Readers that return find the complete window again.
      for (const [stream, held] of streams)
        while (held.incoming.buffered > 0) {
          read(stream, held, Number.MAX_SAFE_INTEGER);
          settle();
        }
      check();
      expect(receiver.buffered).toBe(0);
    }),
    { numRuns: 200 },
  );
});
