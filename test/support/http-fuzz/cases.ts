/** Requests of a hostile client: several on one connection, each with a unique mark, and mutations of their bytes. */
import type { ReadRequest } from './rfc9112.ts';
import { valuesOf } from './rfc9112.ts';

export interface Target {
  /** `host:port`. */
  host: string;
  key: string;
  /** A model whose engine reports the bodies that it received. */
  model: string;
}

export interface Case {
  /** The bytes to send; each character is one byte. */
  bytes: string;
  /** Offsets at which the client's writes end, in ascending order. */
  cuts: readonly number[];
  /** The applied mutations; if there are none, every request must be answered. */
  mutations: readonly string[];
}

type Random = () => number;

const REQUESTS_MAX = 4;
const CUTS_MAX = 5;
const BODY_MAX_BYTES = 600;
/** Share of the cases without mutations. */
const WHOLE_PART = 0.1;
const MUTATIONS_MAX = 3;

const ENGINE_PATH = '/v1/audio/transcriptions';
const CHAT_PATH = '/v1/chat/completions';
const MODELS_PATH = '/v1/models/';

function below(random: Random, limit: number): number {
  return Math.floor(random() * limit);
}

function pick<T>(random: Random, from: readonly T[]): T {
  const chosen = from[below(random, from.length)];
  if (chosen === undefined) throw new Error('nothing to choose from');
  return chosen;
}

/** Chunks of random sizes, some with an extension. */
function chunked(random: Random, body: string): string {
  let text = '';
  for (let at = 0; at < body.length; ) {
    const size = 1 + below(random, body.length - at);
    const hex = size.toString(16);
    text += `${random() < 0.3 ? hex.toUpperCase() : hex}${random() < 0.2 ? ';a=b' : ''}\r\n`;
    text += `${body.slice(at, at + size)}\r\n`;
    at += size;
  }
  return `${text}0\r\n${random() < 0.1 ? 'x-trailer: t\r\n' : ''}\r\n`;
}

/** Bytes that look like another request, for a parser that loses the boundary. */
function opaque(random: Random, mark: string, host: string): string {
  const inner = `GET ${MODELS_PATH}${mark}-smuggled HTTP/1.1\r\nhost: ${host}\r\n\r\n`;
  const noise = Array.from({ length: below(random, BODY_MAX_BYTES) }, () =>
    String.fromCharCode(below(random, 256)),
  ).join('');
  return pick(random, [inner, `0\r\n\r\n${inner}`, `\r\n${inner}`, noise, `${noise}${inner}`]) + mark;
}

function oneRequest(random: Random, { host, key, model }: Target, mark: string): string {
  const common = `host: ${host}\r\nauthorization: Bearer ${key}\r\n`;
  const kind = random();
  if (kind < 0.25) return `GET ${MODELS_PATH}${mark} HTTP/1.1\r\n${common}\r\n`;
  const toEngine = kind < 0.55;
  const body = toEngine ? opaque(random, mark, host) : JSON.stringify({ model: mark, messages: [] });
  const type = toEngine ? `content-type: application/octet-stream\r\nx-otela-model: ${model}\r\n` : '';
  const framed =
    random() < 0.5
      ? `content-length: ${body.length}\r\n\r\n${body}`
      : `transfer-encoding: chunked\r\n\r\n${chunked(random, body)}`;
  return `POST ${toEngine ? ENGINE_PATH : CHAT_PATH} HTTP/1.1\r\n${common}${type || 'content-type: application/json\r\n'}${framed}`;
}

