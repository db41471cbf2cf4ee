/** The steps of `otela up`, in order. */

import { setTimeout as delay } from 'node:timers/promises';
import type { Launcher } from '../../factory/launchers/launcher.ts';
import { ProgressLine } from '../../packaging/install/progress-line.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { LocalGateway } from '../gateway/local-gateway.ts';
import { agentFile } from '../install/agent-file.ts';
import { agentPath, installAgent, isInstalled } from '../install/install-agent.ts';
import { firstToken } from '../job/first-token.ts';
import { launcherOn, planJob, runDirectory, runJobName, submitFailure } from '../job/job-plan.ts';
import { type JobStatus, parseStatus, statusScript, statusText } from '../job/job-status.ts';
import { checkScript } from '../site/check-script.ts';
import { choosePool } from '../site/choose-pool.ts';
import { type LoginNode, parseSite } from '../site/site.ts';
import { Ssh } from '../ssh/openssh.ts';
import { shellQuoted } from '../ssh/shell-words.ts';
import type { Run, Runs } from '../state/runs.ts';
import { openRelay, type RelaySession } from '../tunnel/relay-session.ts';
import { TUNNEL_URL, type TunnelIdentity } from '../tunnel/tunnel-identity.ts';
import { UpError } from '../up-error.ts';
import { readyText } from './ready-text.ts';
import type { UpWish } from './up-flags.ts';

/** Intervals between two questions to Slurm. A login node is shared, so a long wait asks rarely. */
const ASK_MS = 2_000;
const ASK_LATER_MS = 15_000;
const LATER_AFTER_MS = 60_000;
/** A job that waits this long gets a hint about other partitions. */
const HINT_AFTER_MS = 20_000;
/** Pauses between two tries to connect again. */
const AGAIN_MS = 2_000;
const AGAIN_MAX_MS = 60_000;
/** Interval of the look at gateway and connection while the model serves. */
const TICK_MS = 2_000;
const LOG_LINES = 15;

interface RunServices {
  wish: UpWish;
  runs: Runs;
  gateway: LocalGateway;
  identity: TunnelIdentity;
  out: Output;
  /** Aborted by Ctrl-C and by `otela down`. */
  signal: AbortSignal;
}

export class RunServer {
  readonly #services: RunServices;
  readonly #line = new ProgressLine();
  #shown = '';
  #run: Run;
  #ssh: Ssh | undefined;
  #relay: RelaySession | undefined;
  /** Why the connection ended; undefined while it is up. */
  #lost: UpError | undefined;
  /** Digest of the installed agent. */
  #digest = '';

  constructor(run: Run, services: RunServices) {
    this.#run = run;
    this.#services = services;
  }

  /** Serves until the signal, or until the job has ended. @throws UpError */
  async serve(): Promise<void> {
    const { wish, gateway, out, signal } = this.#services;
    const from = performance.now();
    try {
      // ssh may ask for a password or a code in the terminal: no line is drawn over it.
      out.complain(`connecting to ${wish.host} with ssh`);
      const ssh = await this.#connect();
      const site = parseSite(wish.host, await ssh.output(checkScript(wish.engine.setup)));
      this.#step('starting the gateway on this machine');
      await gateway.ensure();
      await this.#install(ssh, site);
      const launcher = launcherOn(ssh.runner, site.pools);
      await this.#startJob(ssh, site, launcher);
      const model = await this.#waitUntilServed(ssh, launcher);
      this.#step('asking for the first token');
      const key = await gateway.apiKey();
      const first = await firstToken(gateway.url, key, model);
      this.#step('');
      out.print(readyText({ url: gateway.url, key, model, first, seconds: (performance.now() - from) / 1_000 }));
      await this.#keep();
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#line.end();
      this.#relay?.close();
      await this.#ssh?.close();
    }
  }

  /** Shows a step; an empty text ends the line. */
  #step(text: string): void {
    if (text === '') this.#line.end();
    else if (text !== this.#shown) this.#line.step(text);
    this.#shown = text;
  }

