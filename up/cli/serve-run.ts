/** The steps of `otela up`, in order. */

import { setTimeout as delay } from 'node:timers/promises';
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import { ProgressLine } from '../../packaging/install/progress-line.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { LocalGateway } from '../gateway/local-gateway.ts';
import { agentFile } from '../install/agent-file.ts';
import { agentPath, installAgent, isInstalled } from '../install/install-agent.ts';
import { ColdModel } from '../job/cold-model.ts';
import { firstToken } from '../job/first-token.ts';
import { successorMinutes } from '../job/job-chain.ts';
import { runDirectory } from '../job/job-plan.ts';
import { statusText } from '../job/job-status.ts';
import { JobWatch } from '../job/job-watch.ts';
import { RunJobs } from '../job/run-jobs.ts';
import { checkScript } from '../site/check-script.ts';
import { type LoginNode, parseSite } from '../site/site.ts';
import { Ssh } from '../ssh/openssh.ts';
import { shellQuoted } from '../ssh/shell-words.ts';
import { runCluster, type StoredRun } from '../state/runs.ts';
import { openRelay, type RelaySession } from '../tunnel/relay-session.ts';
import { TUNNEL_URL, type TunnelIdentity } from '../tunnel/tunnel-identity.ts';
import { UpError } from '../up-error.ts';
import { accessJson, coldText, readyText } from './ready-text.ts';
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

interface RunServices {
  run: StoredRun;
  wish: UpWish;
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
  #ssh: Ssh | undefined;
  #relay: RelaySession | undefined;
  /** Why the connection ended; undefined while it is up. */
  #lost: UpError | undefined;
  /** Digest of the installed agent. */
  #digest = '';
  /** True if this command submitted jobs, and did not find one. */
  #hasSubmitted = false;

  constructor(services: RunServices) {
    this.#services = services;
  }

  get hasSubmitted(): boolean {
    return this.#hasSubmitted;
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
      const { run } = this.#services;
      const jobs = new RunJobs({ run, site, wish, digest: this.#digest, ssh });
      await this.#startJob(ssh, jobs);
      await (wish.idleMs === undefined ? this.#serveNow(jobs, from) : this.#serveCold(jobs, wish.idleMs));
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#line.end();
      this.#relay?.close();
      await this.#ssh?.close();
    }
  }

  /** Waits for the first token, and then serves. @param from when the command began */
  async #serveNow(jobs: RunJobs, from: number): Promise<void> {
    const { gateway, out, run, wish } = this.#services;
    const submitted = performance.now();
    const model = await this.#waitUntilServed(jobs);
    const readyMs = performance.now() - submitted;
    this.#step('asking for the first token');
    const key = await gateway.apiKey();
    const first = await firstToken(gateway.url, key, model);
    this.#step('');
    const access = { url: gateway.url, key, model };
    const seconds = (performance.now() - from) / 1_000;
    out.print(wish.json ? accessJson(access) : readyText({ ...access, first, seconds }));
    const { keepMs } = wish;
    const keep =
      keepMs === undefined
        ? undefined
        : { untilMs: Date.now() + keepMs, timeMs: timeLimitMs(jobs.chosen.time) ?? keepMs };
    const tell = out.complain;
    await this.#keep(jobs, new JobWatch({ run, jobs, gateway, keep, readyMs, tell, now: Date.now }));
  }

  /** Serves without a job until a request waits. */
  async #serveCold(jobs: RunJobs, idleMs: number): Promise<void> {
    const { gateway, out, run, wish } = this.#services;
    const cold = new ColdModel({
      gateway: gateway.url,
      tokenFile: await gateway.factoryTokenFile(),
      factory: runCluster(run.value),
      model: wish.model,
      gpus: wish.pool.gpus,
      refused: out.complain,
    });
    cold.open();
    try {
      this.#step('');
      const access = { url: gateway.url, key: await gateway.apiKey(), model: wish.model };
      out.print(wish.json ? accessJson(access) : coldText(access));
      const tell = out.complain;
      await this.#keep(jobs, new JobWatch({ run, jobs, gateway, cold: { model: cold, idleMs }, tell, now: Date.now }));
    } finally {
      await cold.close();
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
  async #startJob(ssh: Ssh, jobs: RunJobs): Promise<void> {
    const { run, wish } = this.#services;
    this.#step('looking for the job');
    const alive = (await jobs.list()).filter(({ state }) => state !== 'ended');
    // The newest that runs; its successors wait.
    const current = alive.findLast(({ state }) => state === 'running') ?? alive[0];
    if (current !== undefined && run.value.toward !== undefined) {
      run.update({ job: current.id });
      await this.#openRelay(ssh);
      return;
    }
    const { pool, time } = jobs.choose();
    await this.#writeSecrets(ssh);
    this.#hasSubmitted = true;
    // Saved before the submission: if its result is unclear, the next start finds the job by its name.
    run.update({ toward: pool.address, partition: pool.partition });
    await this.#openRelay(ssh);
    if (wish.idleMs !== undefined) return;
    this.#step('submitting the job');
    const job = await jobs.submit();
    run.update({ job });
    if (wish.keepMs !== undefined) await jobs.submit({ job, minutes: successorMinutes(timeLimitMs(time) ?? 0) });
  }

  /** Writes the join token and the certificate where only this user can read them. They travel as input of ssh. */
  async #writeSecrets(ssh: Ssh): Promise<void> {
    const { gateway, identity, run } = this.#services;
    if (run.value.token !== undefined) await gateway.revokeJoinToken(run.value.token).catch(() => undefined);
    const { id, token } = await gateway.createJoinToken(runCluster(run.value));
    run.update({ token: id });
    const at = `"$HOME"/${runDirectory(run.value)}`;
    const script = `set -e; umask 077; mkdir -p ${at}; read -r token; printf '%s\\n' "$token" >${at}/token; cat >${at}/gateway.pem`;
    await ssh.output(script, `${token}\n${identity.certificate}`);
  }

