import type { Crypto } from '../../shared/lattice/crypto-interface.ts';
import type { CertificateCache } from '../../shared/lattice/gateway-certificate.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import { decodeTicket, type Ticket, verifyTicket } from '../../shared/lattice/ticket.ts';
import type { ChannelPeer } from './channel/accept-channel.ts';
import { ChannelError } from './channel/channel-error.ts';

interface TicketsOptions {
  crypto: Crypto;
  replica: RegistryReplica;
  /** This agent's session. A peer must not present it. */
  session: string;
  /** Returns the local name of an issuer; undefined for this agent's issuer. */
  issuerName(issuer: string): string | undefined;
  banned(session: string): boolean;
}

/** Decides whether a peer's ticket is valid for a channel. */
export class Tickets {
  readonly #options: TicketsOptions;
  readonly #certificates: CertificateCache = new Map();

  constructor(options: TicketsOptions) {
    this.#options = options;
  }

  /** @throws ChannelError or LatticeError if the ticket is not valid */
  open(bytes: Uint8Array): ChannelPeer {
    const { crypto, replica, session, banned } = this.#options;
    const ticket = this.#verified(decodeTicket(new Uint8Array(bytes), crypto));
    if (ticket.session === session) throw new ChannelError('stranger', "the peer presented this agent's own ticket");
    if (banned(ticket.session)) throw new ChannelError('stranger', `${ticket.session} is banned temporarily`);
    const state = replica.ticketState(ticket);
    // Accept a session that counts as left. It may not know that it was evicted, and learns it over the channel.
    if (state !== 'good' && state !== 'left') throw new ChannelError('stranger', `the ticket is ${state}`);
    const issuer = this.#options.issuerName(ticket.issuer);
    return {
      session: ticket.session,
      provider: issuer === undefined ? ticket.provider : `${ticket.provider}@${issuer}`,
      sessionKey: ticket.sessionKey,
      ticket: ticket.bytes,
    };
  }

  /**
   * Returns the verified ticket. A ticket of the replica was verified before, so only another ticket's signatures are
   * checked.
   */
  #verified(ticket: Ticket): Ticket {
    const known = this.#options.replica.get(ticket.session)?.ticket;
    if (known !== undefined && Buffer.compare(known.bytes, ticket.bytes) === 0) return known;
    return verifyTicket(ticket, this.#options.crypto, this.#certificates);
  }
}
