/** Every error code of the API: its status from the table of codes, its cause and its remedy. */
import { ERROR_KINDS, type ErrorCode } from '../../shared/openai/errors.ts';
import { code, table } from './table.ts';

/** Cause and remedy. Because of the type, the compiler reports a new code that has no line here. */
const MEANINGS: Readonly<Record<ErrorCode, readonly [why: string, action: string]>> = {
  invalid_request: ['a member of the request is missing or out of range', '`param` names it'],
  invalid_value: ['a field of a batch has a value that is not allowed', 'the message lists those allowed'],
  invalid_type: ['a field of a batch has the wrong type', 'the message has the form'],
  invalid_json: ['the body is not JSON', 'the message has the byte; in a shell look at the quotes'],
  invalid_multipart: ["an upload's form is malformed", 'let a library make the form'],
  duplicate_key: ['a key stands twice in the body', 'send it once'],
  invalid_requirement: [
    '`x-otela-require` or `x-otela-prefer` cannot be read',
    'keys: `gpu vram quantization context engine tier region time_left reasoning_budget`, with `=` or `>=`',
  ],
  unknown_provider: [
    'a name in `x-otela-trusted-providers` that this gateway never knew',
    '`/v1/registry/providers` lists them; those of another institution are `name@peer`',
  ],
  invalid_api_key: [
    'no key; a wrong, expired or revoked one; or a disabled person',
    'send `Authorization: Bearer sk-otela-…`; ask for a new key',
  ],
  model_not_allowed: [
    'the list of the key or its project lacks this model, or `x-otela-model` is used with such a key',
    'another model, or without the header; ask who gave you the key',
  ],
  no_trusted_provider: [
    'key, project and request have no provider in common',
    'name fewer restrictions; ask whose machines your project may use',
  ],
  permission_denied: ['the key lacks a scope, an endpoint or the role', 'the message says which; ask for it'],
  model_not_found: [
    'no node served that name within a day',
    '`GET /v1/models` has the names; upper and lower case count',
  ],
  not_found: ['no such path or object', 'does the base URL end with `/v1`?'],
  method_not_allowed: ['GET where it is POST, for example', 'see the `allow` header'],
  request_timeout: [
    'less than 500 bytes a second came of a body for 30 s',
    'send it without pauses; on a bad line use `x-otela-model: NAME`',
  ],
  session_over: ["a node's session has ended", 'list the nodes again'],
  conflict: [
    "the object's state forbids this",
    'a finished batch cannot be cancelled; cancel a batch before deleting a file that it reads',
  ],
  seal_stale: [
    'none of the nodes that a request is sealed to serves the model now',
    'the client asks for their keys again by itself',
  ],
  order_refused: [
    'a node does not obey this order now, to drain for example',
    'another institution admitted it, its tunnel is at another gateway, or its agent is too old',
  ],
  deployment_refused: ['a node does not take this deployment now', 'the message says why'],
  requirement_not_met: [
    'nodes serve the model, and none has what you require',
    'the message says what there is; require less, or use `x-otela-prefer`',
  ],
  request_too_large: ['the body is above the limit, 33 MiB by default', 'send less, or `x-otela-model: NAME`'],
  range_not_satisfiable: [
    'the `range` of a download begins behind the end of the file',
    'you have all of it: `content-range` says how long it is',
  ],
  unsupported_media_type: [
    'an upload that is not a form, or a compressed body',
    'send `multipart/form-data`, uncompressed',
  ],
  unprocessable_content: [
    'the form is right, and the content contradicts itself, what is stored, or the time',
    'the message names the member',
  ],
  upgrade_required: [
    'a WebSocket was opened where only POST answers',
    'send the same as POST; Codex does so by itself',
  ],
  rate_limit_exceeded: [
    'a limit of the key or its project: requests or tokens a minute, or requests at once',
    'wait for `retry-after`; without that header `max_tokens` is above the limit',
  ],
  insufficient_quota: ["the month's tokens are used up", 'wait for the next month (UTC), or ask an operator'],
  queue_full: ['too many requests wait for this model', 'wait for `retry-after`'],
  internal_error: ['a fault of the gateway', 'report it with the `x-request-id`'],
  upstream_error: [
    'the connection to the engine was lost, or it said 5xx in a stream',
    'ask again; for streams `x-otela-resume: 1`',
  ],
  no_capacity: [
    'no node that may be asked serves the model now, or none became free in time; the message says if the last one left long ago',
    'ask later',
  ],
  model_starting: [
    'engines are loading the model, or it starts when asked for',
    'wait for `retry-after`, or send `x-otela-wait`; `/v1/models?state=all` has `ready_in_ms`',
  ],
  server_is_overloaded: [
    'node or gateway is too busy, starting, or its store is away',
    'wait for `retry-after`: it is short',
  ],
  upstream_timeout: [
    'the engine did not begin to answer in time (15 minutes; 30 for reasoning models), or stopped for long',
    'stream, or a smaller prompt; an operator can set other time-outs',
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
    'The body is OpenAI\'s `{"error": {"message", "type", "param", "code"}}`; `/v1/messages` has Anthropic\'s form, with `param` and `code` beside it. An error without such a `code` came from the engine, or from something between you and the gateway. OpenAI\'s SDKs retry what says `yes`, unless the answer has `x-should-retry: false`.',
    table(['status', 'code', 'type', 'why', 'what to do', 'SDKs retry'], rows),
    'Agents alone get 426 `protocol_mismatch` and 428 `attestation_required`.',
  ].join('\n\n');
}

/** `yes` if OpenAI's SDKs retry: on 408, 409, 429 and 5xx, unless a header says otherwise. */
function again(status: number, headers: Kind['headers'] = {}): string {
  if (headers['x-should-retry'] === 'false') return 'no';
  return status >= 500 || [408, 409, 429].includes(status) ? 'yes' : 'no';
}
