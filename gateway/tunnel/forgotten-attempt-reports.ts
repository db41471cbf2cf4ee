import type { OutboundAttempt } from '../../shared/attempts/outbound-attempt.ts';
import type { ReportFrame } from '../../shared/sessions/session-attempts.ts';
import type { LateReports, ProvenOpening } from '../../shared/usage/usage-record.ts';
import type { ReportName } from '../../shared/wire/frames.ts';
import { verifyOpeningProof } from '../accounts/attempt-opening-proof.ts';
import { installationSecret, knownInstallationSecret } from '../accounts/installation-secret.ts';
import type { Env } from '../env.ts';

/**
 * Maximum reports that wait for the secret: as many as an agent keeps. The agent repeats further reports on its next
 * socket.
 */
const WAITING_MAX = 10_000;

/** Interval between attempts to read the secret, if D1 cannot return it and a report waits for it. */
const RETRY_MS = 5_000;

interface ProofsOptions {
  session: string;
  env: Pick<Env, 'DB'>;
  nextStream(): number;
  running(name: ReportName): OutboundAttempt | undefined;
  waitUntil(work: Promise<void>): void;
}

/** Checks reports of attempts that this object has forgotten: see accounts/attempt-opening-proof.ts. */
export class ForgottenAttemptReports implements LateReports {
  readonly #options: ProofsOptions;
  /** Reports from the agent's active socket; at most WAITING_MAX. */
  #waiting: ReportFrame[] = [];
  #asking = false;

  constructor(options: ProofsOptions) {
    this.#options = options;
  }

  /**
   * True if the secret is known. Without it no proof can be checked, and a report that was not checked is neither
   * accepted nor refused.
   */
  get ready(): boolean {
    return knownInstallationSecret() !== undefined;
  }

  /** Keeps a report until the secret is known, then passes it to `take`. */
  postpone(report: ReportFrame, take: (report: ReportFrame) => void): void {
    if (this.#waiting.length < WAITING_MAX) this.#waiting.push(report);
    if (this.#asking) return;
    this.#asking = true;
    this.#options.waitUntil(this.#ask(take));
  }

  /**
   * Drops the waiting reports of a socket that is gone. On its next socket the agent repeats the reports that were not
   * acknowledged.
   */
  forget(): void {
    this.#waiting = [];
  }

  async #ask(take: (report: ReportFrame) => void): Promise<void> {
    while (!this.ready && this.#waiting.length > 0) {
      try {
        await installationSecret(this.#options.env);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    this.#asking = false;
    const waited = this.#waiting;
    this.#waiting = [];
    for (const report of waited) take(report);
  }

  opening(name: ReportName): ProvenOpening | undefined {
    const secret = knownInstallationSecret();
    return secret === undefined ? undefined : verifyOpeningProof(secret, this.#options.session, name, Date.now());
  }

  running(name: ReportName): OutboundAttempt | undefined {
    return this.#options.running(name);
  }

  nextStream(): number {
    return this.#options.nextStream();
  }
}
