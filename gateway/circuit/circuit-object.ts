import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { decodeTicket, TICKET_MAX_BYTES } from '../../shared/lattice/ticket.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext, ObjectSocket } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { AUDIENCE_HEADER } from '../registry/proven-sockets.ts';
import { TICKET_HEADER } from '../registry/verify-agent-ticket.ts';
import { Circuit, type CircuitEnd } from './circuit.ts';
import { CircuitLimits } from './circuit-limits.ts';

/** Header with the circuit's name, sent by both ends. */
export const CIRCUIT_HEADER = 'x-otela-circuit';
/** Header with the callee's session, sent by the caller. */
export const CALLEE_HEADER = 'x-otela-callee';
/** A gateway has one circuit object, so that its limits apply to all circuits on every host. */
export const CIRCUIT_OBJECT_NAME = 'circuits';

/**
 * All circuits of a gateway. A circuit joins the sockets of a caller and a callee. The bytes between them are encrypted
 * from end to end by TLS. The circuit ends when one of the sockets closes.
 */
export class CircuitObject extends GatewayObject {
  /** By name. CircuitLimits bounds both maps: callers without a proof, and open circuits. */
  readonly #circuits = new Map<string, Circuit>();
  readonly #bySocket = new Map<ObjectSocket, Circuit>();
  readonly #limits = new CircuitLimits<Circuit>(steadyNow());

  /**
   * Closes the sockets of circuits that were lost with the object's memory. An agent that sends nothing would keep its
   * socket for ever.
   */
  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    for (const socket of ctx.sockets.survivors()) socket.close(1000, 'the gateway has lost the circuit');
  }

  /** Accepts the caller, which names its callee, and then the callee. */
  fetch(request: Request): Response {
    const name = request.headers.get(CIRCUIT_HEADER) ?? '';
    const callee = request.headers.get(CALLEE_HEADER);
    const known = this.#circuits.get(name);
    if (callee === null ? known === undefined || known.hasCallee : known !== undefined)
      return new Response('there is no such circuit', { status: 404 });
    const bytes = fromBase64url(request.headers.get(TICKET_HEADER) ?? '', TICKET_MAX_BYTES) ?? new Uint8Array();
    const ticket = decodeTicket(bytes, workerdCrypto); // The ticket was verified when the socket was accepted.
    if (known !== undefined && ticket.session !== known.callee)
      return new Response('the circuit belongs to another callee', { status: 403 });
    const { socket, response } = this.ctx.sockets.accept();
    const end: CircuitEnd = { socket, ticket, audience: request.headers.get(AUDIENCE_HEADER) ?? '' };
    if (known === undefined) this.#open(name, callee ?? '', end);
    else {
      this.#bySocket.set(socket, known);
      known.addCallee(end);
    }
    return response;
  }

  #open(name: string, callee: string, caller: CircuitEnd): void {
    const { clock } = this.ctx;
    const circuit = new Circuit(caller, callee, {
      clock,
      limits: this.#limits,
      callCallee: (session) => this.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).call(session, name),
      waitUntil: (work) => this.ctx.waitUntil(work),
      onEnd: (sockets) => {
        this.#circuits.delete(name);
        for (const socket of sockets) this.#bySocket.delete(socket);
      },
    });
    this.#circuits.set(name, circuit);
    this.#bySocket.set(caller.socket, circuit);
  }

  webSocketMessage(socket: ObjectSocket, message: string | Uint8Array): void {
    const circuit = this.#bySocket.get(socket);
    if (circuit !== undefined) circuit.onMessage(socket, message);
    // A message that arrived after the end.
    else socket.close(1000, 'the circuit has ended');
  }

  webSocketClose(socket: ObjectSocket): void {
    this.#bySocket.get(socket)?.onClose();
  }

  webSocketError(socket: ObjectSocket): void {
    this.webSocketClose(socket);
  }
}
