/**
 * Corrects the content-type of event streams that the engine labels as JSON, as vLLM's example proxies for
 * disaggregated prefill do (https://github.com/vllm-project/vllm/pull/47526). Handled as JSON, such a response would
 * reach its client only when it is complete.
 */
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineEvents } from './engine-call.ts';

const JSON_TYPE = /^application\/json\b/i;
/**
 * First bytes of an event stream: `data`, `event`, `id`, `retry`, a comment, a byte order mark. No JSON value has one.
 */
const FIRST_BYTES: ReadonlySet<number> = new Set([...Buffer.from('deir:'), 0xef]);

/**
 * Passes on the engine's answer to a streaming request. If the head says JSON, holds it back until the first bytes show
 * whether the body is an event stream.
 */
export function relabelStream(events: EngineEvents): EngineEvents {
  let held: HeaderList | undefined;
  const release = (first: number | undefined) => {
    if (held === undefined) return;
    const isStream = first !== undefined && FIRST_BYTES.has(first);
    const headers: HeaderList = isStream ? held.map(streamType) : held;
    held = undefined;
    events.onHead(200, headers, false);
  };
  return {
    onHead: (status, headers, sized) => {
      const type = headers.find(([name]) => name === 'content-type')?.[1] ?? '';
      const isEncoded = headers.some(([name]) => name === 'content-encoding');
      if (status !== 200 || sized || isEncoded || !JSON_TYPE.test(type)) return events.onHead(status, headers, sized);
      held = headers;
    },
    onData: (chunk) => {
      release(chunk[0]);
      events.onData(chunk);
    },
    onEnd: () => {
      release(undefined);
      events.onEnd();
    },
    onError: (code, message) => {
      release(undefined);
      events.onError(code, message);
    },
  };
}

function streamType([name, value]: HeaderList[number]): HeaderList[number] {
  return name === 'content-type' ? [name, 'text/event-stream'] : [name, value];
}
