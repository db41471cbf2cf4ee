/**
 * Informs gateways that this agent's process has ended, if the agent cannot do so itself (SIGKILL, out of memory, a
 * crash). Otherwise a gateway would see only a closed socket, which may be a proxy's fault. It would wait 10 s for an
 * agent that never dials again, and its clients' streams would stall meanwhile.
 *
 * As in engine/orphan-guard.ts, a small shell waits on a pipe that only the agent holds. The shell has no key, so it
 * gets the signed message in advance.
 */
import type { ChildProcess } from 'node:child_process';
import { PROXY_VARIABLES } from './proxy-variables.ts';
import { spawnSafely } from './spawn-safely.ts';

/**
 * The shell reads messages; each line replaces the one before. The line `off` means that the agent has published LEFT
 * itself. The shell ignores signals that the batch system sends to all processes of the job, because it must outlive
 * the agent.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM USR1 USR2 PIPE
will=
while read -r line; do
  [ "$line" = off ] && exit 0
  will=$line
done
[ -z "$will" ] || printf '%s\\n' "$will" | "$@"`;

/** Environment variables that a request to a gateway may need. The other variables may contain tokens. */
const ENVIRONMENT = ['PATH', ...PROXY_VARIABLES, 'NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE', 'SSL_CERT_DIR'] as const;

export class LastWill {
  readonly #shell: ChildProcess;

  /** @param command reads the message from its standard input and delivers it */
  constructor(command: readonly string[], env: NodeJS.ProcessEnv, log: (line: string) => void) {
    const own = Object.fromEntries(ENVIRONMENT.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
    this.#shell = spawnSafely('sh', ['-c', SCRIPT, 'sh', ...command], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      env: own,
    });
    this.#shell.on('error', ({ message }) =>
      log(`cannot start the helper that reports a killed agent, so gateways would notice a kill late: ${message}`),
    );
    this.#shell.stdin?.on('error', () => {});
    this.#shell.unref();
  }

  /** Replaces the message, which is one line. */
  set(will: string): void {
    this.#shell.stdin?.write(`${will}\n`);
  }

  /** Call when the agent has published LEFT itself. */
  dismiss(): void {
    this.#shell.stdin?.end('off\n');
  }
}
