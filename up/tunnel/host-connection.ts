/** The connection to the host of a run: the shell there, the installed agent, and the relay. */
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { LocalGateway } from '../gateway/local-gateway.ts';
import { connectAndRun, reconnectHost } from '../host/connect-host.ts';
import { type Host, THIS_MACHINE } from '../host/host.ts';
import type { PodWish } from '../host/kubernetes/pod-manifest.ts';
import { shellQuoted } from '../host/shell-words.ts';
import { agentFile, hashedAgent } from '../install/agent-file.ts';
import { agentPath, installAgent, isInstalled } from '../install/install-agent.ts';
import { agentBundle } from '../install/program-files.ts';
import type { LoginNode } from '../site/site.ts';
import { runCluster, runDirectory, type StoredRun, WAITING } from '../state/runs.ts';
import { UpError } from '../up-error.ts';
import { openRelay, type RelaySession } from './relay-session.ts';
import { TUNNEL_URL, type TunnelIdentity } from './tunnel-identity.ts';

/** How long the start of a job's step may wait. */
const STEP_S = 20;

interface HostConnectionOptions {
  run: StoredRun;
  wish: {
    /** As after `ssh`, or THIS_MACHINE. */
    host: string;
    /** File of the agent; undefined: it is made here. */
    agent: string | undefined;
    /** Address at which the relay listens; undefined: found by routes. */
    relayAddress: string | undefined;
    /** The pod in which the engine runs, if the host is a Kubernetes cluster. */
    kubernetes: PodWish | undefined;
    /** Defined if jobs follow each other, on different nodes. */
    keepMs: number | undefined;
  };
  gateway: LocalGateway;
  identity: TunnelIdentity;
  /** Shows a step to the user. */
  step(text: string): void;
  signal: AbortSignal;
}

export class HostConnection {
  readonly #options: HostConnectionOptions;
  #host: Host | undefined;
  #session: RelaySession | undefined;
  #lost: UpError | undefined;
  /** True if the last relay may have been killed by the host. */
  #mayBeKilled = false;
  /** True if the host kills relays, so that the next one runs in the job. */
  #movesRelay = false;
  /** Path of the installed agent below the home directory. */
  #agent = '';
  #hasReached = false;
  #hasCreatedPod = false;

  constructor(options: HostConnectionOptions) {
    this.#options = options;
  }

  /** Why the connection ended; undefined while it is up. */
  get lost(): UpError | undefined {
    return this.#lost;
  }

  /** True if something of the run may be on the host. */
  get hasReached(): boolean {
    return this.#hasReached;
  }

  /** True if this connection may have created a pod. */
  get hasCreatedPod(): boolean {
    return this.#hasCreatedPod;
  }

  /** True if jobs reach the gateway without a relay. */
  get isLocal(): boolean {
    return this.#options.wish.host === THIS_MACHINE;
  }

  /** Connects and runs the script. @throws UpError */
  async open(script: string): Promise<{ host: Host; out: string }> {
    const { run, wish, step, signal } = this.#options;
    const created = (mayExist: boolean) => {
      this.#hasReached = mayExist;
      this.#hasCreatedPod = mayExist;
    };
    const pod = wish.kubernetes === undefined ? undefined : { wish: wish.kubernetes, step, created, signal };
    const connected = await connectAndRun(run.value, script, pod);
    this.#hasReached = true;
    this.#host = connected.host;
    return connected;
  }

  /** @throws UpError */
  async reopen(): Promise<Host> {
    // The relay ended, and the connection did not: the host killed it, as some sites do with long processes.
    if (this.#mayBeKilled && this.#options.run.value.batch === undefined && (await this.#host?.isConnected()) === true)
      this.#movesRelay = true;
    this.#host = await reconnectHost(this.#options.run.value);
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

  /** Opens the relay on the host, or in the job if the host kills relays. @throws UpError if it does not start */
  async openRelay(host: Host): Promise<void> {
    const { wish, run, step } = this.#options;
    if (this.isLocal) return;
    const { job, toward = 'localhost' } = run.value;
    if (this.#movesRelay && job !== undefined) {
      step(`${wish.host} ends long processes: moving the relay into job ${job}`);
      // If the job has ended, the relay is on the host until the next job serves.
      if (await this.#openBy(host, this.#commandInJob(job)).then(() => true, isRefusal)) return;
    }
    step(`connecting the gateway to ${wish.host}`);
    const { relayAddress } = wish;
    const where =
      relayAddress === undefined ? `--toward ${shellQuoted(toward)}` : `--address ${shellQuoted(relayAddress)}`;
    await this.#openBy(host, `umask 077; exec ${this.#relay(where)}`);
  }

  /** @param where flags with the address at which it listens */
  #relay(where: string): string {
    const at = `"$HOME"/${runDirectory(this.#options.run.value)}`;
    const files = `--token-file ${at}/token --pid-file ${at}/relay.pid --address-file ${at}/relay`;
    return `"$HOME"/${this.#agent} relay --gateway ${TUNNEL_URL} ${files} ${where}`;
  }

  /**
   * A step of the job beside its engine. Its output is unbuffered, because Slurm would wait for ends of lines. Jobs that
   * follow reach the relay only at an address of the inner network.
   */
  #commandInJob(job: string): string {
    const step = `srun --jobid=${shellQuoted(job)} --overlap --nodes=1 --ntasks=1 --unbuffered --quiet --immediate=${STEP_S}`;
    const where = this.#options.wish.keepMs === undefined ? '--address 127.0.0.1' : '--toward "$(hostname)"';
    return `umask 077; exec ${step} ${this.#relay(where)}`;
  }

  async #openBy(host: Host, command: string): Promise<void> {
    const { identity, gateway } = this.#options;
    const relay = await openRelay({ ssh: host, command, context: identity.context, port: () => gateway.port });
    this.#session = relay;
    this.#lost = undefined;
    neverRejects(
      relay.ended.then(({ error, byKillOrSsh }) => {
        if (this.#session !== relay) return;
        this.#lost = error;
        this.#mayBeKilled = byKillOrSsh;
      }),
    );
  }

  async close(): Promise<void> {
    this.#session?.close();
    // Another run would log in again, perhaps with a second factor.
    if (!(await this.#options.run.sharesHost())) await this.#host?.close();
  }
}

function isRefusal(error: unknown): false {
  if (error instanceof UpError) return false;
  throw error;
}
