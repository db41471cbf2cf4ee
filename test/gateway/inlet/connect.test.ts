/** The Worker's end of the inlet, by a message of the other one's making. */
import { env } from 'cloudflare:test';
import { afterEach, expect, it } from 'vitest';
import { connectInlet } from '../../../gateway/inlet/connect.ts';
import {
  INLET_HEADER,
  INLET_PATH,
  type Question,
  type Reply,
  readReplies,
  writeQuestion,
} from '../../../gateway/inlet/frames.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';

const SECRET = 'known to two';
const HEAD = new TextEncoder().encode('POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 2');
const BODY = new TextEncoder().encode('{}');

const open: WebSocket[] = [];
afterEach(() => {
  for (const socket of open.splice(0)) socket.close(1000);
});

function inlet() {
  const request = new Request(`http://gateway${INLET_PATH}`, { headers: { [INLET_HEADER]: SECRET } });
  const response = connectInlet(request, { ...env, OUTLET_SECRET: SECRET }, { waitUntil: () => {} });
  const socket = response?.webSocket;
  if (!socket) throw new Error(`no inlet: ${response?.status}`);
  socket.binaryType = 'arraybuffer';
  socket.accept();
  open.push(socket);
  const replies: Reply[] = [];
  let heard = Promise.withResolvers<void>();
  socket.addEventListener('message', ({ data }) => {
    if (typeof data === 'string') throw new Error('words');
    readReplies(new Uint8Array(data), (reply) => replies.push(reply));
    heard.resolve();
    heard = Promise.withResolvers();
  });
  const say = (...questions: Question[]) => {
    const out = new FrameWriter();
    for (const question of questions) writeQuestion(out, question);
    socket.send(out.take());
  };
  const until = async (count: number) => {
    while (replies.length < count) await heard.promise;
  };
  return { say, until, replies };
}

const ask = (number: number): Question => ({ type: 'ask', number, head: HEAD, body: BODY });
const upTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1);

it('answers each of many that came in one message, once', async () => {
  const { say, until, replies } = inlet();
  say(...upTo(100).map(ask));
  await until(100);
  expect(replies.map(({ number }) => number).toSorted((a, b) => a - b)).toEqual(upTo(100));
  expect(new Set(replies.map((reply) => reply.type === 'whole' && reply.status))).toEqual(new Set([401]));
});

it('says nothing to who left before it was begun, and serves those beside it', async () => {
  const { say, until, replies } = inlet();
  say(...upTo(40).map(ask), { type: 'leave', number: 39 });
  await until(39);
  say(ask(41)); // its answer comes behind whatever is still to come
  await until(40);
  expect(replies.map(({ number }) => number).filter((number) => number > 38)).toEqual([40, 41]);
  expect(replies).toHaveLength(40);
});
