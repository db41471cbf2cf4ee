/** The steps of `otela up`, in order. */

import { setTimeout as delay } from 'node:timers/promises';
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import { ProgressLine } from '../../packaging/install/progress-line.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { LocalGateway } from '../gateway/local-gateway.ts';
import { type Host, THIS_MACHINE } from '../host/host.ts';
import { ColdModel } from '../job/cold-model.ts';
import { foundJobsScript, parseFoundJobs } from '../job/end-jobs.ts';
import { fetchWeights } from '../job/fetch-weights.ts';
import { firstToken } from '../job/first-token.ts';
import { hostEngine } from '../job/host-engine.ts';
import { successorMinutes } from '../job/job-chain.ts';
import type { EngineWish } from '../job/job-plan.ts';
import { type JobStatus, statusText } from '../job/job-status.ts';
import { JobWatch } from '../job/job-watch.ts';
import { earlierPartitions } from '../job/partition-starts.ts';
import { ProcessJobs } from '../job/process-jobs.ts';
import type { RunJob } from '../job/run-job-list.ts';
import type { RunJobs } from '../job/run-jobs.ts';
import { SlurmJobs } from '../job/slurm-jobs.ts';
import { AGAIN_MAX_MS, AGAIN_MS, statusAcrossLosses } from '../job/status-across-losses.ts';
import { waitUntilServed } from '../job/wait-until-served.ts';
import { checkScript } from '../site/check-script.ts';
import { type LoginNode, parseSite } from '../site/site.ts';
import { runCluster, type StoredRun } from '../state/runs.ts';
import { HostConnection } from '../tunnel/host-connection.ts';
import type { TunnelIdentity } from '../tunnel/tunnel-identity.ts';
import { HostGoneError, UpError } from '../up-error.ts';
import { accessJson, coldText, readyText } from './ready-text.ts';
import type { UpWish } from './up-flags.ts';

/** A job that waits this long gets a hint about other partitions, and further ones while it waits. */
const HINT_AFTER_MS = 20_000;
const HINT_AGAIN_MS = 30 * 60_000;
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

interface JobStart {
  host: Host;
  jobs: RunJobs;
  agent: readonly string[];
  engine: EngineWish;
  /** Lines for the user about engine and weights. */
  said: readonly string[];
}

export class RunServer {
  readonly #services: RunServices;
  readonly #line = new ProgressLine();
  #shown = '';
  readonly #connection: HostConnection;
  /** The start of the gateway, while other steps run. */
  #starting: Promise<[PromiseSettledResult<void>]> | undefined;
  #hasSubmitted = false;

  constructor(services: RunServices) {
    this.#services = services;
    this.#connection = new HostConnection({ ...services, step: (text) => this.#step(text) });
  }

  /** True if this command submitted jobs or created a pod, and did not find one. */
  get hasSubmitted(): boolean {
    return this.#hasSubmitted || this.#connection.hasCreatedPod;
  }

  get hasReachedHost(): boolean {
    return this.#connection.hasReached;
  }

