/** A circuit's object by itself: what it leaves behind. */
import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { CALLEE_HEADER, CircuitObject } from '../../gateway/circuit/circuit-object.ts';
import type { Env } from '../../gateway/env.ts';
import type { ObjectContext, ObjectSocket } from '../../gateway/object-context.ts';
import { TICKET_HEADER } from '../../gateway/registry/tickets.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { TestIssuer } from '../support/mesh/issuer.ts';

it('no timer outlives it: each would hold it for an hour', () => {
  const timers = new Set<() => void>();
  const socket: ObjectSocket = { readyState: 1, send: () => {}, close: () => {} };
  const ctx = {
    name: '0'.repeat(32),
    sockets: { accept: () => ({ socket, response: new Response(null) }) },
    clock: {
      after: (_ms: number, ring: () => void) => {
        timers.add(ring);
        return () => void timers.delete(ring);
      },
    },
  } as unknown as ObjectContext;
  const circuit = new CircuitObject(ctx, {} as Env);
  const ticket = toBase64url(new TestIssuer().ticket(randomBytes(32)).bytes);
  circuit.fetch(new Request('http://a/', { headers: { [TICKET_HEADER]: ticket, [CALLEE_HEADER]: 'a'.repeat(26) } }));
  expect(timers.size).toBeGreaterThan(0);
  circuit.webSocketClose(socket);
  expect(timers.size).toBe(0);
});
