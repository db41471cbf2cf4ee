/** Sealing as one agent does it, through all its sessions: its keys, what its records say of them, and what opens requests. */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { NodePayload } from '../../shared/lattice/payload.ts';
import type { DelegateKey } from './delegate-key.ts';
import type { EvidenceHelper } from './evidence.ts';
import { KeyRing } from './key-ring.ts';
import { SealOpener } from './opener.ts';

/** A session as records name it. */
export interface VouchedSession {
  session: string;
  provider: string;
}

export class NodeSeals {
  readonly opener: SealOpener;
  readonly #ring: KeyRing;
  readonly #delegate: DelegateKey | undefined;

  /** Without a delegate no provider vouches for the keys, and clients that pin one seal nothing to this node. */
  constructor(now: () => number, delegate?: DelegateKey, evidence?: EvidenceHelper) {
    this.#ring = new KeyRing(now);
    this.#delegate = delegate;
    this.opener = new SealOpener(this.#ring, now, { evidence });
  }

  /** What a session's record says now; makes the next key where it is time. */
  word(named: VouchedSession): Pick<NodePayload, 'encryption_key' | 'seal'> {
    this.#ring.rotate();
    const { publicKey, kid, until } = this.#ring.current;
    const seconds = Math.floor(until / 1000);
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
}
