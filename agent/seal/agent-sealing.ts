/**
 * What one agent needs for sealing, through all its sessions: the keys, their part of the registry record, and the
 * opener of requests.
 */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { NodePayload } from '../../shared/lattice/node-payload.ts';
import { type DelegateKey, dayOf } from './delegate-key.ts';
import type { EvidenceHelper } from './evidence-helper.ts';
import { KeyRing } from './seal-key-ring.ts';
import { SealOpener } from './seal-opener.ts';

/** The session and provider for which the keys are vouched. */
interface VouchedSession {
  session: string;
  provider: string;
}

/**
 * How long before the end of a delegate key a warning is logged. The operator needs this time, because the root key is
 * kept offline.
 */
const ENDS_SOON_S = 7 * 86_400;

export class AgentSealing {
  readonly opener: SealOpener;
  readonly #ring: KeyRing;
  readonly #delegate: DelegateKey | undefined;
  readonly #now: () => number;
  readonly #log: (line: string) => void;
  /** Messages that were logged. Each is logged once. */
  readonly #logged = new Set<string>();

  /**
   * Without a delegate key no provider vouches for the keys, and clients that pin a provider seal nothing to this node.
   */
  constructor(now: () => number, delegate?: DelegateKey, evidence?: EvidenceHelper, log = (_line: string) => {}) {
    this.#now = now;
    this.#log = log;
    this.#ring = new KeyRing(now);
    this.#delegate = delegate;
    this.opener = new SealOpener(this.#ring, now, { evidence });
  }

  /** The session's part of the registry record. Creates the next key if it is due. */
  recordPart(named: VouchedSession): Pick<NodePayload, 'encryption_key' | 'seal'> {
    this.#ring.rotate();
    const { publicKey, kid, until } = this.#ring.current;
    const seconds = Math.floor(until / 1000);
    this.#judge(named.provider);
    const vouch = this.#delegate?.vouch(named, publicKey, seconds);
    const kinds = this.opener.evidence?.kinds;
    return {
      encryption_key: toBase64url(publicKey),
      seal: {
        v: 1,
        kid,
        until: seconds,
        ...(vouch !== undefined && { vouch }),
        ...(kinds && { evidence: [...kinds] }),
      },
    };
  }

  /** Logs a fault of the delegate key, because clients that pin a provider skip this node without any message. */
  #judge(provider: string): void {
    if (this.#delegate === undefined) return;
    const { notAfter } = this.#delegate;
    const now = this.#now() / 1000;
    const fault = this.#delegate.whyNot(provider, now);
    const soon = notAfter - now < ENDS_SOON_S ? `the delegate key expires on ${dayOf(notAfter)}` : undefined;
    const logged =
      fault === undefined ? soon : `clients that pin ${provider} cannot encrypt requests to this node: ${fault}`;
    if (logged === undefined || this.#logged.has(logged)) return;
    this.#logged.add(logged);
    this.#log(`${logged}; create a new one with otela-agent vouch and restart the agent`);
  }
}
