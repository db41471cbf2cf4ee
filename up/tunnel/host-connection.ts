/** The connection to the host of a run: the shell there, the installed agent, and the relay. */
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { LocalGateway } from '../gateway/local-gateway.ts';
import { connectAndRun, connectHost } from '../host/connect-host.ts';
import { type Host, THIS_MACHINE } from '../host/host.ts';
import { shellQuoted } from '../host/shell-words.ts';
import { agentFile, hashedAgent } from '../install/agent-file.ts';
import { agentPath, installAgent, isInstalled } from '../install/install-agent.ts';
import { agentBundle } from '../install/program-files.ts';
import type { LoginNode } from '../site/site.ts';
import { runCluster, runDirectory, type StoredRun, WAITING } from '../state/runs.ts';
import type { UpError } from '../up-error.ts';
import { openRelay, type RelaySession } from './relay-session.ts';
import { TUNNEL_URL, type TunnelIdentity } from './tunnel-identity.ts';

interface HostConnectionOptions {
  run: StoredRun;
  wish: {
    /** As after `ssh`, or THIS_MACHINE. */
    host: string;
    /** File of the agent; undefined: it is made here. */
    agent: string | undefined;
    /** Address at which the relay listens; undefined: found by routes. */
    relayAddress: string | undefined;
  };
  gateway: LocalGateway;
  identity: TunnelIdentity;
  /** Shows a step to the user. */
  step(text: string): void;
}

export class HostConnection {
  readonly #options: HostConnectionOptions;
  #host: Host | undefined;
  #relay: RelaySession | undefined;
  #lost: UpError | undefined;
  /** Path of the installed agent below the home directory. */
  #agent = '';

  constructor(options: HostConnectionOptions) {
    this.#options = options;
  }

  /** Why the connection ended; undefined while it is up. */
  get lost(): UpError | undefined {
    return this.#lost;
  }

  /** True if jobs reach the gateway without a relay. */
  get isLocal(): boolean {
    return this.#options.wish.host === THIS_MACHINE;
  }

  /** Connects and runs the script. @throws UpError */
  async open(script: string): Promise<{ host: Host; out: string }> {
    const connected = await connectAndRun(this.#options.wish.host, script);
    this.#host = connected.host;
    return connected;
  }

  /** @throws UpError */
  async reopen(): Promise<Host> {
    this.#host = await connectHost(this.#options.wish.host);
    return this.#host;
  }

  /** Installs the agent and returns its command. @throws UpError */
  async install(host: Host, site: LoginNode): Promise<string[]> {
    const { wish, step } = this.#options;
    if (this.isLocal) return [process.execPath, await agentBundle()];
    step('making the agent for the host');
    const agent = await agentFile(site.platform, wish.agent);
    this.#agent = agentPath(agent.digest);
    if (!isInstalled(site, agent)) {
      step(`installing the agent in ~/${this.#agent} of ${site.host}`);
      const sent = await hashedAgent(agent.path);
      this.#agent = agentPath(sent.digest);
      await installAgent(host, site, sent);
    }
    return [`~/${this.#agent}`];
  }

  /**
   * Prepares the run's directory for a job, which waits for the token and the relay. Their files exist from the start: a
   * compute node would remember for half a minute that a file of a shared file system is missing.
   */
  async prepare(host: Host): Promise<void> {
    const { identity, run } = this.#options;
    const at = `"$HOME"/${runDirectory(run.value)}`;
    const files = `for file in token relay; do echo ${WAITING} >${at}/$file; done`;
    await host.output(`set -e; umask 077; mkdir -p ${at}; ${files}; cat >${at}/gateway.pem`, identity.certificate);
  }

  /** Writes a join token where only this user can read it. It travels as input of ssh. */
  async writeToken(host: Host): Promise<void> {
    const { gateway, run } = this.#options;
    const earlier = run.value.token;
    const { id, token } = await gateway.createJoinToken(runCluster(run.value));
    const at = `"$HOME"/${runDirectory(run.value)}`;
    await host.output(`set -e; umask 077; cat >${at}/token.new; mv ${at}/token.new ${at}/token`, `${token}\n`);
    run.update({ token: id, waits: false });
    if (earlier !== undefined) await gateway.revokeJoinToken(earlier).catch(() => undefined);
  }

  /** @throws UpError if the relay does not start */
  async openRelay(host: Host): Promise<void> {
    const { identity, gateway, wish, run, step } = this.#options;
    if (this.isLocal) return;
    step(`connecting the gateway to ${wish.host}`);
    const at = `"$HOME"/${runDirectory(run.value)}`;
    const where =
      wish.relayAddress === undefined
        ? `--toward ${shellQuoted(run.value.toward ?? 'localhost')}`
        : `--address ${shellQuoted(wish.relayAddress)}`;
    const files = `--token-file ${at}/token --pid-file ${at}/relay.pid --address-file ${at}/relay`;
    const command = `umask 077; exec "$HOME"/${this.#agent} relay --gateway ${TUNNEL_URL} ${files} ${where}`;
    const relay = await openRelay({ ssh: host, command, context: identity.context, port: () => gateway.port });
    this.#relay = relay;
    this.#lost = undefined;
    neverRejects(
      relay.ended.then((why) => {
        if (this.#relay === relay) this.#lost = why;
      }),
    );
  }

  async close(): Promise<void> {
    this.#relay?.close();
    await this.#host?.close();
  }
}