/** Lines that two parsers may read differently. */
const LINES: readonly string[] = [
  'content-length: 0',
  'content-length: 5',
  'content-length: 5, 5',
  'content-length: +5',
  'content-length: -0',
  'content-length: 0x5',
  'content-length:',
  'content-length: 5 5',
  'content-length: 99999999999999999999',
  'content-length : 5',
  'content-length\t: 5',
  ' content-length: 5',
  'Content-Length: 0\r\nCONTENT-LENGTH: 5',
  'transfer-encoding: chunked',
  'Transfer-Encoding: CHUNKED',
  'transfer-encoding: chunked, chunked',
  'transfer-encoding: gzip, chunked',
  'transfer-encoding: chunked, identity',
  'transfer-encoding: identity',
  'transfer-encoding: xchunked',
  'transfer-encoding: "chunked"',
  'transfer-encoding:\x0bchunked',
  'transfer-encoding:\tchunked\t',
  'transfer-encoding: chunked;q=1',
  'transfer-encoding : chunked',
  'transfer-encoding:\r\n chunked',
  'transfer-encoding: ',
  'transfer-encoding: ,chunked',
  'transfer\x00-encoding: chunked',
  'x-folded: a\r\n b',
  'x-folded: a\r\n\tcontent-length: 5',
  'x-nul: a\x00b',
  'x-control: a\x01b',
  'x-obs: \x80\xff',
  'x-cr: a\rb: c',
  'x-lf: a\nb: c',
  'no colon',
  ': no name',
  '',
  'host: other',
  'connection: close',
  'connection: keep-alive, upgrade\r\nupgrade: h2c',
  'connection: Transfer-Encoding',
  'expect: 100-continue',
  'expect: a miracle',
  'te: trailers',
  'trailer: content-length',
];

const CHUNK_SIZES: readonly string[] = [
  '0x5',
  '+5',
  '-5',
  ' 5',
  '5 ',
  '5\t',
  '5;',
  '5;a=b',
  '5;a="b;c"',
  '5;a="\r\n"',
  '5;\n',
  '5 ; a',
  '00000000000000000005',
  'FFFFFFFFFFFFFFFF',
  '10000000000000005',
  '',
  'g',
  '5,5',
  '5\x00',
  '5\n',
];

const BYTES: readonly string[] = [
  '\r',
  '\n',
  '\r\n',
  '\0',
  ' ',
  '\t',
  ':',
  ';',
  ',',
  '0',
  '\x7f',
  '\x80',
  '\xff',
  '\x0b',
];
const VERSIONS: readonly string[] = [
  'HTTP/1.0',
  'HTTP/1.2',
  'HTTP/2.0',
  'HTTP/0.9',
  'http/1.1',
  'HTTP/1.1 ',
  'HTTP/01.1',
  'HTTPS/1.1',
  'ICE/1.0',
];
const METHODS: readonly string[] = [
  'post',
  'PO ST',
  'OPTIONS',
  'PRI',
  'CONNECT',
  'TRACE',
  'SOURCE',
  'P\0ST',
  ' POST',
  'M-SEARCH',
];

/** Replaces one random match of `pattern`; without a match the text stays the same. */
function replaceOne(random: Random, text: string, pattern: RegExp, by: (found: string) => string): string {
  const places = [...text.matchAll(pattern)];
  if (places.length === 0) return text;
  const { 0: found, index } = pick(random, places);
  return text.slice(0, index) + by(found) + text.slice(index + found.length);
}