  async #connect(): Promise<Ssh> {
    this.#ssh = await Ssh.connect(this.#services.wish.host);
    return this.#ssh;
  }

  async #install(ssh: Ssh, site: LoginNode): Promise<void> {
    this.#step('making the agent for the cluster');
    const agent = await agentFile(site.platform, this.#services.wish.agent);
    this.#digest = agent.digest;
    if (isInstalled(site, agent)) return;
    this.#step(`installing the agent in ~/${agentPath(agent.digest)} of ${site.host}`);
    await installAgent(ssh, site, agent);
  }

  /** Finds the run's job, or submits it. */
  async #startJob(ssh: Ssh, site: LoginNode, launcher: Launcher): Promise<void> {
    this.#step('looking for the job');
    const listed = await launcher.list(runJobName(this.#run));
    const alive = listed.find(({ state }) => state !== 'ended');
    if (alive !== undefined && this.#run.toward !== undefined) {
      this.#run = this.#services.runs.save({ ...this.#run, job: alive.id });
      await this.#openRelay(ssh);
      return;
    }
    const { wish, runs } = this.#services;
    const { pool, time } = choosePool(site, wish.pool);
    await this.#writeSecrets(ssh);
    // Saved before the submission: if its result is unclear, the next start finds the job by its name.
    this.#run = runs.save({ ...this.#run, toward: pool.address, partition: pool.partition });
    await this.#openRelay(ssh);
    this.#step('submitting the job');
    const submission = planJob({ run: this.#run, site, pool, time, wish: wish.engine, digest: this.#digest });
    const [job] = await launcher.submit(submission).catch((error: unknown) => {
      throw submitFailure(error, site, wish.engine.account);
    });
    if (job !== undefined) this.#run = runs.save({ ...this.#run, job });
  }

  /** Writes the join token and the certificate where only this user can read them. They travel as input of ssh. */
  async #writeSecrets(ssh: Ssh): Promise<void> {
    const { gateway, identity, runs } = this.#services;
    if (this.#run.token !== undefined) await gateway.revokeJoinToken(this.#run.token).catch(() => undefined);
    const { id, token } = await gateway.createJoinToken(`up-${this.#run.id}`);
    this.#run = runs.save({ ...this.#run, token: id });
    const at = `"$HOME"/${runDirectory(this.#run)}`;
    const script = `set -e; umask 077; mkdir -p ${at}; read -r token; printf '%s\\n' "$token" >${at}/token; cat >${at}/gateway.pem`;
    await ssh.output(script, `${token}\n${identity.certificate}`);
  }

  async #openRelay(ssh: Ssh): Promise<void> {
    const { identity, gateway, wish } = this.#services;
    this.#step(`connecting the gateway to ${wish.host}`);
    const at = `"$HOME"/${runDirectory(this.#run)}`;
    const where =
      wish.relayAddress === undefined
        ? `--toward ${shellQuoted(this.#run.toward ?? 'localhost')}`
        : `--address ${shellQuoted(wish.relayAddress)}`;
    const files = `--token-file ${at}/token --pid-file ${at}/relay.pid --address-file ${at}/relay`;
    const command = `umask 077; exec "$HOME"/${agentPath(this.#digest)} relay --gateway ${TUNNEL_URL} ${files} ${where}`;
    const relay = await openRelay({ ssh, command, context: identity.context, port: () => gateway.port });
    this.#relay = relay;
    this.#lost = undefined;
    neverRejects(
      relay.ended.then((why) => {
        if (this.#relay === relay) this.#lost = why;
      }),
    );
  }

  /** Resolves with the name of a model that the job's node serves. @throws UpError if the job ends */
  async #waitUntilServed(ssh: Ssh, launcher: Launcher): Promise<string> {
    const { gateway, signal, wish } = this.#services;
    const { job = '', partition = '' } = this.#run;
    const from = performance.now();
    let hinted = false;
    for (;;) {
      signal.throwIfAborted();
      const node = (await gateway.nodes().catch(() => [])).find(
        ({ job: of, state }) => of?.id === job && state === 'SERVING',
      );
      const ready = node?.models.filter(({ state }) => state === 'ready') ?? [];
      const found = ready.find(({ id }) => id === wish.model) ?? ready[0];
      if (found !== undefined) return found.id;
      const status = parseStatus(job, await ssh.output(statusScript(job, partition)));
      if (status.kind === 'ended') throw await this.#jobEnded(ssh, job, status);
      this.#step(statusText(job, status, new Date()));
      const waitedMs = performance.now() - from;
      if (status.kind === 'pending' && !hinted && waitedMs > HINT_AFTER_MS) {
        hinted = true;
        await this.#hintOtherPartitions(launcher, partition);
      }
      await delay(waitedMs > LATER_AFTER_MS && status.kind === 'pending' ? ASK_LATER_MS : ASK_MS, undefined, {
        signal,
      });
    }
  }

  async #hintOtherPartitions(launcher: Launcher, partition: string): Promise<void> {
    const { wish, out } = this.#services;
    const capacity = (await launcher.capacity().catch(() => undefined)) ?? [];
    const others = capacity.filter(({ pool, idle }) => pool !== partition && idle >= wish.pool.gpus);
    if (others.length === 0) return;
    this.#step('');
    const names = others.map(({ pool, idle }) => `${pool} (${idle} idle GPUs)`).join(', ');
    out.complain(
      `The job waits, but other partitions have idle GPUs: ${names}. To use one: otela down ${wish.model}, then otela up with --partition.`,
    );
  }

  async #jobEnded(ssh: Ssh, job: string, { state }: JobStatus & { kind: 'ended' }): Promise<UpError> {
    const file = `"$HOME"/${runDirectory(this.#run)}/${job}.log`;
    const tail = (await ssh.output(`tail -n ${LOG_LINES} ${file} 2>/dev/null || true`).catch(() => '')).trim();
    const happened = `The job ${job} ended before the model answered (${state}).${tail === '' ? '' : ` Its last lines:\n${tail}`}`;
    if (state.startsWith('OUT_OF_ME') || /out of memory/i.test(tail))
      return new UpError(
        happened,
        'The model needs more memory: give --gpus 2, or --engine-argument=--max-model-len=8192.',
      );
    return new UpError(happened, 'Correct what the lines say, then run otela up again. otela logs shows all lines.');
  }

  /** Keeps the connection until the signal or the job's end. The job continues while the connection is lost. */
  async #keep(): Promise<void> {
    const { signal, out, gateway } = this.#services;
    for (let pauseMs = AGAIN_MS; ; ) {
      await delay(TICK_MS, undefined, { signal });
      if (this.#lost === undefined) {
        await gateway.ensure();
        await this.#checkJob();
        continue;
      }
      out.complain(`The connection is lost; the job continues. ${this.#lost.message}`);
      await delay(pauseMs, undefined, { signal });
      pauseMs = (await this.#connectAgain()) ? AGAIN_MS : Math.min(2 * pauseMs, AGAIN_MAX_MS);
    }
  }

  /** Asks Slurm about the job only if its node has left the gateway. @throws UpError if the job has ended */
  async #checkJob(): Promise<void> {
    const { job = '', partition = '' } = this.#run;
    const nodes = await this.#services.gateway.nodes().catch(() => undefined);
    const isServing = nodes?.some(({ job: of, state }) => of?.id === job && state === 'SERVING');
    if (isServing !== false || this.#ssh === undefined) return;
    const out = await this.#ssh.output(statusScript(job, partition)).catch(() => '');
    if (out === '') return;
    const status = parseStatus(job, out);
    if (status.kind === 'ended')
      throw new UpError(
        `${statusText(job, status, new Date())}.`,
        'The same command starts the next one. A longer time limit is --time.',
      );
  }

  async #connectAgain(): Promise<boolean> {
    const { wish, out } = this.#services;
    try {
      await this.#openRelay(await this.#connect());
      this.#step('');
      out.complain(`connected to ${wish.host} again`);
      return true;
    } catch (error) {
      this.#lost = error instanceof UpError ? error : new UpError(errorText(error), 'otela connects again.');
      return false;
    }
  }
}
