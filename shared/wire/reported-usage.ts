import type { FrameReader } from './frame-reader.ts';
import type { FrameWriter } from './frame-writer.ts';
import { WireError } from './wire-error.ts';

/** Token usage of one attempt as the agent reports it. The gateway compares it with the answer that it passed on. */
export interface ReportedUsage {
  prompt: number;
  completion: number;
  cached: number;
  reasoning: number;
  /** True if the tokens were counted from events or bytes, because the engine reported no numbers. */
  estimated: boolean;
  /** True if the engine ended the answer as its endpoint requires. */
  complete: boolean;
  /** True if the client disconnected before the answer's end. */
  aborted: boolean;
  /**
   * Milliseconds of audio and number of images. Absent: none. They are sent only to a peer that reads MEDIA_REPORTS.
   */
  audioMs?: number;
  images?: number;
}

/** Timings of one attempt, by the agent's clock. */
export interface ReportedTimings {
  /** The engine's HTTP status; 0 if the engine sent no response head. */
  status: number;
  /**
   * Milliseconds from the agent's request to the engine until the first byte of the engine's response; 0 if no byte
   * arrived.
   */
  firstMs: number;
  /** Milliseconds from the agent's request to the engine until the end of the response. */
  totalMs: number;
}

const STATUS_MAX = 599;

export function writeTimings(out: FrameWriter, { status, firstMs, totalMs }: ReportedTimings): void {
  out.varint(status);
  out.varint(firstMs);
  out.varint(totalMs);
}

/** Reads the timings. @throws WireError for an invalid HTTP status, or for a first byte after the end */
export function readTimings(input: FrameReader): ReportedTimings {
  const [status, firstMs, totalMs] = [input.varint(), input.varint(), input.varint()];
  if (status !== 0 && (status < 200 || status > STATUS_MAX))
    throw new WireError('bad_frame', `${status} is not an HTTP status`);
  if (firstMs > totalMs) throw new WireError('bad_frame', 'the first byte is later than the end');
  return { status, firstMs, totalMs };
}

export const NO_USAGE: ReportedUsage = {
  prompt: 0,
  completion: 0,
  cached: 0,
  reasoning: 0,
  estimated: false,
  complete: false,
  aborted: false,
};

const ESTIMATED = 1;
const COMPLETE = 2;
const ABORTED = 4;
const DETAILS = 8;
const NAMED = 16;
const MEDIA = 32;

/**
 * Writes the flags, the prompt tokens and the completion tokens. The cached and reasoning tokens follow if one of the
 * two numbers is not zero, and then the audio and the images in the same way.
 */
export function writeUsageFields(out: FrameWriter, usage: ReportedUsage, named: boolean): void {
  const details = usage.cached > 0 || usage.reasoning > 0;
  const { audioMs = 0, images = 0 } = usage;
  const media = audioMs > 0 || images > 0;
  out.byte(
    (usage.estimated ? ESTIMATED : 0) |
      (usage.complete ? COMPLETE : 0) |
      (usage.aborted ? ABORTED : 0) |
      (details ? DETAILS : 0) |
      (named ? NAMED : 0) |
      (media ? MEDIA : 0),
  );
  out.varint(usage.prompt);
  out.varint(usage.completion);
  if (details) {
    out.varint(usage.cached);
    out.varint(usage.reasoning);
  }
  if (media) {
    out.varint(audioMs);
    out.varint(images);
  }
}

/** The usage for a peer that does not read MEDIA_REPORTS. */
export function withoutMedia({ audioMs: _, images: __, ...usage }: ReportedUsage): ReportedUsage {
  return usage;
}

export function readUsageFields(input: FrameReader): { usage: ReportedUsage; named: boolean } {
  const flags = input.byte();
  const prompt = input.varint();
  const completion = input.varint();
  const details = (flags & DETAILS) !== 0;
  return {
    named: (flags & NAMED) !== 0,
    usage: {
      prompt,
      completion,
      cached: details ? input.varint() : 0,
      reasoning: details ? input.varint() : 0,
      estimated: (flags & ESTIMATED) !== 0,
      complete: (flags & COMPLETE) !== 0,
      aborted: (flags & ABORTED) !== 0,
      ...((flags & MEDIA) !== 0 && { audioMs: input.varint(), images: input.varint() }),
    },
  };
}
