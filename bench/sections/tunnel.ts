/**
 * How many bytes the tunnel adds to a request: bytes at its socket, including WebSocket framing and masks but not TCP
 * headers, minus the body that the engine received and the body that it sent. Sequential requests on one client
 * connection, after some that are not counted.
 */

import { type BenchCluster, chat, request } from '../bench-cluster.ts';
import { Client } from '../client.ts';
import type { Counter } from '../counter.ts';
import { UNARY_BYTES } from '../engine-answers.ts';
import { judged, type Row } from '../report.ts';

const OUT_BYTES = 200;
const BACK_BYTES = 40;
const BEFORE = 20;
/** Wait after the last response for the frames that follow it: credits and the usage report. */
const SETTLE_MS = 1_500;

async function settled(counter: Counter) {
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  return counter.take();
}

async function ask(client: Client, bytes: Buffer, times: number): Promise<void> {
  for (let n = 0; n < times; n++) {
    const timing = await client.ask(bytes);
    if (timing.status !== 200) throw new Error(`status ${timing.status}`);
  }
}

export async function tunnel(cluster: BenchCluster, counter: Counter, requests: number): Promise<Row[]> {
  const client = new Client(cluster.through);
  const unary = request(cluster.through, 'unary');
  await ask(client, unary, BEFORE);
  await settled(counter);
  const idle = await settled(counter);
  await ask(client, unary, requests);
  const count = await settled(counter);
  const bodyOut = Buffer.byteLength(JSON.stringify(chat('unary')));
  const each = (bytes: number, quiet: number, body: number) => (bytes - quiet) / requests - body;
  const TOKENS = 200;
  const stream = request(cluster.through, `stream ${TOKENS} 50`, { stream: true });
  let streamed = 0;
  const timing = await client.ask(stream, (piece) => {
    streamed += piece.length;
  });
  const after = await settled(counter);
  client.close();
  if (!timing.complete) throw new Error('the stream broke');
  const at = `mean of ${requests} unary requests`;
  return [
    judged(
      { what: 'tunnel bytes out, beyond the body', at, value: each(count.out, idle.out, bodyOut), unit: 'bytes' },
      { most: OUT_BYTES },
    ),
    judged(
      {
        what: 'tunnel bytes back, beyond the body',
        at,
        value: each(count.back, idle.back, UNARY_BYTES),
        unit: 'bytes',
      },
      { most: BACK_BYTES },
    ),
    {
      what: 'tunnel bytes back per token, of the engine’s own',
      at: `${TOKENS} tokens at 50/s`,
      direct: streamed / TOKENS,
      gateway: after.back / TOKENS,
      value: after.back / streamed,
      unit: '×',
      note: 'the engine’s own are chunked HTTP bytes as the client got them',
    },
  ];
}
