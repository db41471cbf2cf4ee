/**
 * Receives orders of gateways. It checks the sender, and that the order is not a repetition. Every agent accepts orders
 * to drain, to restart, and to load and unload models that its engine knows. It deploys only if its operator allows
 * that.
 */

import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import {
  type DeploymentRequest,
  type LoadRequest,
  openOrder,
  type UnloadRequest,
} from '../../shared/deployment/deployment-order.ts';
import type { DeploymentAnswer, Inspection } from '../../shared/deployment/order-reply.ts';
import type { Crypto } from '../../shared/lattice/crypto-interface.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { type DeploymentDecider, type OrderOutcome, REASON_MAX } from './deployment-decider.ts';

interface OrderReceiverOptions {
  /** Undefined if this agent accepts no deployments. */
  deployments(): DeploymentDecider | undefined;
  /** Loads or unloads a model of the running engine. Throws, or rejects with, DeploymentError if it cannot. */
  changeModel(request: LoadRequest | UnloadRequest): Promise<OrderOutcome> | OrderOutcome;
  /** Drains like `otela-agent drain`. */
  drain(why: string): void;
  /**
   * Drains, then starts the installed program. Rejects with DeploymentError if the installed program is not `version`
   * or cannot run.
   */
  restart(version: string): Promise<{ from: string; act: () => void }>;
  /** Returns the engine's output and the utilization of the GPUs. */
  inspect(): Promise<Inspection>;
  /** Number of requests that run here. */
  inFlight(): number;
  crypto: Crypto;
  /** Milliseconds since 1970. */
  now(): number;
  /** True if the institution revoked this key. */
  revoked(issuer: string, keyName: string): boolean;
  log(line: string): void;
}

/** Maximum number of remembered orders. They are remembered until they expire, which takes at most ten minutes. */
const NONCES_MAX = 1024;

const NO_DEPLOYMENTS = {
  kind: 'refused',
  code: 'cannot_start',
  message: 'this agent was not started with --accept-deployments',
} as const satisfies DeploymentAnswer;

export class OrderReceiver {
  readonly #options: OrderReceiverOptions;
  /** When each order expires, in seconds since 1970, by its nonce. */
  readonly #seen = new Map<string, number>();

  constructor(options: OrderReceiverOptions) {
    this.#options = options;
  }

  /**
   * Answers an order that was sent to the session of `ticket`. The answer to an empty order describes the templates.
   * Never rejects.
   */
  async answer(ticket: Ticket, order: Uint8Array): Promise<OrderOutcome> {
    if (order.length === 0) return { answer: this.#options.deployments()?.described() ?? NO_DEPLOYMENTS };
    try {
      return await this.#decide(this.#open(ticket, order));
    } catch (error) {
      const { code, message } =
        error instanceof DeploymentError ? error : new DeploymentError('cannot_start', String(error));
      this.#options.log(`refused an order: ${code}: ${message}`);
      return { answer: { kind: 'refused', code, message: message.slice(0, REASON_MAX) } };
    }
  }

  /** @throws DeploymentError */
  #decide(request: DeploymentRequest): Promise<OrderOutcome> | OrderOutcome {
    const { changeModel, deployments, drain, inFlight, inspect, restart } = this.#options;
    if (request.action === 'inspect') return inspect().then((answer) => ({ answer }));
    if (request.action === 'load' || request.action === 'unload') return changeModel(request);
    if (request.action === 'drain')
      return { answer: { kind: 'draining', running: inFlight() }, act: () => drain('an order from its gateway') };
    if (request.action === 'restart')
      return restart(request.version).then(({ from, act }) => ({
        answer: { kind: 'restarting', running: inFlight(), from },
        act,
      }));
    return deployments()?.decide(request) ?? { answer: NO_DEPLOYMENTS };
  }

  /** @throws DeploymentError */
  #open(ticket: Ticket, bytes: Uint8Array): DeploymentRequest {
    const { crypto, now, revoked } = this.#options;
    const nowS = Math.floor(now() / 1000);
    const { session, issuer } = ticket;
    const context = { session, issuer, nowS, crypto, revoked: (key: string) => revoked(issuer, key) };
    const { nonce, notAfter, wish: request } = openOrder(bytes, context);
    // An inspection changes nothing, and pages send it every few seconds. Remembering each would leave no space for
    // other orders.
    if (request.action === 'inspect') return request;
    for (const [known, until] of this.#seen) if (until <= nowS) this.#seen.delete(known);
    if (this.#seen.has(nonce)) throw new DeploymentError('replayed', 'this order was already received');
    // Every order in `#seen` was signed with the institution's key. So reaching this limit means a fault of the
    // gateway.
    if (this.#seen.size >= NONCES_MAX) throw new DeploymentError('busy', 'too many orders; try again in ten minutes');
    this.#seen.set(nonce, notAfter);
    return request;
  }
}
