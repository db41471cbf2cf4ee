/** Responses that the mock engine keeps in memory, as vLLM does with VLLM_ENABLE_RESPONSES_API_STORE. */
import { type Answer, type Ask, json, refuse } from './answer.ts';
import { responseBody, responseEvents, responses } from './responses.ts';
import { text } from './words.ts';

type Status = 'queued' | 'completed' | 'cancelled';

export class StoredResponses {
  readonly #kept = new Map<string, { ask: Ask; status: Status; polls: number; background: boolean }>();

  /** Creates a response. In the background it is complete after `stand_in.polls` retrievals. */
  create(asked: Ask): Answer {
    const ask = { ...asked, id: asked.behaviour?.id ?? `resp_${crypto.randomUUID().replaceAll('-', '')}` };
    const { previous_response_id: previous, store, background } = ask.body;
    if (typeof previous === 'string' && !this.#kept.has(previous)) return unknown(previous);
    const answer = responses(ask);
    if (store === false || (answer.kind === 'json' && answer.status !== 200)) return answer;
    const polls = ask.behaviour?.polls ?? 0;
    const isBackground = background === true;
    this.#kept.set(ask.id, { ask, status: isBackground ? 'queued' : 'completed', polls, background: isBackground });
    return isBackground && answer.kind === 'json' ? json(responseBody(ask, 'queued', undefined)) : answer;
  }

  /** Answers a request for a stored response; undefined for another path. */
  answer(method: string, path: string, query: URLSearchParams): Answer | undefined {
    const [, id = '', cancel] = /^\/v1\/responses\/([^/]+)(\/cancel)?$/.exec(path) ?? [];
    if (id === '') return undefined;
    const kept = this.#kept.get(id);
    if (kept === undefined) return unknown(id);
    if (cancel !== undefined && !kept.background) return refuse(400, 'invalid_request_error', 'not in the background');
    if (cancel !== undefined) kept.status = 'cancelled';
    else if (method === 'DELETE') {
      this.#kept.delete(id);
      return json({ id, object: 'response', deleted: true });
    } else if (kept.status === 'queued' && kept.polls-- <= 0) kept.status = 'completed';
    if (query.get('stream') === 'true') return { kind: 'stream', events: responseEvents(kept.ask) };
    return json(responseBody(kept.ask, kept.status, kept.status === 'completed' ? text(kept.ask.tokens) : undefined));
  }
}

function unknown(id: string): Answer {
  return refuse(404, 'invalid_request_error', `Response with id '${id}' not found.`, 'response_id');
}
