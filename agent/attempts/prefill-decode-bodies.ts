/**
 * Builds the requests to the two engines of a disaggregated pair from one request. Fields are appended to the body as
 * bytes; the body is never parsed and serialized again. Python's JSON readers take the last of two equal keys, so a
 * client cannot name another request's keys and values.
 *
 * vLLM: the prefill engine answers one token and `kv_transfer_params`, which the decode engine gets
 * (tests/v1/kv_connector/nixl_integration/toy_proxy_server.py). SGLang: both engines get the request concurrently, and
 * find each other by `bootstrap_room` (sglang_router/mini_lb.py).
 */
import { tryParseJson } from '../../shared/text/parse-json.ts';

/** Fields that make a vLLM prefill engine compute the prompt and keep its keys and values for another engine. */
const PREFILL_FIELDS = {
  stream: false,
  stream_options: null,
  max_tokens: 1,
  max_completion_tokens: 1,
  // Replaces the request's min_tokens: the engine refuses a min_tokens above max_tokens.
  min_tokens: 0,
  kv_transfer_params: {
    do_remote_decode: true,
    do_remote_prefill: false,
    remote_engine_id: null,
    remote_block_ids: null,
    remote_host: null,
    remote_port: null,
  },
};

/** The request for a vLLM prefill engine. */
export function prefillRequest(body: Buffer): Buffer {
  return withFields(body, JSON.stringify(PREFILL_FIELDS));
}

/** The request for a vLLM decode engine. `params` null: the engine computes the prompt itself. */
export function decodeRequest(body: Buffer, params: KvTransferParams | null): Buffer {
  return withFields(body, JSON.stringify({ kv_transfer_params: params }));
}

interface BootstrapRoom {
  host: string;
  port: number;
  /** 63 random bits, because two requests must not have the same number. */
  room: bigint;
}

/** The request for both SGLang engines. */
export function sglangRequest(body: Buffer, { host, port, room }: BootstrapRoom): Buffer {
  // JSON.stringify refuses a bigint, and a double holds only 53 bits.
  return withFields(
    body,
    `{"bootstrap_host":${JSON.stringify(host)},"bootstrap_port":${port},"bootstrap_room":${room}}`,
  );
}

type KvTransferParams = Record<string, unknown>;

/** The parameters in a prefill engine's answer; undefined if it has none. */
export function kvTransferParams(answer: Buffer): KvTransferParams | undefined {
  const value = tryParseJson(answer.toString('utf8'));
  if (typeof value !== 'object' || value === null || !('kv_transfer_params' in value)) return undefined;
  const params = value.kv_transfer_params;
  return typeof params === 'object' && params !== null && !Array.isArray(params) ? { ...params } : undefined;
}

/**
 * Appends the fields of `object` (JSON) to the object in `body`. A body that does not end in `}` is not a JSON object.
 * It stays unchanged, and the engine reports the error.
 */
function withFields(body: Buffer, object: string): Buffer {
  const end = lastNonBlank(body, body.length);
  if (body[end] !== BRACE_CLOSE) return body;
  const before = body[lastNonBlank(body, end)];
  const comma = before === BRACE_OPEN ? '' : ',';
  return Buffer.concat([body.subarray(0, end), Buffer.from(comma + object.slice(1)), body.subarray(end + 1)]);
}

const BRACE_OPEN = 0x7b;
const BRACE_CLOSE = 0x7d;
/** JSON's white space (RFC 8259 §2). */
const BLANK: ReadonlySet<number | undefined> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Index of the last byte before `end` that is not white space; -1 if there is none. */
function lastNonBlank(body: Buffer, end: number): number {
  let at = end - 1;
  while (at >= 0 && BLANK.has(body[at])) at--;
  return at;
}
