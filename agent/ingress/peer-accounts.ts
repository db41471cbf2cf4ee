/** Accounts for the attempts of all callers at this node's engine, and records what peer institutions use. */
import { PROVIDER_ID_PATTERN } from '../../shared/routing/trusted-providers.ts';
import { GpuShare } from '../../shared/usage/gpu-share.ts';
import { GPU_MS_MAX, type IngressUsage, TOKENS_MAX } from '../../shared/usage/ingress-usage.ts';
import type { PeerAllowances } from '../../shared/usage/peer-allowance.ts';
import { readableReceipt } from '../../shared/usage/readable-receipt.ts';
import type { ReportedTimings, ReportedUsage } from '../../shared/wire/reported-usage.ts';
import type { AccountedOpen, AttemptAccount, CallerAccount } from '../attempts/caller-account.ts';
import { PeerAdmission } from './peer-admission.ts';
import { NO_RECEIPT } from './resolve-route.ts';

const HOUR_MS = 60 * 60_000;
/** Longest model name in a record. A peer institution chooses the name. */
const MODEL_MAX_CHARS = 1024;

interface PeerAccountsOptions {
  /** Returns the number of this node's GPUs; 0: unknown. */
  gpus(): number;
  /** Returns the number of requests at this node's engine; undefined: unknown. */
  load(): { running: number; waiting: number } | undefined;
  /** Returns this node's current session. */
  session(): string;
  onUsage(record: IngressUsage): void;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Milliseconds since the epoch. */
  wall(): number;
  /** A random name of one attempt at this node. */
  newName(): string;
}

/**
 * All attempts share one GPU clock, so the GPU seconds of this institution and of its peers add up to the time for which
 * the engine worked.
 */
export class PeerAccounts {
  readonly #options: PeerAccountsOptions;
  readonly #share = new GpuShare();
  readonly #admission = new PeerAdmission();

  constructor(options: PeerAccountsOptions) {
    this.#options = options;
  }

  /** Replaces what peer institutions may use. An institution without an allowance has no limit. */
  setAllowances(allowances: PeerAllowances): void {
    this.#admission.setAllowances(allowances);
  }

  /**
   * Returns the account of a caller. `peer` returns the name of the caller's institution, and undefined for this agent's
   * institution. It is called at each attempt, because a gateway may get its name later.
   */
  of(peer: () => string | undefined): CallerAccount {
    return {
      refusal: (open) => this.#refusal(open, peer()),
      begin: (open) => this.#begin(open, peer()),
    };
  }

  #refusal(open: AccountedOpen, peer: string | undefined): ReturnType<CallerAccount['refusal']> {
    if (peer === undefined) return undefined;
    return this.#admission.refusal(peer, projectOf(open), this.#options.load());
  }

  #begin(open: AccountedOpen, peer: string | undefined): AttemptAccount {
    const { gpus, now } = this.#options;
    const share = this.#share.begin(gpus(), now());
    const project = peer === undefined ? '' : projectOf(open);
    this.#admission.count(peer, project, 1);
    let ended = false;
    return {
      report: (usage, timings) => {
        if (peer !== undefined) this.#record(open, peer, { usage, timings, gpuMs: share.at(now()) });
      },
      end: () => {
        share.end(now());
        if (!ended) this.#admission.count(peer, project, -1);
        ended = true;
      },
    };
  }

  #record(
    open: AccountedOpen,
    peer: string,
    { usage, timings, gpuMs }: { usage: ReportedUsage; timings: ReportedTimings; gpuMs: number },
  ): void {
    if (open.receipt === NO_RECEIPT) return;
    // The receipt of another agent's ingress is the model.
    const { model, project, untracked } = readableReceipt(open.receipt) ?? {
      model: open.receipt,
      project: undefined,
      untracked: false,
    };
    const { session, wall, newName, onUsage } = this.#options;
    const counts = {
      session: session(),
      prompt_tokens: Math.min(TOKENS_MAX, usage.prompt),
      completion_tokens: Math.min(TOKENS_MAX, usage.completion),
      cached_tokens: Math.min(TOKENS_MAX, usage.cached),
      reasoning_tokens: Math.min(TOKENS_MAX, usage.reasoning),
      estimated: usage.estimated,
      complete: usage.complete,
      aborted: usage.aborted,
      answer_bytes: 0,
    };
    const serving = newName();
    const gpu_ms = Math.min(GPU_MS_MAX, Math.round(gpuMs));
    const at = Math.round(wall());
    if (untracked) {
      // Only counts: neither the id nor the model, project or course of the request, and its time to the hour. Without
      // them a peer institution could use nodes without limit.
      onUsage({
        ...counts,
        request_id: serving,
        attempt: 1,
        model: '',
        peer: { name: peer, serving, gpu_ms, untracked: true },
        at: at - (at % HOUR_MS),
      });
      return;
    }
    onUsage({
      ...counts,
      request_id: open.requestId.slice(0, 128),
      attempt: open.attempt,
      model: model.slice(0, MODEL_MAX_CHARS),
      course: {
        endpoint: open.endpoint,
        streamed: open.streaming,
        status: timings.status,
        first_ms: timings.firstMs,
        total_ms: timings.totalMs,
      },
      peer: { name: peer, ...(project !== undefined && { project }), serving, gpu_ms },
      at,
    });
  }
}

/** The project that a peer institution names; empty: none. */
function projectOf({ receipt }: AccountedOpen): string {
  return readableReceipt(receipt)?.project ?? '';
}

/** The peer institution in the id of a provider, such as `lab@psi`; undefined for this agent's institution. */
export function peerOfProvider(provider: string): string | undefined {
  return PROVIDER_ID_PATTERN.exec(provider)?.[1]?.slice(1);
}
