/**
 * Transfers keys and values between two mock engines over HTTP. vLLM's NIXL and SGLang's Mooncake move memory between
 * GPUs, which do not exist here. Only the handover is checked: a decode engine that does not learn where its prompt's
 * keys and values are cannot get them.
 */
import type { EngineRequest } from './record.ts';

export type Role = 'prefill' | 'decode';

/** Maximum number of prompts with stored keys and values. The oldest are dropped first. */
const KEPT = 1000;
/** SGLang waits for a peer with its own, longer time-out. */
const PEER_WAIT_MS = 5_000;

export class KvTransfer {
  readonly role: Role;
  /** Prompts by the id of their keys and values, or by their `bootstrap_room`. */
  readonly #held = new Map<string, string>();
  readonly #waiting = new Map<string, () => void>();
  #next = 1;
  /** In a decode engine: the number of prompts that it got from a prefill engine. */
  received = 0;

  constructor(role: Role) {
    this.role = role;
  }

  #keep(id: string, prompt: string): void {
    if (this.#held.size >= KEPT) this.#held.delete(this.#held.keys().next().value ?? '');
    this.#held.set(id, prompt);
    this.#waiting.get(id)?.();
  }

  /** The additional members of a prefill engine's answer; `port`: its own. */
  prefill(body: Record<string, unknown>, port: number): Record<string, unknown> {
    const prompt = promptOf(body);
    if (body.bootstrap_room !== undefined) this.#keep(String(body.bootstrap_room), prompt);
    const wish = body.kv_transfer_params;
    if (typeof wish !== 'object' || wish === null || !('do_remote_decode' in wish) || wish.do_remote_decode !== true)
      return {};
    const id = `blocks-${this.#next++}`;
    this.#keep(id, prompt);
    const where = { remote_engine_id: 'prefill', remote_block_ids: [id], remote_host: '127.0.0.1', remote_port: port };
    return { kv_transfer_params: { do_remote_prefill: true, do_remote_decode: false, ...where } };
  }

  /** Fetches a decode engine's prompt from its peer. Returns an error message; undefined: success. */
  async receive(body: Record<string, unknown>): Promise<string | undefined> {
    const url = peerUrl(body);
    if (url === undefined) return undefined;
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(PEER_WAIT_MS) });
      const prompt = await answer.text();
      if (answer.status !== 200) return `no keys and values at ${url}`;
      if (prompt !== promptOf(body)) return 'the keys and values are of another prompt';
      this.received++;
      return undefined;
    } catch (error) {
      return String(error);
    }
  }

  /** GET /__kv/ID: the prompt, after it was computed; undefined: it was not computed in time. */
  async give(id: string): Promise<string | undefined> {
    if (!this.#held.has(id)) {
      await new Promise<void>((resolve) => {
        this.#waiting.set(id, resolve);
        setTimeout(resolve, id.startsWith('blocks-') ? 0 : PEER_WAIT_MS);
      });
      this.#waiting.delete(id);
    }
    return this.#held.get(id);
  }
}

const promptOf = (body: Record<string, unknown>) => JSON.stringify(body.messages ?? body.prompt);

function peerUrl({ kv_transfer_params: params, ...body }: Record<string, unknown>): string | undefined {
  if (body.bootstrap_room !== undefined)
    return `http://${String(body.bootstrap_host)}:${String(body.bootstrap_port)}/__kv/${String(body.bootstrap_room)}`;
  if (typeof params !== 'object' || params === null || !('remote_block_ids' in params)) return undefined;
  const { remote_block_ids: ids } = params;
  if (!Array.isArray(ids) || !('remote_host' in params && 'remote_port' in params)) return undefined;
  return `http://${String(params.remote_host)}:${String(params.remote_port)}/__kv/${String(ids[0])}`;
}

/** Returns the inference requests, without those for models and metrics. */
export const prompts = (requests: readonly EngineRequest[]) => requests.filter(({ url }) => url.startsWith('/v1/chat'));
