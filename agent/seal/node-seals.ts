/** Sealing as one agent does it, through all its sessions: its keys, what its records say of them, and what opens requests. */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { NodePayload } from '../../shared/lattice/payload.ts';
import { type DelegateKey, dayOf } from './delegate-key.ts';
import type { EvidenceHelper } from './evidence.ts';
import { KeyRing } from './key-ring.ts';
import { SealOpener } from './opener.ts';

/** A session as records name it. */
export interface VouchedSession {
  session: string;
  provider: string;
}

/** Time enough to find the root key. */
const ENDS_SOON_S = 7 * 86_400;

export class NodeSeals {
  readonly opener: SealOpener;
  readonly #ring: KeyRing;
  readonly #delegate: DelegateKey | undefined;
  readonly #now: () => number;
  readonly #log: (line: string) => void;
  /** Each is told once. */
  readonly #told = new Set<string>();

  /** Without a delegate no provider vouches for the keys, and clients that pin one seal nothing to this node. */
  constructor(now: () => number, delegate?: DelegateKey, evidence?: EvidenceHelper, log = (_line: string) => {}) {
    this.#now = now;
    this.#log = log;
    this.#ring = new KeyRing(now);
    this.#delegate = delegate;
    this.opener = new SealOpener(this.#ring, now, { evidence });
  }

  /** What a session's record says now; makes the next key where it is time. */
  word(named: VouchedSession): Pick<NodePayload, 'encryption_key' | 'seal'> {
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

  /** The pins of clients leave this node out without a word: its operator is to read why here. */
  #judge(provider: string): void {
    if (this.#delegate === undefined) return;
    const { notAfter } = this.#delegate;
    const now = this.#now() / 1000;
    const fault = this.#delegate.whyNot(provider, now);
    const soon = notAfter - now < ENDS_SOON_S ? `the delegate runs out on ${dayOf(notAfter)}` : undefined;
    const told = fault === undefined ? soon : `clients that pin ${provider} seal nothing to this node: ${fault}`;
    if (told === undefined || this.#told.has(told)) return;
    this.#told.add(told);
    this.#log(`${told}; otela-agent vouch makes another one, which counts from the agent's next start`);
  }
}
