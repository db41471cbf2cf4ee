/**
 * Tells gateways that this agent's process has ended where it cannot do so itself (SIGKILL, out of memory, a crash). Without it a gateway sees a
 * closed socket, which may as well be a proxy's, and waits 10 s for an agent that will never dial again: its clients' streams are silent for as long.
 *
 * As in engine/guard.ts a small shell waits on a pipe that only the agent holds. What it is to say it gets beforehand, signed: it has no key.
 */
import type { ChildProcess } from 'node:child_process';
import { spawnSafely } from './spawn.ts';

/** Each line replaces the one before; `off` means that the agent says good-bye itself. Signals to all of a job end the agent, not this. */
const SCRIPT = `trap '' HUP INT QUIT TERM USR1 USR2 PIPE
will=
while read -r line; do
  [ "$line" = off ] && exit 0
  will=$line
done
[ -z "$will" ] || printf '%s\\n' "$will" | "$@"`;

/** What a request to a gateway may need; nothing else of the agent's environment, where tokens may be. */
const ENVIRONMENT = [
  'PATH',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'NODE_EXTRA_CA_CERTS',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
] as const;

export class LastWill {
  readonly #shell: ChildProcess;

  /** `command` reads the will from its standard input and delivers it. */
  constructor(command: readonly string[], env: NodeJS.ProcessEnv, log: (line: string) => void) {
    const own = Object.fromEntries(ENVIRONMENT.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
    this.#shell = spawnSafely('sh', ['-c', SCRIPT, 'sh', ...command], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      env: own,
    });
    this.#shell.on('error', ({ message }) =>
      log(`gateways will not be told at once should this agent be killed: ${message}`),
    );
    this.#shell.stdin?.on('error', () => {});
    this.#shell.unref();
  }

  /** One line, in place of what was to be said before. */
  set(will: string): void {
    this.#shell.stdin?.write(`${will}\n`);
  }

  /** The agent has said good-bye. */
  dismiss(): void {
    this.#shell.stdin?.end('off\n');
  }
}
