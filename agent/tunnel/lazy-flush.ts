import type { LinkPort } from '../../shared/wire/link.ts';

/**
 * Maximum wait of a frame that may share a message with a later one, such as ACCEPT with the head of a quick response.
 * It is short against the second within which the other end expects ACCEPT.
 */
const LAZY_MS = 50;

/**
 * Returns a port's `later`. One timer serves all frames, so it wakes the process at most 20 times a second, however
 * many requests arrive. Canceling the timer when a message takes the frames along would save nothing, because Node
 * leaves the timer of libuv armed.
 */
export function lazyFlush(): NonNullable<LinkPort['later']> {
  let isSet = false;
  return (flush) => {
    if (isSet) return;
    isSet = true;
    setTimeout(() => {
      isSet = false;
      flush();
    }, LAZY_MS);
  };
}
