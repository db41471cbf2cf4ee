/** A run's pod as a host: kubectl starts it, runs scripts in it, and deletes it. */
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { type CommandResult, commandRunner, type RunCommand } from '../../../node/command-runner.ts';
import type { Run } from '../../state/runs.ts';
import { HostGoneError, UpError } from '../../up-error.ts';
import { type Host, type HostProcess, lastChars } from '../host.ts';
import { type KubernetesPlace, kubernetesHost } from './place.ts';
import { CONTAINER, GRACE_S, type PodWish, podLabels, podManifest, podName } from './pod-manifest.ts';
import { type PodState, parsePodState } from './pod-state.ts';

/** Interval of questions to the API server while the pod waits. */
const ASK_MS = 1_000;
/** Answers in a row without a pod's state until the wait ends. */
const FAILURES_MAX = 10;
/** Deleting waits for agent and engine. */
const DELETE_MS = (GRACE_S + 30) * 1_000;

export interface PodStart {
  wish: PodWish;
  step(text: string): void;
  /** Called before the pod is created, and with false if the API server has refused it. */
  created(mayExist: boolean): void;
  signal: AbortSignal;
}

export class KubernetesPod implements Host {
  readonly host: string;
  readonly #run: Pick<Run, 'id' | 'model'>;
  readonly #flags: readonly string[];
  readonly #kubectl: RunCommand = commandRunner();

  constructor(place: KubernetesPlace, run: Pick<Run, 'id' | 'model'>) {
    this.host = kubernetesHost(place);
    this.#run = run;
    this.#flags = ['--context', place.context, '--namespace', place.namespace];
  }

  get #pod(): string {
    return podName(this.#run);
  }

  /** Continues with the pod that runs, or creates it, and waits until it runs. @throws UpError, the signal's reason */
  async start({ wish, step, created, signal }: PodStart): Promise<void> {
    const found = await this.#state();
    if (found.kind === 'foreign') throw this.#foreign();
    if (found.kind === 'ended' || found.kind === 'stuck') {
      step('deleting the pod that has ended');
      await this.remove();
    }
    if (found.kind !== 'running' && found.kind !== 'waits') {
      step(`creating the pod ${this.#pod}`);
      const manifest = JSON.stringify(podManifest(this.#run, wish));
      // If the answer is lost, the run must still be known, so that otela down deletes its pod.
      created(true);
      const answer = await this.#ran(['create', '-f', '-'], manifest);
      if (answer.kind !== 'done' || answer.code !== 0) {
        if (answer.kind === 'missing' || REFUSED.test(answer.errors)) created(false);
        throw refusal(this.host, answer.errors);
      }
    }
    for (let failures = 0; ; await delay(ASK_MS, undefined, { signal })) {
      const state = await this.#state().catch((error: unknown) => {
        if (++failures >= FAILURES_MAX) throw error;
        return undefined;
      });
      if (state === undefined) continue;
      failures = 0;
      if (state.kind === 'running') return;
      if (state.kind === 'waits') step(`the pod waits: ${state.said}`);
      else throw await this.#neverRan(state, wish);
    }
  }

  /** @throws HostGoneError if the pod has ended */
  async requireRunning(): Promise<void> {
    const state = await this.#state();
    if (state.kind === 'running') return;
    if (state.kind === 'waits')
      throw new UpError(`The pod ${this.#pod} does not run: ${state.said}.`, 'otela connects again.');
    const said = 'said' in state ? `has ended: ${state.said}` : 'was deleted';
    throw new HostGoneError(`The pod ${this.#pod} ${said}.`, 'The same command starts the next one.');
  }

