import type { GatewayGossipDriver } from './gossip/gossip-driver.ts';
import type { SessionRegistry } from './session-registry.ts';

/**
 * Tracks which sessions can be reached, according to tunnels and gossip. Decides how the session table shows sessions
 * and whether requests are routed to them. Also reports to gossip what this gateway's tunnels observed.
 */
export class SessionReachability {
  readonly #members: SessionRegistry;
  readonly #gossip: GatewayGossipDriver;
  readonly #remember: () => void;

  /** @param remember called when gossip's memory has changed */
  constructor(members: SessionRegistry, gossip: GatewayGossipDriver, remember: () => void) {
    this.#members = members;
    this.#gossip = gossip;
    this.#remember = remember;
  }

  /**
   * Called if the object slept and its sockets survived. Tunnels of sessions that were not suspected are still open.
   */
  wake(): void {
    const { sessions } = this.#members;
    for (const session of sessions.open()) if (!sessions.get(session)?.suspected) this.#tunnel(session, true);
  }

  #tunnel(session: string, open: boolean): void {
    this.#gossip.handle({ type: 'tunnel', session, open });
  }

  /**
   * Records that the session sent something on its tunnel. Also corrects the session table, because gossip may not know
   * a suspicion that the table restored.
   */
  present(session: string): void {
    this.#tunnel(session, true);
    this.onLiveness(session, this.#gossip.liveness(session));
  }

  /** Records gossip's verdict on the session. */
  onLiveness(session: string, liveness: 'alive' | 'unreachable' | 'suspected'): void {
    const { sessions, replica } = this.#members;
    const entry = replica.get(session);
    if (liveness === 'unreachable') return sessions.elsewhere(session, entry);
    sessions.suspect(session, 'gossip', liveness === 'suspected', entry);
  }

  /** Records that the session's tunnel to this gateway has closed. No requests are routed to it until it reconnects. */
  closed(session: string): void {
    const { sessions, replica } = this.#members;
    if (!sessions.isOpen(session)) return;
    sessions.tunnel(session, 'closed', replica.get(session));
    this.#tunnel(session, false);
    this.#remember();
  }

  /** Records that the session's tunnel to this gateway is open, although it was reported as closed. */
  reopened(session: string): void {
    const { sessions, replica } = this.#members;
    const entry = replica.get(session);
    if (entry === undefined || entry.state === 'LEFT' || sessions.isOpen(session)) return;
    sessions.tunnel(session, 'open', entry);
    this.present(session);
    this.#remember();
  }

  /** Records that a path to the session failed. No requests are routed to it until it sends something again. */
  suspect(session: string): void {
    const { sessions, replica } = this.#members;
    sessions.suspect(session, 'tunnel', true, replica.get(session));
    this.#gossip.handle({ type: 'doubt', session });
  }

  /** Records that the failed path to the session works again. */
  clearSuspicion(session: string): void {
    const { sessions, replica } = this.#members;
    sessions.suspect(session, 'tunnel', false, replica.get(session));
    // This also ends the suspicion in gossip, which the failed path caused. Only this gateway suspected the session, so
    // no peer will withdraw the suspicion.
    if (sessions.isOpen(session)) this.#tunnel(session, true);
  }
}
