/** Asks an engine for one token. It is the shortest request that the engine's scheduler must run. */
import { Agent } from 'undici';
import type { EngineTarget } from './engine-address.ts';
import { askEngine } from './engine-request.ts';
import type { TokenProbeResult } from './hang-check.ts';

/** Maximum length of a response with one token. */
const ANSWER_MAX_BYTES = 64 * 1024;

/** The result is `silent` if no answer arrives within `timeoutMs`. Never rejects. */
export async function probeForToken(target: EngineTarget, model: string, timeoutMs: number): Promise<TokenProbeResult> {
  // A connection for this request only, so that neither a proxy from the agent's environment nor waiting requests on
  // other connections delay it.
  const dispatcher = new Agent({ connections: 1, headersTimeout: 0, bodyTimeout: 0 });
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const body = { model, prompt: '1', max_tokens: 1, stream: false };
    const asked = { dispatcher, signal, maxBytes: ANSWER_MAX_BYTES, body };
    const { status, text } = await askEngine(target, '/v1/completions', asked);
    // Only status 200 shows that the scheduler runs: an engine without /v1/completions answers with another status even
    // if its scheduler is stuck.
    if (status >= 500) return 'failed';
    return text !== undefined && status === 200 ? 'token' : 'unknown';
  } catch {
    return signal.aborted ? 'silent' : 'unknown';
  } finally {
    await dispatcher.destroy();
  }
}