  async #neverRan(state: Exclude<PodState, { kind: 'running' | 'waits' }>, { image }: PodWish): Promise<UpError> {
    if (state.kind === 'foreign') return this.#foreign();
    if (state.kind === 'missing')
      return new UpError(`The pod ${this.#pod} was deleted before it ran.`, 'Run otela up again.');
    await this.remove();
    if (state.kind === 'ended')
      return new UpError(
        `The pod ${this.#pod} ended before the engine started: ${state.said}.`,
        `The image ${image} needs /bin/bash. Give another with --image.`,
      );
    return new UpError(
      `The container does not start: ${state.said}.`,
      `Check the image ${image}, or give another with --image. If the image needs a login, add a pull secret to the default service account of the namespace.`,
    );
  }

  /** @throws UpError if the API server does not answer */
  async #state(): Promise<PodState> {
    const asked = await this.#ran(['get', 'pod', this.#pod, '--ignore-not-found', '-o', 'json']);
    if (asked.kind !== 'done' || asked.code !== 0) throw refusal(this.host, asked.errors);
    const state = parsePodState(asked.out, podLabels(this.#run));
    if (state !== undefined) return state;
    throw new UpError(
      `The answer of kubectl is not a pod: ${asked.out.slice(0, 200)}`,
      'Check that kubectl get pods works.',
    );
  }

  /** Deletes the pod. Agent and engine end first. Another pod with its name stays. @throws UpError */
  async remove(): Promise<void> {
    if (!isPresent(await this.#state())) return;
    // Without --wait: that needs the right to watch pods.
    const done = await this.#ran(['delete', 'pod', this.#pod, '--ignore-not-found', '--wait=false']);
    if (done.kind !== 'done' || done.code !== 0) throw refusal(this.host, done.errors);
    for (const until = performance.now() + DELETE_MS; isPresent(await this.#state()); await delay(ASK_MS))
      if (performance.now() > until) throw new UpError(`The pod ${this.#pod} does not end.`, 'Run otela down again.');
  }

  #foreign(): UpError {
    return new UpError(
      `The pod ${this.#pod} was not created by otela up for this run.`,
      'It is not used and not deleted. Run otela down, then otela up: the next pod has another name.',
    );
  }

  #ran(words: readonly string[], input?: string): Promise<CommandResult> {
    return this.#kubectl('kubectl', [...this.#flags, ...words], input);
  }

  #exec(script: string, ...flags: string[]): string[] {
    return ['exec', this.#pod, '--container', CONTAINER, ...flags, '--', 'bash', '-c', script];
  }

  async output(script: string, input?: string): Promise<string> {
    return (await this.#inPod(this.#exec(script, '--stdin'), input)).out;
  }

  async #inPod(words: readonly string[], input?: string): Promise<CommandResult & { kind: 'done' }> {
    const result = await this.#ran(words, input);
    if (result.kind === 'done' && result.code === 0) return result;
    // A relay to a node that is gone may stay open, so this is how the end of the pod shows.
    await this.requireRunning().catch((error: unknown) => {
      if (error instanceof HostGoneError) throw error;
    });
    throw new UpError(
      `A command in the pod ${this.#pod} failed: ${result.errors}`,
      `kubectl ${this.#flags.join(' ')} describe pod ${this.#pod} shows its state. Run otela up again.`,
    );
  }

  readonly runner: RunCommand = (file, args, input) =>
    this.#ran(['exec', this.#pod, '--container', CONTAINER, '--stdin', '--', file, ...args], input);

  async send(script: string, stream: Readable): Promise<void> {
    const child = this.spawn(script);
    const [errors, code] = [lastChars(child.stderr), new Promise<number | null>((end) => child.once('close', end))];
    child.stdout.resume();
    // A failure of the other end shows in its exit code and its error output.
    await pipeline(stream, child.stdin).catch(() => undefined);
    if ((await code) !== 0)
      throw new UpError(`Sending to the pod ${this.#pod} failed: ${errors().trim()}`, 'Run otela up again.');
  }

  spawn(script: string): HostProcess {
    const words = [...this.#flags, ...this.#exec(script, '--stdin')];
    return spawn('kubectl', words, { stdio: ['pipe', 'pipe', 'pipe'] });
  }

  show(script: string): Promise<number> {
    const child = spawn('kubectl', [...this.#flags, ...this.#exec(script)], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    return new Promise((resolve, reject) => child.once('error', reject).once('exit', (code) => resolve(code ?? 1)));
  }

  /** kubectl connects for each command. */
  async isConnected(): Promise<boolean> {
    return false;
  }

  async close(): Promise<void> {}
}

const isPresent = ({ kind }: PodState): boolean => kind !== 'missing' && kind !== 'foreign';

/** What kubectl prints if the API server has certainly not created the pod. */
const REFUSED = /Error from server \((?:BadRequest|Forbidden|Invalid|NotFound|Unauthorized)\)|Pod ".*" is invalid/;

/** Explains why the API server refused. */
function refusal(host: string, errors: string): UpError {
  const place = host.replace(/^kubernetes (\S+) (\S+)$/, 'the namespace $2 of $1');
  const found = REFUSALS.find(({ seen }) => seen.test(errors));
  return new UpError(
    `Kubernetes refuses in ${place}: ${errors}`,
    found?.wayOn ?? 'Check that kubectl works there: kubectl get pods.',
  );
}

const REFUSALS: readonly { seen: RegExp; wayOn: string }[] = [
  {
    seen: /exceeded quota/i,
    wayOn: 'The namespace has a quota. End other pods there, or give fewer --gpus, or another --namespace.',
  },
  {
    seen: /namespaces? .*not found/i,
    wayOn: 'Give another --namespace, or ask your cluster for one.',
  },
  {
    seen: /Forbidden|cannot (?:get|create|delete) resource/i,
    wayOn:
      'You need the rights to get, create and delete pods, and to create pods/exec, in the namespace. Ask your cluster, or give another --namespace.',
  },
  {
    seen: /Unauthorized|must be logged in|credentials|token.*expired/i,
    wayOn: 'Log in to the cluster as you do for kubectl, then run otela up again.',
  },
  {
    seen: /refused|timeout|timed out|no route|unreachable|no such host|did not answer/i,
    wayOn: 'The API server does not answer. Check the network or the VPN: kubectl get pods must work.',
  },
];
