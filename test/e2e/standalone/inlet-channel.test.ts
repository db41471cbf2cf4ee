/** The process's end of the inlet, with a Worker's end held by the test. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import {
  INLET_HEADER,
  INLET_PATH,
  type Question,
  type Reply,
  readQuestions,
  writeReply,
} from '../../../gateway/inlet/frames.ts';
import { type Asker, Inlet } from '../../../gateway/standalone/node/inlet.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';

const HEAD = Buffer.from('POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 2');
const BODY = Buffer.from('{}');
const SESSION = 'abcdefghijklmnopqrstuvwxyz';

afterEach(endAll);

async function opened() {
  const path = join(await temporaryDirectory(), 'workerd.sock');
  const server = createServer();
  const workers: WebSocket[] = [];
  const questions: Question[] = [];
  new WebSocketServer({ server, path: INLET_PATH }).on('connection', (worker, request) => {
    if (request.headers[INLET_HEADER] !== 'secret') return worker.terminate();
    workers.push(worker);
    worker.on('message', (message: Buffer) =>
      readQuestions(message, (question) => questions.push(structuredClone(question))),
    );
  });
  await once(server.listen(path), 'listening');
  const refused: string[] = [];
  const outlets = {
    secret: 'secret',
    refuse: (session: string, stream: number) => refused.push(`${session} ${stream}`),
  };
  const inlet = new Inlet({ path, outlets });
  atEnd(() => {
    inlet.close();
    server.close();
  });
  await inlet.connect();
  const say = (reply: Reply) => {
    const out = new FrameWriter();
    writeReply(out, reply);
    workers.at(-1)?.send(out.take());
  };
  return { inlet, workers, questions, refused, say };
}

/** What became of a request. */
class Heard implements Asker {
  readonly told: string[] = [];
  whole(): void {
    this.told.push('whole');
  }
  departs(): void {
    this.told.push('departs');
  }
  begins(): never {
    throw new Error('nothing begins here');
  }
  broke(): void {
    this.told.push('broke');
  }
}

test('takes no more than may wait at once, and more again when one has its answer or has left', async () => {
  const { inlet, questions, say } = await opened();
  const clients: { leave(): void }[] = [];
  const heard = new Heard();
  while (inlet.open) clients.push(inlet.ask(HEAD, BODY, heard));
  expect(clients).toHaveLength(3_000);
  await eventually('all of them', 5_000, () => (questions.length === clients.length ? true : undefined));
  clients[7]?.leave();
  expect(inlet.open).toBe(true);
  inlet.ask(HEAD, BODY, heard);
  expect(inlet.open).toBe(false);
  say({ type: 'whole', number: 1, status: 200, lines: '', body: BODY });
  await eventually('room', 5_000, () => (inlet.open ? true : undefined));
  expect(heard.told).toEqual(['whole']);
});

test('an answer that begins to leave as its client does is refused', async () => {
  const { inlet, questions, refused, say } = await opened();
  const heard = new Heard();
  const asked = inlet.ask(HEAD, BODY, heard);
  inlet.ask(HEAD, BODY, heard);
  await eventually('both', 5_000, () => (questions.length === 2 ? true : undefined));
  asked.leave();
  const head = { status: 200, lines: '', session: SESSION, first: BODY } as const;
  say({ type: 'departs', number: 1, ...head, stream: 5 });
  say({ type: 'departs', number: 2, ...head, stream: 6 });
  await eventually('the other', 5_000, () => (heard.told.length > 0 ? true : undefined));
  expect([heard.told, refused]).toEqual([['departs'], [`${SESSION} 5`]]);
  await eventually('its leaving', 5_000, () => questions.find(({ type, number }) => type === 'leave' && number === 1));
});

test('whoever waits is told that workerd is gone, and the next goes by the next connection', async () => {
  const { inlet, workers, questions } = await opened();
  const heard = new Heard();
  inlet.ask(HEAD, BODY, heard);
  workers[0]?.terminate();
  await eventually('it is told', 5_000, () => (heard.told.length > 0 ? true : undefined));
  expect([heard.told, inlet.open]).toEqual([['broke'], false]);
  await eventually('it stands again', 5_000, () => (inlet.open ? true : undefined));
  inlet.ask(HEAD, BODY, heard);
  await eventually('the next', 5_000, () => questions.find(({ type, number }) => type === 'ask' && number === 2));
});
