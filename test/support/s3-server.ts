/** versitygw (https://github.com/versity/versitygw), a real S3 server on a directory; `.ci/run` builds it. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { which } from './abilities.ts';
import { patience } from './patience.ts';
import { freePort, Managed, temporaryDirectory } from './processes.ts';
import { ROOT } from './where.ts';

const BUILT = join(ROOT, '.ci/bin/versitygw');
export const S3_SERVER = process.env.OTELA_TEST_S3_SERVER ?? (existsSync(BUILT) ? BUILT : which('versitygw'));
export const NO_S3_SERVER = 'no versitygw: set OTELA_TEST_S3_SERVER, or let .ci/run build it with Go';
export const BUCKET = 'otela-test';
const STARTED_MS = 60_000;
const SECRET = 'a-secret-of-tests';

export class S3Server {
  readonly port: number;
  /** The directory of the bucket; its objects are files below it. */
  readonly bucket: string;
  readonly #root: string;
  #process: Managed | undefined;

  private constructor(root: string, port: number) {
    this.#root = root;
    this.port = port;
    this.bucket = join(root, BUCKET);
  }

  /** Starts with an empty bucket. `root`: a directory with extended attributes. */
  static async start(root?: string): Promise<S3Server> {
    const server = new S3Server(root ?? (await temporaryDirectory('otela-s3')), await freePort());
    await mkdir(server.bucket, { recursive: true });
    await server.run();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** The environment of a gateway; `secret`: differs from the server's in tests of refusals. */
  env(url = this.url, secret = SECRET): Record<string, string> {
    return { AWS_ENDPOINT_URL_S3: url, AWS_ACCESS_KEY_ID: 'otela', AWS_SECRET_ACCESS_KEY: secret };
  }

  /** Starts it again on the same port and directory, after `stop`. */
  async run(): Promise<void> {
    if (S3_SERVER === undefined) throw new Error(NO_S3_SERVER);
    // The secret is in its environment, as a real one should be.
    const env = { ROOT_ACCESS_KEY_ID: 'otela', ROOT_SECRET_ACCESS_KEY: SECRET };
    const args = ['--port', `127.0.0.1:${this.port}`, '--health', '/health', '--quiet', 'posix', this.#root];
    this.#process = new Managed([S3_SERVER, ...args], { env, label: 'versitygw' });
    const until = Date.now() + patience(STARTED_MS);
    while (
      !(await fetch(`${this.url}/health`).then(
        ({ ok }) => ok,
        () => false,
      ))
    ) {
      if (Date.now() > until || !this.#process.running) throw this.#process.failure('does not answer');
      await delay(50);
    }
  }

  async stop(): Promise<void> {
    await this.#process?.stop();
  }
}
