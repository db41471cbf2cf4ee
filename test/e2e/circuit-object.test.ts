/** A circuit that is over leaves nothing in memory; its host is the test's. */
import { expect, test } from 'vitest';
import { CALLEE_HEADER, CircuitObject } from '../../gateway/circuit/circuit-object.ts';
import type { Env } from '../../gateway/env.ts';
import type { ObjectContext, ObjectSocket } from '../../gateway/object-context.ts';
import { TICKET_HEADER } from '../../gateway/registry/tickets.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { labTicket } from '../agent/support/fake-admission.ts';

test('a caller that leaves takes its timers along: an object with one stays for an hour', () => {
  const timers = new Set<object>();
  const socket = { send() {}, close() {} } as unknown as ObjectSocket;
  const after = () => {
    const timer = {};
    timers.add(timer);
    return () => void timers.delete(timer);
  };
  const ctx = { sockets: { accept: () => ({ socket, response: new Response() }) }, clock: { after } };
  const circuit = new CircuitObject(ctx as unknown as ObjectContext, {} as Env);
  const ticket = toBase64url(labTicket(new Uint8Array(32).fill(1)).bytes);
  circuit.fetch(
    new Request('https://circuit/join', { headers: { [TICKET_HEADER]: ticket, [CALLEE_HEADER]: 'callee' } }),
  );
  expect(timers.size).toBeGreaterThan(0);
  circuit.webSocketClose(socket);
  expect(timers.size).toBe(0);
});
