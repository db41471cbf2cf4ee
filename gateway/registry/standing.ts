import type { GossipDriver } from './gossip/gossip-driver.ts';
import type { Membership } from './membership.ts';

/**
 * How the ways to sessions stand, as tunnels and gossip tell: the session table shows and routes by it, and gossip hears of what the
 * tunnels of this gateway saw.
 */
export class Standing {
  readonly #members: Membership;
  readonly #gossip: GossipDriver;
  readonly #remember: () => void;

  /** `remember`: what gossip is to remember has changed. */
  constructor(members: Membership, gossip: GossipDriver, remember: () => void) {
    this.#members = members;
    this.#gossip = gossip;
    this.#remember = remember;
  }

  /** The object slept, and its sockets did not: tunnels that nobody suspected are as they were. */
  wake(): void {
    const { sessions } = this.#members;
    for (const session of sessions.open()) if (!sessions.get(session)?.suspected) this.#tunnel(session, true);
  }

  #tunnel(session: string, open: boolean): void {
    this.#gossip.handle({ type: 'tunnel', session, open });
  }

  /** It has spoken on its tunnel. Where gossip did not hold the suspicion that the session table remembers, it has nothing to take back. */
  present(session: string): void {
    this.#tunnel(session, true);
    this.judged(session, this.#gossip.liveness(session));
  }

  /** What gossip holds of it. */
  judged(session: string, liveness: 'alive' | 'unreachable' | 'suspected'): void {
    const { sessions, replica } = this.#members;
    const entry = replica.get(session);
    if (liveness === 'unreachable') return sessions.elsewhere(session, entry);
    sessions.suspect(session, 'gossip', liveness === 'suspected', entry);
  }

  /** Its tunnel here is gone: not routed to until it is back. */
  closed(session: string): void {
    const { sessions, replica } = this.#members;
    if (!sessions.isOpen(session)) return;
    sessions.tunnel(session, 'closed', replica.get(session));
    this.#tunnel(session, false);
    this.#remember();
  }

  /** A path to the session failed: not routed to until it speaks again. */
  doubted(session: string): void {
    const { sessions, replica } = this.#members;
    sessions.suspect(session, 'tunnel', true, replica.get(session));
    this.#gossip.handle({ type: 'doubt', session });
  }

  /** The path that failed works again. */
  trusted(session: string): void {
    const { sessions, replica } = this.#members;
    sessions.suspect(session, 'tunnel', false, replica.get(session));
    // The doubt that its silence raised ends with it: what this gateway alone concluded nobody else will take back.
    if (sessions.isOpen(session)) this.#tunnel(session, true);
  }
}
