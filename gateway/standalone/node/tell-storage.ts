import { Agent, request } from 'node:http';
import { SECRET_HEADER, STORAGE_PATH } from '../../storage/paths.ts';

/** A Worker that is well answers at once. */
const ANSWER_MS = 2_000;

/**
 * Tells the Worker behind a socket whether the data directory can be written. One connection is kept open: the socket's file is in that
 * directory, and may be gone with it.
 */
export function storageTeller(socketPath: string, secret: string) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  return {
    /** Rejects where the Worker did not hear. */
    tell: (failure: string | null) =>
      new Promise<void>((resolve, reject) => {
        const headers = { host: 'gateway', 'content-type': 'application/json', [SECRET_HEADER]: secret };
        const how = { agent, socketPath, path: STORAGE_PATH, method: 'PUT', headers, timeout: ANSWER_MS };
        const asked = request(how, (answer) => {
          answer.resume();
          answer.on('end', () => {
            if (answer.statusCode === 204) resolve();
            else reject(new Error(`${STORAGE_PATH}: ${answer.statusCode}`));
          });
        });
        asked.on('timeout', () => asked.destroy(new Error('no answer')));
        asked.on('error', reject);
        asked.end(JSON.stringify({ failure }));
      }),
    close: () => agent.destroy(),
  };
}
