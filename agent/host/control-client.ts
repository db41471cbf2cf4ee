/** The client of an agent's control socket: finds this user's agents and asks them. */
import { connect, type Socket } from 'node:net';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { type AgentStatus, type ControlRequest, controlAnswerSchema, type NetworkRow } from './control-protocol.ts';
import { withShortPath } from './short-socket-path.ts';
import { CONTROL_SOCKET, sessionDirs } from './state-directory.ts';

/** Timeout of an answer. An agent normally answers immediately, but it may share its core with an engine that loads. */
const ANSWER_TIMEOUT_MS = 30_000;

export interface LocalAgent {
  session: string;
  directory: string;
  status: AgentStatus;
}

/** Every agent of this user that answers on this machine. */
export async function localAgents(env: Readonly<Record<string, string | undefined>>): Promise<LocalAgent[]> {
  const found = await Promise.all(
    sessionDirs(env).map(async (directory) => {
      const status = await askStatus(directory).catch(() => undefined);
      return status ? [{ session: basename(directory), directory, status }] : [];
    }),
  );
  return found.flat();
}

async function askStatus(directory: string): Promise<AgentStatus | undefined> {
  for await (const answer of ask(directory, { op: 'status' }, ANSWER_TIMEOUT_MS)) {
    if ('ok' in answer && answer.ok) return answer.status;
  }
  return undefined;
}

/** The agent's list of all sessions; empty if the agent is too old to have this command. */
export async function askNetwork({ directory }: LocalAgent): Promise<NetworkRow[]> {
  try {
    for await (const answer of ask(directory, { op: 'network' }, ANSWER_TIMEOUT_MS)) {
      if ('ok' in answer && answer.ok) return answer.network ?? [];
    }
  } catch {
    // the agent ended meanwhile, or does not have this command
  }
  return [];
}

/**
 * Yields the agent's answers until the agent closes the connection, or sends nothing for `silenceMs` (0: no limit).
 * @throws Error if the agent refuses or cannot be reached
 */
export async function* ask(directory: string, request: ControlRequest, silenceMs: number) {
  const socket = await open(join(directory, CONTROL_SOCKET));
  socket.setTimeout(silenceMs, () => socket.destroy());
  socket.write(`${JSON.stringify(request)}\n`);
  try {
    for await (const line of createInterface({ input: socket, crlfDelay: Number.POSITIVE_INFINITY })) {
      const parsed = controlAnswerSchema.safeParse(tryParseJson(line));
      if (!parsed.success)
        throw new Error('this command cannot parse the agent’s response; are both of the same version?');
      if ('ok' in parsed.data && !parsed.data.ok) throw new Error(parsed.data.error);
      yield parsed.data;
    }
  } finally {
    socket.destroy();
  }
}

function open(socketPath: string): Promise<Socket> {
  return withShortPath(socketPath, (path) => {
    return new Promise<Socket>((resolve, reject) => {
      const socket = connect(path);
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        // The reader of lines reports a later error.
        socket.on('error', () => {});
        resolve(socket);
      });
    });
  });
}
