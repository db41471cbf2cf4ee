/**
 * A TCP proxy in front of a server that records all traffic in both directions. Payloads of WebSockets are unmasked
 * (RFC 6455 §5.3), because words cannot be found in masked ones.
 */
import { connect, createServer, type Socket } from 'node:net';
import { atEnd } from './processes.ts';

/** Maximum recorded bytes of all connections. A test that sends more fails, because only a part could be searched. */
const KEPT_MAX_BYTES = 64 * 1024 * 1024;
const MASKED = 0x80;

export interface Wiretap {
  url: string;
  /** True if the word passed in either direction. */
  heard(word: string): boolean;
  /**
   * Complete requests that begin with this text, on connections without an upgrade: head, and a body by content-length.
   */
  requests(beginning: string): Buffer[];
}

export async function wiretap(target: string): Promise<Wiretap> {
  const { hostname, port } = new URL(target);
  const kept: Buffer[][] = [];
  let bytes = 0;
  const keep = (from: Socket, to: Socket) => {
    const pieces: Buffer[] = [];
    kept.push(pieces);
    from.on('data', (piece: Buffer) => {
      bytes += piece.length;
      if (bytes > KEPT_MAX_BYTES) from.destroy(new Error('the wiretap is full'));
      pieces.push(piece);
      to.write(piece);
    });
    from.on('close', () => to.destroy());
    from.on('error', () => to.destroy());
  };
  const server = createServer((client) => {
    const up = connect(Number(port), hostname);
    keep(client, up);
    keep(up, client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no port');
  return {
    url: `http://127.0.0.1:${address.port}`,
    requests: (beginning) => kept.flatMap((pieces) => requestsIn(Buffer.concat(pieces), beginning)),
    heard: (word) => kept.some((pieces) => unmasked(Buffer.concat(pieces)).some((text) => text.includes(word))),
  };
}

function requestsIn(whole: Buffer, beginning: string): Buffer[] {
  const found: Buffer[] = [];
  for (let at = whole.indexOf(beginning); at >= 0; at = whole.indexOf(beginning, at + 1)) {
    const body = whole.indexOf('\r\n\r\n', at) + 4;
    if (body < 4) break;
    const [, length = '0'] = /^content-length: (\d+)/im.exec(whole.subarray(at, body).toString('latin1')) ?? [];
    const end = body + Number(length);
    if (end <= whole.length) found.push(whole.subarray(at, end));
  }
  return found;
}

/** The raw traffic, and after the head of an upgrade also the concatenated payloads of its frames. */
function unmasked(whole: Buffer): Buffer[] {
  const head = whole.indexOf('\r\n\r\n');
  if (head < 0 || !/^upgrade: websocket/im.test(whole.subarray(0, head).toString('latin1'))) return [whole];
  const payloads: Buffer[] = [];
  for (let at = head + 4; at + 2 <= whole.length; ) {
    const second = whole[at + 1] ?? 0;
    let [length, start] = [second & 0x7f, at + 2];
    if (length >= 126) {
      const wide = length === 127;
      if (start + (wide ? 8 : 2) > whole.length) break;
      length = wide ? Number(whole.readBigUInt64BE(start)) : whole.readUInt16BE(start);
      start += wide ? 8 : 2;
    }
    const mask = second & MASKED ? whole.subarray(start, start + 4) : undefined;
    if (mask !== undefined) start += 4;
    const payload = Buffer.from(whole.subarray(start, start + length));
    if (mask !== undefined)
      for (let n = 0; n < payload.length; n++) payload[n] = (payload[n] ?? 0) ^ (mask[n % 4] ?? 0);
    payloads.push(payload);
    at = start + length;
  }
  return [whole, Buffer.concat(payloads)];
}
