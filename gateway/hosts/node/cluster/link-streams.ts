/** Requests and responses with bodies on a stream of a link: first a head as one message, then the body's bytes. */
import { constants, type Http2Stream } from 'node:http2';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { LinkFrameReader } from './link-frames.ts';

const CANCELLED = constants.NGHTTP2_CANCEL;
/** Body bytes that wait in memory for a slow reader, in addition to the stream's window. */
const READ_AHEAD_BYTES = 64 * 1024;

/** Reads the head of a stream; the bytes after it stay in the stream. Rejects if the stream ends before. */
export function readHead(stream: Http2Stream): Promise<unknown> {
  const reader = new LinkFrameReader();
  return new Promise((resolve, reject) => {
    const onData = (bytes: Buffer) => {
      try {
        reader.add(bytes);
        const head = reader.next();
        if (head === undefined) return;
        leave();
        stream.pause();
        const rest = reader.rest();
        if (rest.length > 0) stream.unshift(rest);
        resolve(head.value);
      } catch (error) {
        onEnd(error);
      }
    };
    const onEnd = (cause?: unknown) => {
      leave();
      reject(new Error('the link to another process broke', { cause }));
    };
    const leave = () => {
      stream.off('data', onData).off('close', onEnd).off('end', onEnd);
    };
    stream.on('data', onData).on('close', onEnd).on('end', onEnd);
  });
}

/**
 * The bytes of a stream after its head. A reader that cancels a response resets the stream. A reader that cancels a
 * request does not need the rest of it, but still answers: a reset would lose the answer, too.
 */
export function bodyOf(stream: Http2Stream, of: 'request' | 'response'): ReadableStream<Uint8Array> {
  let ended = false;
  return new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        stream.on('data', (bytes: Buffer) => {
          if (ended) return; // bytes after the reader cancelled
          controller.enqueue(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length));
          if ((controller.desiredSize ?? 0) <= 0) stream.pause();
        });
        stream.on('end', () => {
          // An aborted stream ends too, before it closes with an error.
          if (ended || stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR) return;
          ended = true;
          controller.close();
        });
        stream.on('close', () => {
          if (!ended) controller.error(new Error('the body was cut'));
          ended = true;
        });
        stream.pause();
      },
      pull: () => {
        stream.resume();
      },
      cancel: () => {
        ended = true;
        if (of === 'response') stream.close(CANCELLED);
        else stream.resume(); // the bytes are dropped
      },
    },
    { highWaterMark: READ_AHEAD_BYTES, size: (bytes) => bytes?.length ?? 0 },
  );
}

/** Writes a body and ends the stream. If the body fails, the stream is reset. Never rejects. */
export async function writeBody(body: ReadableStream<Uint8Array> | null, stream: Http2Stream): Promise<void> {
  if (body === null) return void stream.end();
  const reader = body.getReader();
  const onClose = () => neverRejects(reader.cancel().catch(() => {}));
  stream.once('close', onClose);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (stream.destroyed || stream.closed) return;
      if (done) break;
      if (!stream.write(value)) await drained(stream);
    }
    stream.off('close', onClose);
    stream.end();
  } catch {
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }
}

function drained(stream: Http2Stream): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stream.off('drain', done).off('close', done);
      resolve();
    };
    stream.on('drain', done).on('close', done);
  });
}
