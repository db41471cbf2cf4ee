/** The circuit object in isolation: what it leaves behind, and how often its timers fire. */
import { randomBytes } from 'node:crypto';
import { expect, it, onTestFinished, vi } from 'vitest';
import { nodeSigner } from '../../agent/host/node-crypto.ts';
import { CALLEE_HEADER, CIRCUIT_HEADER, CircuitObject } from '../../gateway/circuit/circuit-object.ts';
import type { Env } from '../../gateway/env.ts';
import type { ObjectContext, ObjectSocket } from '../../gateway/platform/object-context.ts';
import { TICKET_HEADER } from '../../gateway/registry/verify-agent-ticket.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Signer } from '../../shared/lattice/crypto-interface.ts';
import { helloMessage } from '../../shared/lattice/session-id.ts';
import { encodeFrame, readFrames } from '../../shared/wire/frame-codec.ts';
import { FRAME_LIMITS } from '../../shared/wire/frame-limits.ts';
import { TestIssuer } from '../support/mesh/issuer.ts';

const CALLEE = 'a'.repeat(26);
const issuer = new TestIssuer();

type Timers = Set<() => void>;

/**
 * A gateway's circuits. `survivors`: sockets that outlived the object's memory. Timers of the circuit that is being
 * opened are added to `timers`.
 */
function circuits(call: () => Promise<boolean> = async () => true, survivors: readonly ObjectSocket[] = []) {
  const next = { socket: undefined as ObjectSocket | undefined, timers: new Set() as Timers };
  const ctx = {
    sockets: { survivors: () => survivors, accept: () => ({ socket: next.socket, response: new Response(null) }) },
    waitUntil: () => {},
    clock: {
      after: (_ms: number, ring: () => void) => {
        const { timers } = next;
        timers.add(ring);
        return () => void timers.delete(ring);
      },
    },
  } as unknown as ObjectContext;
  const env = { REGISTRY: { getByName: () => ({ call }) } } as unknown as Env;
  const made = new CircuitObject(ctx, env);
  let names = 0;
  /** One circuit, which its caller has requested. */
  const circuit = (sessionKey: Uint8Array) => {
    const timers: Timers = new Set();
    const sent: (string | Uint8Array)[] = [];
    const closed: string[] = [];
    const close = (_code?: number, reason = '') => void closed.push(reason);
    const socket: ObjectSocket = { readyState: 1, send: (message) => void sent.push(message), close };
    next.socket = socket;
    next.timers = timers;
    const ticket = issuer.ticket(sessionKey);
    const name = String(names++).padStart(32, '0');
    const headers = { [TICKET_HEADER]: toBase64url(ticket.bytes), [CALLEE_HEADER]: CALLEE, [CIRCUIT_HEADER]: name };
    made.fetch(new Request('http://a/', { headers }));
    return { made, name, socket, sent, closed, timers, session: ticket.session };
  };
  return { made, circuit };
}

type Circuit = ReturnType<ReturnType<typeof circuits>['circuit']>;

function prove({ made, socket, sent, session }: Circuit, key: Signer): void {
  readFrames(sent[0] as Uint8Array, (frame) => {
    if (frame.type !== 'challenge') throw new Error(frame.type);
    const signature = key.sign(helloMessage(session, 0, frame.nonce, ''));
    const hello = { type: 'hello', publicKey: key.publicKey, signature, generation: 0, window: 0 } as const;
    made.webSocketMessage(socket, encodeFrame(hello));
  });
}

it('no timer outlives it: each would hold it for an hour', () => {
  const { made, socket, timers } = circuits().circuit(randomBytes(32));
  expect(timers.size).toBeGreaterThan(0);
  made.webSocketClose(socket);
  expect(timers.size).toBe(0);
});

it('those that prove nothing are so many at most, the oldest goes, and one that proves itself at once is called for', () => {
  let rung = 0;
  const call = async () => {
    rung++;
    return true;
  };
  const { circuit } = circuits(call);
  const key = nodeSigner();
  const strangers = Array.from({ length: 600 }, () => circuit(key.publicKey));
  expect(strangers.filter(({ closed }) => closed.length > 0).length).toBe(88);
  expect(strangers.slice(0, 88).every(({ closed, timers }) => closed.length === 1 && timers.size === 0)).toBe(true);
  prove(circuit(key.publicKey), key);
  expect(rung).toBe(1);
  for (const { made, socket } of strangers) made.webSocketClose(socket);
});

it('many callers together do not ring oftener than a callee takes without leaving its gateway', () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  let rung = 0;
  const call = async () => {
    rung++;
    return true;
  };
  const { circuit } = circuits(call);
  for (let caller = 0; caller < 12; caller++) {
    const key = nodeSigner();
    for (let at = 0; at < 32; at++) {
      const one = circuit(key.publicKey);
      prove(one, key);
      one.made.webSocketClose(one.socket);
    }
  }
  expect(rung).toBeGreaterThan(16);
  expect(rung).toBeLessThan(FRAME_LIMITS.circuit.burst);
});

it('a name is joined once, by the session that is called, and a socket of a lost circuit is closed', () => {
  const { made, circuit } = circuits();
  const { name, socket } = circuit(randomBytes(32));
  const answer = (headers: Record<string, string>) => made.fetch(new Request('http://a/', { headers })).status;
  const ticket = toBase64url(issuer.ticket(randomBytes(32)).bytes);
  expect(answer({ [TICKET_HEADER]: ticket, [CIRCUIT_HEADER]: name })).toBe(403);
  // Another caller cannot take the circuit over.
  expect(answer({ [TICKET_HEADER]: ticket, [CIRCUIT_HEADER]: name, [CALLEE_HEADER]: CALLEE })).toBe(404);
  expect(answer({ [TICKET_HEADER]: ticket, [CIRCUIT_HEADER]: '9'.repeat(32) })).toBe(404);
  const closed: string[] = [];
  const lost = { ...socket, close: (_code?: number, reason = '') => void closed.push(reason) };
  made.webSocketMessage(lost, 'more');
  expect(closed).toEqual(['the circuit has ended']);
});

it('closes the sockets that outlive its memory, since agents that wait would not learn of the loss', () => {
  const closed: string[] = [];
  const socket: ObjectSocket = {
    readyState: 1,
    send: () => {},
    close: (_code, reason = '') => void closed.push(reason),
  };
  circuits(undefined, [socket, socket]);
  expect(closed).toEqual(Array(2).fill('the gateway has lost the circuit'));
});
