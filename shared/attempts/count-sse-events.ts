const LF = 10;
const CR = 13;

/**
 * Counts the blank lines in a piece of an event stream, each of which ends an event. A blank line that is cut between
 * two pieces is not counted.
 */
export function countSseEvents(bytes: Uint8Array): number {
  let events = 0;
  for (let at = bytes.indexOf(LF); at !== -1; at = bytes.indexOf(LF, at + 1)) {
    if (bytes[at + 1] === LF || (bytes[at + 1] === CR && bytes[at + 2] === LF)) events++;
  }
  return events;
}