const MUTATIONS: Record<string, (random: Random, text: string) => string> = {
  'a line is added': (random, text) =>
    replaceOne(random, text, /\r\n(?=[a-z-]+: )/g, (end) => `${end}${pick(random, LINES)}\r\n`),
  'a line takes the place of a length': (random, text) =>
    replaceOne(random, text, /(content-length|transfer-encoding): [^\r\n]*/g, () => pick(random, LINES)),
  'a length is another': (random, text) =>
    replaceOne(random, text, /(?<=content-length: )\d+/g, (length) =>
      String(Math.max(0, Number(length) + below(random, 9) - 4)),
    ),
  'a chunk has another size': (random, text) =>
    replaceOne(random, text, /(?<=\r\n)[0-9a-fA-F]+(;a=b)?(?=\r\n)/g, () => pick(random, CHUNK_SIZES)),
  'LF alone ends a line': (random, text) => replaceOne(random, text, /\r\n/g, () => '\n'),
  'LF alone ends every line': (_random, text) => text.replaceAll('\r\n', '\n'),
  'CR alone ends a line': (random, text) => replaceOne(random, text, /\r\n/g, () => '\r'),
  'a line is folded': (random, text) => replaceOne(random, text, /: (?=[^\r\n]+\r\n)/g, () => ':\r\n '),
  'a space stands before a colon': (random, text) => replaceOne(random, text, /(?<=\r\n[a-z-]+):/g, () => ' :'),
  'another version': (random, text) => replaceOne(random, text, /HTTP\/1\.1/g, () => pick(random, VERSIONS)),
  'another method': (random, text) => replaceOne(random, text, /POST|GET/g, () => pick(random, METHODS)),
  'a byte is put in': (random, text) => {
    const at = below(random, text.length);
    return text.slice(0, at) + pick(random, BYTES) + text.slice(at);
  },
  'a byte is another': (random, text) => {
    const at = below(random, text.length);
    return text.slice(0, at) + pick(random, BYTES) + text.slice(at + 1);
  },
  'some bytes are gone': (random, text) => {
    const at = below(random, text.length);
    return text.slice(0, at) + text.slice(at + 1 + below(random, 8));
  },
  'some bytes come twice': (random, text) => {
    const at = below(random, text.length);
    const end = at + 1 + below(random, 60);
    return text.slice(0, end) + text.slice(at);
  },
  'the end is missing': (random, text) => text.slice(0, below(random, text.length)),
};

/** Makes the case with this number. The same `random` gives the same case. */
export function caseOf(random: Random, target: Target, number: number): Case {
  const count = 1 + below(random, REQUESTS_MAX);
  let bytes = '';
  for (let n = 0; n < count; n++) bytes += oneRequest(random, target, `fuzz-${number}-${n}`);
  const mutations: string[] = [];
  if (random() >= WHOLE_PART)
    for (let left = 1 + below(random, MUTATIONS_MAX); left > 0; left--) {
      const name = pick(random, Object.keys(MUTATIONS));
      bytes = MUTATIONS[name]?.(random, bytes) ?? bytes;
      mutations.push(name);
    }
  // A final request: a parser that lost count answers it at the wrong position, or not at all.
  bytes += `GET ${MODELS_PATH}fuzz-${number}-end HTTP/1.1\r\nhost: ${target.host}\r\nauthorization: Bearer ${target.key}\r\n\r\n`;
  const cuts = Array.from({ length: below(random, CUTS_MAX) }, () => below(random, bytes.length));
  return { bytes, cuts: cuts.sort((a, b) => a - b), mutations };
}

/** The mark that a response to this request must contain; undefined: not certain. */
export function markOf({ method, target, body, ...rest }: ReadRequest, { key }: Target): string | undefined {
  const [authorization, second] = valuesOf(rest, 'authorization');
  if (authorization !== `Bearer ${key}` || second !== undefined) return undefined;
  if (valuesOf(rest, 'expect').length > 0) return undefined;
  if (method === 'GET' && target.startsWith(MODELS_PATH)) {
    const mark = target.slice(MODELS_PATH.length);
    return /^fuzz-[0-9a-z-]+$/.test(mark) ? mark : undefined;
  }
  if (method !== 'POST' || target !== CHAT_PATH || valuesOf(rest, 'x-otela-model').length > 0) return undefined;
  return /^\{"model":"(fuzz-[0-9a-z-]+)","messages":\[\]\}$/.exec(body)?.[1];
}

/** True if the gateway passes the request's body to the engine unchanged. */
export function isForEngine({ method, target }: ReadRequest): boolean {
  return method === 'POST' && target === ENGINE_PATH;
}
