/** `serve --domain NAME`: obtains a certificate from an authority with ACME (RFC 8555), and replaces it in time. */
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { CommandError } from '../../../command-error.ts';
import { AcmeClient } from './acme-client.ts';
import { AcmeError } from './acme-error.ts';
import {
  type CertificateFiles,
  newKey,
  openCertificateFiles,
  readOrCreateKey,
  storeCertificate,
  storedValidity,
} from './certificate-files.ts';
import { certificateRequest } from './certificate-request.ts';
import { ChallengeServer } from './challenge-server.ts';
import { OrderRefusals } from './order-refusals.ts';
import { dueInMs, ordersApartMs, retryMs } from './renewal-time.ts';

export interface AcmeOptions {
  /** The gateway's https URL, without a path. */
  origin: string;
  /** Names in the certificate. */
  domains: readonly [string, ...string[]];
  /** The gateway's data directory. */
  data: string;
  /** Address and port for the authority's challenges. */
  host: string;
  httpPort: number;
  /** The authority; undefined: Let's Encrypt. */
  directoryUrl: string | undefined;
  /** Address to which the authority sends warnings. */
  email: string | undefined;
  /** Account at an authority that knows its customers (RFC 8555 §7.3.4). */
  binding: { kid: string; hmacKey: string } | undefined;
  log(line: string): void;
}

const LETS_ENCRYPT = 'https://acme-v02.api.letsencrypt.org/directory';
/** Longest time between two looks at the clock, which may be set. */
const CHECK_MS = 60 * 60_000;
/** Maximum duration of an order. Without it, an authority that never decides would end all renewals. */
const ORDER_MS = 10 * 60_000;

export class AutomaticCertificate {
  readonly #options: AcmeOptions;
  readonly #server: ChallengeServer;
  readonly #files: CertificateFiles;
  readonly #refusals: OrderRefusals;
  #failures = 0;

  private constructor(options: AcmeOptions, server: ChallengeServer, files: CertificateFiles) {
    this.#options = options;
    this.#server = server;
    this.#files = files;
    this.#refusals = new OrderRefusals(files.refusals);
  }

  /**
   * Returns when there is a certificate: the stored one if it is valid, otherwise a new one.
   * @throws CommandError
   */
  static async open(options: AcmeOptions): Promise<AutomaticCertificate> {
    const server = new ChallengeServer(options.origin);
    await server.listen(options.httpPort, options.host);
    try {
      const files = await openCertificateFiles(options.data);
      const certificate = new AutomaticCertificate(options, server, files);
      const stored = storedValidity(files, options.domains);
      if (stored === undefined || stored.until <= Date.now()) await certificate.#firstOrder();
      return certificate;
    } catch (cause) {
      await server.close();
      const names = options.domains.join(', ');
      throw new CommandError(`no certificate for ${names}: ${errorText(cause)}`, { cause });
    }
  }

  /** Path of the PEM file with the certificate's chain and key. */
  get file(): string {
    return this.#files.certificate;
  }

  /** Replaces the certificate in time, and calls `onReplaced` after each time. */
  keepRenewed(onReplaced: () => Promise<void>): void {
    const check = async () => {
      const waitMs = await this.#renewIfDue(onReplaced);
      setTimeout(() => neverRejects(check()), waitMs).unref();
    };
    neverRejects(check());
  }

  /** Returns the milliseconds until the next check. */
  async #renewIfDue(onReplaced: () => Promise<void>): Promise<number> {
    const { domains, log } = this.#options;
    try {
      const now = Date.now();
      const dueMs = dueInMs(storedValidity(this.#files, domains), now);
      const waitMs = Math.max(dueMs, this.#refusals.renewalWaitMs(now));
      if (waitMs > 0) return Math.min(waitMs, CHECK_MS);
      await this.#order();
      await onReplaced();
      this.#failures = 0;
      log(`the certificate for ${domains.join(', ')} was renewed`);
      return ordersApartMs(storedValidity(this.#files, domains));
    } catch (error) {
      const asked = error instanceof AcmeError ? error.retryAfterMs : 0;
      const waitMs = Math.max(retryMs(++this.#failures), asked);
      const minutes = Math.round(waitMs / 60_000);
      log(`the certificate for ${domains.join(', ')} was not renewed; next try in ${minutes} min: ${errorText(error)}`);
      return waitMs;
    }
  }

  /** @throws Error if the authority refused too many orders */
  async #firstOrder(): Promise<void> {
    const now = Date.now();
    const waitMs = this.#refusals.startWaitMs(now);
    if (waitMs === 0) return this.#order();
    const next = new Date(now + waitMs).toISOString();
    const { file } = this.#refusals;
    throw new Error(`the last orders were refused. The next one is possible at ${next}, or if you delete ${file}`);
  }

  async #order(): Promise<void> {
    const { domains, directoryUrl = LETS_ENCRYPT, email, binding } = this.#options;
    const signal = AbortSignal.timeout(ORDER_MS);
    const account = { directoryUrl, key: readOrCreateKey(this.#files.accountKey), email, binding };
    const key = newKey();
    const before = this.#refusals.begin(Date.now());
    try {
      const client = await AcmeClient.open(account, signal);
      const chain = await client.order(domains, certificateRequest(key, domains), this.#server);
      storeCertificate(this.#files.certificate, chain, { key, names: domains, now: Date.now() });
    } catch (error) {
      this.#refusals.end(before, error, Date.now());
      if (signal.aborted) throw new Error(`no certificate within ${ORDER_MS / 60_000} min`, { cause: error });
      throw error;
    }
    this.#refusals.clear();
  }
}
