/**
 * Limits how many nodes one join token and one provider may have, and how fast nodes join, so that no provider can fill
 * the shared registry.
 */
import { TokenBucket } from '../../shared/collections/token-bucket.ts';
import type { AdmissionCounter, Admissions } from './admissions.ts';

/** Maximum nodes of a provider for which the operator set no maximum. */
const PROVIDER_NODES_DEFAULT = 2_000;

/**
 * Maximum tickets of a provider, including those of ended sessions, because a replica must remember that they ended. A
 * replica stores at most twice as many tickets of one issuer.
 */
const PROVIDER_TICKETS_MAX = 32_768;

/** Maximum nodes of one provider that may join at the same time: a job array can start a thousand. */
const ADMISSIONS_BURST = 1_000;
const ADMISSIONS_PER_SECOND = 10;
/** Maximum token buckets in memory. If a provider's bucket is dropped, the provider's next bucket starts full. */
const BUCKETS_MAX = 10_000;

export type QuotaRefusal =
  | { refused: 'rate'; waitMs: number }
  | { refused: 'token' | 'provider' | 'tickets'; max: number };

export interface AdmissionRequest {
  provider: string;
  tokenId: string;
  /** Maximum nodes with the token; null: only the provider's maximum applies. */
  tokenNodesMax: number | null;
  /** Maximum nodes of the provider; null: the default applies. */
  providerNodesMax: number | null;
}

export class AdmissionQuota {
  readonly #admissions: Admissions;
  readonly #present: (session: string) => boolean;
  /** Token buckets by provider. */
  readonly #buckets = new Map<string, TokenBucket>();

  /** @param present returns true if the session is registered here and not suspected */
  constructor(admissions: Admissions, present: (session: string) => boolean) {
    this.#admissions = admissions;
    this.#present = present;
  }

  /** Returns why another node may not join; undefined: it may. `now`: milliseconds since the epoch. */
  refusal(
    { provider, tokenId, tokenNodesMax, providerNodesMax }: AdmissionRequest,
    now: number,
  ): QuotaRefusal | undefined {
    const bucket = this.#bucket(provider, now);
    if (!bucket.take(1, now)) return { refused: 'rate', waitMs: bucket.waitMs(1) };
    const ofProvider = providerNodesMax ?? PROVIDER_NODES_DEFAULT;
    if (tokenNodesMax !== null && this.places({ token: tokenId }, tokenNodesMax, now) >= tokenNodesMax)
      return { refused: 'token', max: tokenNodesMax };
    if (this.places({ provider }, ofProvider, now) >= ofProvider) return { refused: 'provider', max: ofProvider };
    if (this.#admissions.tickets(provider, Math.floor(now / 1000)) >= PROVIDER_TICKETS_MAX)
      return { refused: 'tickets', max: PROVIDER_TICKETS_MAX };
    return undefined;
  }

  /**
   * Returns the number of nodes that count against a limit. A result below `enough` may be too high, because the
   * sessions were then not checked one by one.
   */
  places(counted: AdmissionCounter, enough: number, now: number): number {
    return this.#admissions.places(counted, enough, now, this.#present);
  }

  #bucket(provider: string, now: number): TokenBucket {
    const known = this.#buckets.get(provider);
    if (known !== undefined) return known;
    const oldest = this.#buckets.keys().next().value;
    if (this.#buckets.size >= BUCKETS_MAX && oldest !== undefined) this.#buckets.delete(oldest);
    const bucket = new TokenBucket(ADMISSIONS_PER_SECOND, ADMISSIONS_BURST, now);
    this.#buckets.set(provider, bucket);
    return bucket;
  }
}
