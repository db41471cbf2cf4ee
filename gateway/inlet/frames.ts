/** What goes over the inlet's WebSocket, in both directions: a message is one frame after the other. */
import { WireError } from '../../shared/wire/error.ts';
import { FrameReader } from '../../shared/wire/reader.ts';
import type { FrameWriter } from '../../shared/wire/writer.ts';

/** Where workerd takes it, for who knows the secret. */
export const INLET_PATH = '/inlet';
export const INLET_HEADER = 'x-otela-inlet';

/** Request line and headers of one request. */
export const HEAD_MAX_BYTES = 32 * 1024;
/** Headers of an answer: an engine's are 32 of 8 KiB at most. */
const LINES_MAX_BYTES = 512 * 1024;
/** Of a body: larger requests do not come this way, larger answers in pieces. */
export const BODY_MAX_BYTES = 64 * 1024;
/** What is to be said is gathered for a turn, or until it is so much. */
export const MESSAGE_BYTES = 256 * 1024;

/** Of the process with the public socket. A number names a request until its answer is over, and is not given again. */
export type Question =
  /** A whole request: its head as the client wrote it, without the empty line, and its body. */
  | { type: 'ask'; number: number; head: Uint8Array; body: Uint8Array }
  /** Its client left. */
  | { type: 'leave'; number: number }
  /** So many bytes of the answer's body may come in all. */
  | { type: 'credit'; number: number; limit: number };

/** `lines`: headers, each with its CRLF, without those that say how long the body is. */
export interface AnswerHead {
  status: number;
  lines: string;
}

/** Of the Worker. After `whole`, `departs`, `end` and `broke` nothing more is said of a number. */
export type Reply =
  | ({ type: 'whole'; number: number; body: Uint8Array } & AnswerHead)
  /** The rest behind `first` comes from that session's outlet. */
  | ({ type: 'departs'; number: number; session: string; stream: number; first: Uint8Array } & AnswerHead)
  /** The body comes, as far as CREDIT allows; `length` where it is known. */
  | ({ type: 'begins'; number: number; length: number | undefined } & AnswerHead)
  | { type: 'data'; number: number; offset: number; bytes: Uint8Array }
  | { type: 'end'; number: number; offset: number }
  /** There is no more of it, and the client must see that. */
  | { type: 'broke'; number: number };

const QUESTIONS = ['ask', 'leave', 'credit'] as const satisfies readonly Question['type'][];
const REPLIES = ['whole', 'departs', 'begins', 'data', 'end', 'broke'] as const satisfies readonly Reply['type'][];

export function writeQuestion(out: FrameWriter, question: Question): void {
  out.byte(QUESTIONS.indexOf(question.type));
  out.varint(question.number);
  switch (question.type) {
    case 'ask':
      out.blob(question.head);
      return out.blob(question.body);
    case 'credit':
      return out.varint(question.limit);
    case 'leave':
  }
}

/** @throws WireError at the first thing that is wrong */
export function readQuestions(message: Uint8Array, each: (question: Question) => void): void {
  const input = new FrameReader(message);
  while (!input.done) {
    const type = QUESTIONS[input.byte()];
    const number = input.varint();
    switch (type) {
      case 'ask':
        each({ type, number, head: input.blob(HEAD_MAX_BYTES), body: input.blob(BODY_MAX_BYTES) });
        break;
      case 'leave':
        each({ type, number });
        break;
      case 'credit':
        each({ type, number, limit: input.varint() });
        break;
      default:
        throw new WireError('bad_frame', 'no such question');
    }
  }
}

export function writeReply(out: FrameWriter, reply: Reply): void {
  out.byte(REPLIES.indexOf(reply.type));
  out.varint(reply.number);
  switch (reply.type) {
    case 'whole':
      writeHead(out, reply);
      return out.blob(reply.body);
    case 'departs':
      writeHead(out, reply);
      out.text(reply.session);
      out.varint(reply.stream);
      return out.blob(reply.first);
    case 'begins':
      writeHead(out, reply);
      return out.varint(reply.length === undefined ? 0 : reply.length + 1);
    case 'data':
      out.varint(reply.offset);
      return out.blob(reply.bytes);
    case 'end':
      return out.varint(reply.offset);
    case 'broke':
  }
}

function writeHead(out: FrameWriter, { status, lines }: AnswerHead): void {
  out.varint(status);
  out.text(lines);
}

/** @throws WireError at the first thing that is wrong */
export function readReplies(message: Uint8Array, each: (reply: Reply) => void): void {
  const input = new FrameReader(message);
  while (!input.done) {
    const type = REPLIES[input.byte()];
    const number = input.varint();
    switch (type) {
      case 'whole':
        each({ type, number, ...readHead(input), body: input.blob(BODY_MAX_BYTES) });
        break;
      case 'departs': {
        const head = readHead(input);
        const [session, stream] = [input.text(HEAD_MAX_BYTES), input.varint()];
        each({ type, number, ...head, session, stream, first: input.blob(BODY_MAX_BYTES) });
        break;
      }
      case 'begins': {
        const head = readHead(input);
        const length = input.varint();
        each({ type, number, ...head, length: length === 0 ? undefined : length - 1 });
        break;
      }
      case 'data':
        each({ type, number, offset: input.varint(), bytes: input.blob(BODY_MAX_BYTES) });
        break;
      case 'end':
        each({ type, number, offset: input.varint() });
        break;
      case 'broke':
        each({ type, number });
        break;
      default:
        throw new WireError('bad_frame', 'no such reply');
    }
  }
}

function readHead(input: FrameReader): AnswerHead {
  const status = input.varint();
  if (status < 200 || status > 599) throw new WireError('bad_frame', `status ${status}`);
  return { status, lines: input.text(LINES_MAX_BYTES) };
}