  /** Serves until the signal, or until the job has ended. @throws UpError */
  async serve(): Promise<void> {
    const { wish, gateway, out, signal, run } = this.#services;
    const from = performance.now();
    this.#starting = Promise.allSettled([gateway.ensure()]);
    try {
      // ssh may ask for a password or a code in the terminal: no line is drawn over it.
      const { host: name, kubernetes } = wish;
      if (name !== THIS_MACHINE)
        out.complain(`connecting to ${name} with ${kubernetes === undefined ? 'ssh' : 'kubectl'}`);
      const check = checkScript(wish.engine.setup, foundJobsScript(run.value));
      const { host, out: checked } = await this.#connection.open(check);
      const parsed = parseSite(wish.host, checked);
      const { site, engine, said } = hostEngine(parsed, wish.engine);
      const agent = await this.#connection.install(host, site);
      // The job starts before the gateway if it does not need its address.
      if (this.#connection.isLocal) await this.#gatewayStarted();
      const jobWish = { pool: wish.pool, engine };
      const options = {
        run,
        site,
        wish: jobWish,
        agent,
        gateway: this.#connection.isLocal ? gateway.url : undefined,
        host,
      };
      const hasSlurm = usesSlurm(site, wish);
      if (!hasSlurm) requireNoChain(wish);
      run.update({ batch: hasSlurm ? undefined : 'none' });
      const jobs = hasSlurm ? new SlurmJobs(options) : new ProcessJobs(options);
      const start = { host, jobs, agent, engine, said };
      await this.#startJob(start, parseFoundJobs(run.value, checked));
      await (wish.idleMs === undefined ? this.#serveNow(jobs, from) : this.#serveCold(jobs, wish.idleMs));
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#line.end();
      await this.#connection.close();
      // A gateway that still starts could not be ended.
      await this.#starting;
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

  /** Continues with the run's job, or submits one. @param found the run's jobs on the host */
  async #startJob({ host, jobs, agent, engine, said }: JobStart, found: readonly RunJob[]): Promise<void> {
    const { run, wish, signal, out } = this.#services;
    const alive = found.filter(({ state }) => state !== 'ended');
    // The newest that runs; its successors wait.
    const current = alive.findLast(({ state }) => state === 'running') ?? alive[0];
    if (current !== undefined && run.value.toward !== undefined) {
      run.update({ job: current.id });
      await this.#connectGateway(host);
      return;
    }
    const { pool, time } = jobs.choose();
    this.#step('');
    for (const line of said) out.complain(line);
    const { model, fetches } = wish;
    const step = (text: string) => this.#step(text);
    if (fetches) await fetchWeights({ host, agent, model, setup: engine.setup, step, signal });
    await this.#connection.prepare(host);
    this.#hasSubmitted = true;
    // Saved before the submission: if its result is unclear, the next start finds the job by its name.
    run.update({ toward: pool.address, partition: pool.partition, waits: true });
    if (wish.idleMs !== undefined) return this.#connectGateway(host);
    const job = await this.#submitAndConnect(host, jobs);
    if (wish.keepMs !== undefined) await jobs.submit({ job, minutes: successorMinutes(timeLimitMs(time) ?? 0) });
  }

  /** @throws UpError if the gateway does not start */
  async #gatewayStarted(): Promise<void> {
    if (this.#starting === undefined) throw new Error('the gateway was not started');
    this.#step('starting the gateway on this machine');
    const [started] = await this.#starting;
    if (started.status === 'rejected') throw started.reason;
  }

  /** Opens the relay when the gateway has started. A job that waits for its token gets one. */
  async #connectGateway(host: Host): Promise<void> {
    await this.#gatewayStarted();
    if (this.#services.run.value.waits === true) await this.#connection.writeToken(host);
    await this.#connection.openRelay(host);
  }

  /** Submits the job while the gateway starts and the relay opens: the agent waits for both. */
  async #submitAndConnect(host: Host, jobs: RunJobs): Promise<string> {
    const { run } = this.#services;
    this.#step('submitting the job');
    const [submitted, connected] = await Promise.allSettled([jobs.submit(), this.#connectGateway(host)]);
    if (submitted.status === 'rejected') throw submitted.reason;
    if (connected.status === 'rejected') {
      await jobs.cancel([submitted.value]);
      throw connected.reason;
    }
    run.update({ job: submitted.value });
    return submitted.value;
  }

  /** Resolves with the name of a model that the job's node serves. @throws UpError if the job ends */
  async #waitUntilServed(jobs: RunJobs): Promise<string> {
    const { gateway, signal, wish, run } = this.#services;
    const { job = '' } = run.value;
    let hintMs = HINT_AFTER_MS;
    const onStatus = async (status: JobStatus, waitedMs: number) => {
      this.#step(statusText(job, status, new Date()));
      if (status.kind !== 'pending' || waitedMs < hintMs) return;
      hintMs = waitedMs + HINT_AGAIN_MS;
      await this.#hintOtherPartitions(jobs, status.starts);
    };
    const cluster = runCluster(run.value);
    let connecting = Promise.resolve();
    const connectAgain = () => {
      const again = this.#connectAgain(jobs);
      connecting = again.catch(() => undefined);
      return again;
    };
    const over = new AbortController();
    const both = AbortSignal.any([signal, over.signal]);
    const status = statusAcrossLosses({ jobs, connection: this.#connection, connectAgain, signal: both });
    const wait = { gateway, jobs: { status }, job, cluster, model: wish.model, onStatus, signal };
    // A relay that opens after the end would not be closed.
    const outcome = await waitUntilServed(wait).finally(() => {
      over.abort();
      return connecting;
    });
    if (outcome.kind === 'ended') throw await this.#endedEarly(jobs, job, outcome.state);
    return outcome.model;
  }

  async #endedEarly(jobs: RunJobs, job: string, state: string): Promise<UpError> {
    const failure = await jobs.failure(job, state);
    // The successors of `--keep` would fail, too.
    const left = (await jobs.list()).flatMap(({ id, state: of }) => (of === 'pending' ? [id] : []));
    await jobs.cancel(left);
    return failure;
  }

  /** @param starts expected start of the job in its partition, in UTC; undefined: unknown */
  async #hintOtherPartitions(jobs: RunJobs, starts: string | undefined): Promise<void> {
    const { wish, out } = this.#services;
    // A hint is not worth the end of the wait.
    const found = await jobs.startsElsewhere().catch(() => []);
    const names = earlierPartitions(found, starts === undefined ? undefined : Date.parse(`${starts}Z`));
    if (names === '') return;
    this.#step('');
    out.complain(
      `The job waits, but other partitions would start it earlier: ${names}. To use one: otela down ${wish.model}, then otela up with --partition.`,
    );
  }

  /** Keeps the connection until the signal or the job's end. The job continues while the connection is lost. */
  async #keep(jobs: RunJobs, watch: JobWatch): Promise<void> {
    const { signal, out, gateway } = this.#services;
    let pauseMs = AGAIN_MS;
    for (let { lost } = this.#connection; ; ) {
      await delay(TICK_MS, undefined, { signal });
      lost ??= this.#connection.lost;
      if (lost === undefined) {
        const failure = await gateway.ensure().then(() => undefined, toUpError);
        if (failure === undefined) await watch.look();
        else {
          out.complain(`The gateway on this machine fails; the job continues. ${failure.message}`);
          await delay(AGAIN_MAX_MS, undefined, { signal });
        }
        continue;
      }
      out.complain(`The connection is lost; the job continues. ${lost.message}`);
      await delay(pauseMs, undefined, { signal });
      lost = await this.#connectAgain(jobs).then(
        () => undefined,
        (error: unknown) => {
          if (error instanceof HostGoneError) throw error;
          return toUpError(error);
        },
      );
      pauseMs = lost === undefined ? AGAIN_MS : Math.min(2 * pauseMs, AGAIN_MAX_MS);
    }
  }

  async #connectAgain(jobs: RunJobs): Promise<void> {
    const { wish, out } = this.#services;
    const host = await this.#connection.reopen();
    jobs.connectedAgain(host);
    await this.#connection.openRelay(host);
    this.#step('');
    out.complain(`connected to ${wish.host} again`);
  }
}

/** @throws UpError if the host has Slurm, but Slurm does not answer there: the engine must not start on a login node */
function usesSlurm({ programs, partitions }: LoginNode, { host, noSlurm }: UpWish): boolean {
  if (noSlurm || !programs.has('sbatch')) return false;
  if (partitions.length > 0) return true;
  // Many machines have the programs of Slurm, and no cluster.
  if (host === THIS_MACHINE) return false;
  throw new UpError(
    `Slurm on ${host} shows no partitions.`,
    `Check that sinfo works there. If ${host} has no Slurm: --no-slurm runs the engine on ${host} itself.`,
  );
}

/** @throws UpError */
function requireNoChain({ keepMs, host }: UpWish): void {
  if (keepMs !== undefined) throw new UpError(`${host} has no Slurm, so its engine has no time limit.`, 'Omit --keep.');
}

function toUpError(error: unknown): UpError {
  return error instanceof UpError ? error : new UpError(errorText(error), 'otela tries again.');
}
