/**
 * The page of the reference with every error code of the API: its status from the table of codes, its cause and its
 * remedy.
 */
import { ERROR_KINDS, type ErrorCode } from '../../shared/openai/api-errors.ts';
import { code, markdownTable } from './table.ts';

/** Cause and remedy of each code. The type makes the compiler report a new code that is missing here. */
const MEANINGS: Readonly<Record<ErrorCode, readonly [why: string, action: string]>> = {
  invalid_request: ['a member of the request is missing or out of range', '`param` names it'],
  invalid_value: ['a field of a batch has a value that is not allowed', 'the message lists the allowed values'],
  invalid_type: ['a field of a batch has the wrong type', 'the message has the correct type'],
  invalid_json: ['the body is not JSON', 'the message has the position; in a shell, check the quotes'],
  invalid_multipart: ["an upload's form is malformed", 'create the form with a library'],
  duplicate_key: ['the body has a key twice', 'send it once'],
  invalid_requirement: [
    '`x-otela-require` or `x-otela-prefer` is malformed',
    'keys: `gpu vram quantization precision context engine tier region time_left reasoning_budget`, with `=` or `>=`',
  ],
  unknown_provider: [
    '`x-otela-trusted-providers` has a provider that this gateway has never known',
    '`/v1/registry/providers` lists the providers; providers of a peer institution are `name@peer`',
  ],
  previous_response_not_found: [
    '`previous_response_id` names no response of this project, or its node has left',
    'send the messages of the conversation as `input`',
  ],
  invalid_api_key: [
    'the API key is missing, wrong, expired or revoked, or its user is disabled',
    'send `Authorization: Bearer sk-otela-…`; ask for a new key',
  ],
  model_not_allowed: [
    'the list of the key or its project lacks this model, or `x-otela-model` is used with such a key',
    'use another model, or omit the header; ask an operator',
  ],
  no_trusted_provider: [
    'the key, the project and the request have no trusted provider in common',
    'use fewer restrictions; ask an operator which providers your project may use',
  ],
  permission_denied: [
    'the key does not have the scope, the endpoint or the role',
    'the message names it; ask an operator for it',
  ],
  model_not_found: [
    'no node served this model in the last day',
    '`GET /v1/models` lists the names; they are case-sensitive',
  ],
  not_found: ['the path or object does not exist', 'check that the base URL ends with `/v1`'],
  method_not_allowed: [
    'the path does not accept this method, for example GET in place of POST',
    'see the `allow` header',
  ],
  request_timeout: [
    'the body was slower than 500 bytes per second for 30 s',
    'send it without pauses; on a slow connection, use `x-otela-model: NAME`',
  ],
  session_expired: ['a realtime session reached its maximum duration', 'open another session'],
  session_over: ["a node's session has ended", 'list the nodes again'],
  conflict: [
    "the object's state does not allow this",
    'a finished batch cannot be canceled; cancel a batch before deleting a file that it reads',
  ],
  seal_stale: [
    'no node that the request is encrypted for serves the model now',
    'the client gets new keys automatically',
  ],
  order_refused: [
    'the node refuses this order now, for example to drain',
    'a peer institution admitted the node, its tunnel is at another gateway, or its agent is too old',
  ],
  deployment_refused: ['the node refuses this deployment now', 'the message has the reason'],
  requirement_not_met: [
    'nodes serve the model, but no node meets your requirement',
    'the message lists the available values; require less, or use `x-otela-prefer`',
  ],
  request_too_large: [
    'the body is above the limit, 33 MiB by default',
    'send a smaller body, or use `x-otela-model: NAME`',
  ],
  range_not_satisfiable: [
    'the `range` of a download begins after the end of the file',
    'you have the whole file: `content-range` has its length',
  ],
  unsupported_media_type: [
    'the upload is not a form, or the body is compressed',
    'send `multipart/form-data`, uncompressed',
  ],
  unprocessable_content: [
    'the request is well-formed, but its content contradicts itself, stored data, or the current time',
    'the message names the member',
  ],
  upgrade_required: [
    'the client opened a WebSocket, but the path accepts only POST',
    'send the request with POST; Codex does this automatically',
  ],
  rate_limit_exceeded: [
    'a limit of the key or its project is reached: requests or tokens per minute, or concurrent requests',
    'wait for `retry-after`; without this header, `max_tokens` is above the limit',
  ],
  insufficient_quota: ["the month's tokens are used up", 'wait for the next month (UTC), or ask an operator'],
  queue_full: ['too many requests wait for this model', 'wait for `retry-after`'],
  internal_error: ['an internal error of the gateway', 'report it with the `x-request-id`'],
  upstream_error: [
    'the connection to the engine was lost, or the engine returned a 5xx error in a stream',
    'retry; for streams, use `x-otela-resume: 1`',
  ],
  no_capacity: [
    'no node that may receive the request serves the model now, or no node became free in time; the message says if the last node left long ago',
    'retry later',
  ],
  model_starting: [
    'engines are loading the model, or the request starts it',
    'wait for `retry-after`, or send `x-otela-wait`; `/v1/models?state=all` has `ready_in_ms`',
  ],
  server_is_overloaded: [
    'the node or the gateway is overloaded or starting, or the gateway cannot reach its storage',
    'wait for `retry-after`, which is short',
  ],
  upstream_timeout: [
    'the engine did not start its response in time (15 minutes; 30 for reasoning models), or its response stalled',
    'stream the response, or send a smaller prompt; an operator can change the timeouts',
  ],
};

interface Kind {
  status: number;
  type: string;
  headers?: Readonly<Record<string, string>>;
}

export function errorsPage(): string {
  const kinds: [string, Kind][] = Object.entries(ERROR_KINDS);
  const rows = kinds
    .toSorted(([, one], [, other]) => one.status - other.status)
    .map(([name, { status, type, headers }]) => {
      const [why, action] = MEANINGS[name as ErrorCode];
      return [String(status), code(name), code(type), why, action, again(status, headers)];
    });
  return [
    '# Errors of the API',
    'The body is OpenAI\'s `{"error": {"message", "type", "param", "code"}}`; `/v1/messages` has Anthropic\'s form, with `param` and `code` in addition. An error without such a `code` is from the engine, or from a proxy between you and the gateway. OpenAI\'s SDKs retry errors with `yes`, unless the response has `x-should-retry: false`.',
    markdownTable(['status', 'code', 'type', 'why', 'what to do', 'SDKs retry'], rows),
    'Only agents get 426 `protocol_mismatch` and 428 `attestation_required`.',
  ].join('\n\n');
}

/** `yes` if OpenAI's SDKs retry: they do so on 408, 409, 429 and 5xx, unless a header says otherwise. */
function again(status: number, headers: Kind['headers'] = {}): string {
  if (headers['x-should-retry'] === 'false') return 'no';
  return status >= 500 || [408, 409, 429].includes(status) ? 'yes' : 'no';
}
