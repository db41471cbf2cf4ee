/**
 * Runs the user's program that judges evidence of nodes, for `otela seal --verifier`. docs/sealed.md describes the
 * program's input.
 */
import { spawn } from 'node:child_process';
import { printable } from '../../shared/terminal/printable.ts';
import type { Evidence, EvidenceVerifier } from '../seal/index.ts';

/**
 * Timeout of the program, which may request certificates from a manufacturer. Then it is killed, and the node is
 * skipped.
 */
const VERIFIER_MS = 60_000;
/** Maximum wait for the program's output after its exit. */
const PIPE_MS = 1_000;
/** Maximum number of characters of the program's output that are shown. */
const OUTPUT_SHOWN_MAX = 300;

interface VerifierCommandOptions {
  file: string;
  print(line: string): void;
  timeoutMs?: number;
}

export class VerifierCommand implements EvidenceVerifier {
  readonly #options: VerifierCommandOptions;

  constructor(options: VerifierCommandOptions) {
    this.#options = options;
  }

  /**
   * True if the program exits with 0. @throws Error if it is killed or cannot be run, which proves nothing about the
   * node
   */
  async verify(evidence: Evidence): Promise<boolean> {
    const { node, kinds } = evidence;
    const { code, said } = await this.#run(evidence);
    const failed = code === undefined;
    const refused = failed ? 'the verifier failed' : 'the verifier rejected its evidence';
    const verdict = code === 0 ? 'the verifier accepted its evidence' : `not used: ${refused}`;
    const named = printable(`${node.session} of ${node.provider} (${kinds.join(', ')})`);
    this.#options.print(`${named}: ${verdict}${said && `: ${said}`}`);
    if (failed) throw new Error(`the verifier failed${said && `: ${said}`}`);
    return code === 0;
  }

  /** `code` is undefined if the program was killed or could not be started. */
  #run({ node, kinds, bytes, reportData }: Evidence): Promise<{ code?: number; said: string }> {
    const { promise, resolve } = Promise.withResolvers<{ code?: number; said: string }>();
    const { file, timeoutMs = VERIFIER_MS } = this.#options;
    const child = spawn(file, [], { stdio: ['pipe', 'pipe', 'ignore'], timeout: timeoutMs, killSignal: 'SIGKILL' });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(0, OUTPUT_SHOWN_MAX);
    });
    child.once('error', ({ message }) => resolve({ said: message }));
    const judge = (code: number | null) => resolve({ ...(code !== null && { code }), said: printable(said).trim() });
    child.once('close', judge);
    // Does not wait for a grandchild process that keeps the pipe open.
    child.once('exit', (code) => setTimeout(judge, PIPE_MS, code).unref());
    // A program that does not read its input is judged by its exit code, so the pipe's error is ignored.
    child.stdin.on('error', () => {});
    const { session, provider, kid } = node;
    const input = {
      node: { session, provider, kid },
      kinds,
      evidence: Buffer.from(bytes).toString('base64'),
      report_data: Buffer.from(reportData).toString('hex'),
    };
    child.stdin.end(JSON.stringify(input));
    return promise;
  }
}