  async #openRelay(ssh: Ssh): Promise<void> {
    const { identity, gateway, wish, run } = this.#services;
    this.#step(`connecting the gateway to ${wish.host}`);
    const at = `"$HOME"/${runDirectory(run.value)}`;
    const where =
      wish.relayAddress === undefined
        ? `--toward ${shellQuoted(run.value.toward ?? 'localhost')}`
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
  async #waitUntilServed(jobs: RunJobs): Promise<string> {
    const { gateway, signal, wish, run } = this.#services;
    const { job = '' } = run.value;
    const from = performance.now();
    let hinted = false;
    for (;;) {
      signal.throwIfAborted();
      const nodes = await gateway.nodes(runCluster(run.value)).catch(() => []);
      const node = nodes.find(({ job: of, state }) => of?.id === job && state === 'SERVING');
      const ready = node?.models.filter(({ state }) => state === 'ready') ?? [];
      const found = ready.find(({ id }) => id === wish.model) ?? ready[0];
      if (found !== undefined) return found.id;
      const status = await jobs.status(job);
      if (status.kind === 'ended') throw await this.#endedEarly(jobs, job, status.state);
      this.#step(statusText(job, status, new Date()));
      const waitedMs = performance.now() - from;
      if (status.kind === 'pending' && !hinted && waitedMs > HINT_AFTER_MS) {
        hinted = true;
        await this.#hintOtherPartitions(jobs);
      }
      await delay(waitedMs > LATER_AFTER_MS && status.kind === 'pending' ? ASK_LATER_MS : ASK_MS, undefined, {
        signal,
      });
    }
  }

  async #endedEarly(jobs: RunJobs, job: string, state: string): Promise<UpError> {
    const failure = await jobs.failure(job, state);
    // The successors of `--keep` would fail, too.
    const left = (await jobs.list()).flatMap(({ id, state: of }) => (of === 'pending' ? [id] : []));
    await jobs.cancel(left);
    return failure;
  }

  async #hintOtherPartitions(jobs: RunJobs): Promise<void> {
    const { wish, out } = this.#services;
    const names = await jobs.idleElsewhere(wish.pool.gpus);
    if (names === '') return;
    this.#step('');
    out.complain(
      `The job waits, but other partitions have idle GPUs: ${names}. To use one: otela down ${wish.model}, then otela up with --partition.`,
    );
  }

  /** Keeps the connection until the signal or the job's end. The job continues while the connection is lost. */
  async #keep(jobs: RunJobs, watch: JobWatch): Promise<void> {
    const { signal, out, gateway } = this.#services;
    for (let pauseMs = AGAIN_MS; ; ) {
      await delay(TICK_MS, undefined, { signal });
      if (this.#lost === undefined) {
        await gateway.ensure();
        await watch.look();
        continue;
      }
      out.complain(`The connection is lost; the job continues. ${this.#lost.message}`);
      await delay(pauseMs, undefined, { signal });
      pauseMs = (await this.#connectAgain(jobs)) ? AGAIN_MS : Math.min(2 * pauseMs, AGAIN_MAX_MS);
    }
  }

  async #connectAgain(jobs: RunJobs): Promise<boolean> {
    const { wish, out } = this.#services;
    try {
      const ssh = await this.#connect();
      jobs.connectedAgain(ssh);
      await this.#openRelay(ssh);
      this.#step('');
      out.complain(`connected to ${wish.host} again`);
      return true;
    } catch (error) {
      this.#lost = error instanceof UpError ? error : new UpError(errorText(error), 'otela connects again.');
      return false;
    }
  }
}
