/** One TCP or TLS connection to a gateway, byte by byte, with its responses split. */
import { connect, type Socket } from 'node:net';
import { eventually } from '../../support/processes.ts';

export interface Answer {
  status: number;
  /** Names in lower case; of a repeated header only the last value. */
  headers: Record<string, string>;
  body: string;
}

export class Connection {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  /** True after a FIN or a reset. */
  ended = false;
  /** True after a reset. */
  reset = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
    });
    socket.on('end', () => {
      this.ended = true;
    });
    socket.on('close', () => {
      this.ended = true;
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.reset ||= error.code === 'ECONNRESET';
    });
  }

  /** `from` is the local address, for tests of limits by address. */
  static open(url: string, from?: string): Promise<Connection> {
    const { hostname, port } = new URL(url);
    return new Promise((resolve, reject) => {
      const options = { host: hostname, port: Number(port), noDelay: true };
      const socket = connect({ ...options, ...(from === undefined ? {} : { localAddress: from }) });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new Connection(socket));
      });
    });
  }

  /** Sends bytes: each letter is one, U+0000 to U+00FF. */
  send(text: string | Buffer): void {
    this.socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text);
  }

  get text(): string {
    return this.#received.toString('latin1');
  }

  /** The complete responses until now; `closed` counts a body without a length as complete. */
  get answers(): Answer[] {
    const answers: Answer[] = [];
    let rest = this.text;
    for (let read = readAnswer(rest, this.ended); read !== undefined; read = readAnswer(rest, this.ended)) {
      if (read.answer.status !== 100) answers.push(read.answer);
      rest = rest.slice(read.length);
    }
    return answers;
  }

  /** The text after the last complete response. */
  get unread(): string {
    let rest = this.text;
    for (let read = readAnswer(rest, this.ended); read !== undefined; read = readAnswer(rest, this.ended))
      rest = rest.slice(read.length);
    return rest;
  }

  async answer(n = 1, withinMs = 10_000): Promise<Answer> {
    return eventually(`answer ${n}`, withinMs, () => {
      const answer = this.answers[n - 1];
      if (answer === undefined && this.ended)
        throw new Error(`${this.reset ? 'reset' : 'closed'} after ${JSON.stringify(this.text.slice(0, 300))}`);
      return answer;
    });
  }

  /** Waits until the gateway ended the connection. */
  async closed(withinMs = 10_000): Promise<void> {
    await eventually('the end of the connection', withinMs, () => (this.ended ? true : undefined));
  }

  close(): void {
    this.socket.destroy();
  }
}

function readAnswer(text: string, ended: boolean): { answer: Answer; length: number } | undefined {
  const headEnd = text.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const [first = '', ...lines] = text.slice(0, headEnd).split('\r\n');
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(first)?.[1] ?? Number.NaN);
  if (Number.isNaN(status)) throw new Error(`no answer: ${JSON.stringify(text.slice(0, 200))}`);
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const begin = headEnd + 4;
  const done = (body: string, length: number) => ({ answer: { status, headers, body }, length });
  if (status === 100 || status === 101 || status === 204 || status === 304) return done('', begin);
  if (headers['transfer-encoding'] === 'chunked') return readChunks(text, begin, done);
  if (headers['content-length'] === undefined) return ended ? done(text.slice(begin), text.length) : undefined;
  const end = begin + Number(headers['content-length']);
  return text.length < end ? undefined : done(text.slice(begin, end), end);
}

function readChunks<T>(text: string, begin: number, done: (body: string, length: number) => T): T | undefined {
  let body = '';
  for (let at = begin; ; ) {
    const lineEnd = text.indexOf('\r\n', at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(text.slice(at, lineEnd), 16);
    const next = lineEnd + 2 + size + 2;
    if (text.length < next) return undefined;
    if (size === 0) return done(body, next);
    body += text.slice(lineEnd + 2, lineEnd + 2 + size);
    at = next;
  }
}
