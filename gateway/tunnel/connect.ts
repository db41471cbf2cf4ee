import { SESSION_PATTERN } from '../../shared/lattice/node.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/limits.ts';
import { admitNode } from '../accounts/admission.ts';
import type { Env } from '../env.ts';

/**
 * `GET /agent/connect`: admits an agent and hands its socket to the object of its session.
 * The agent names protocol and session in `x-otela-protocol` and `x-otela-session`; that the session is its own it proves to the
 * object.
 * @throws ApiError 400, 401, 403, 503; 426 is answered for another protocol version.
 */
export async function connectAgent(request: Request, env: Env): Promise<Response> {
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket') {
    throw new ApiError('invalid_request', 'Agents connect here with a WebSocket.');
  }
  const protocol = request.headers.get('x-otela-protocol');
  if (protocol !== String(PROTOCOL_VERSION)) return versionMismatch(protocol);
  const session = request.headers.get('x-otela-session') ?? '';
  if (!SESSION_PATTERN.test(session)) throw new ApiError('invalid_request', 'x-otela-session is no session id.');
  const { provider, cluster } = await admitNode(env, request);
  const headers = { upgrade: 'websocket', 'x-otela-provider': provider, 'x-otela-cluster': cluster };
  return env.TUNNEL.getByName(session).fetch('https://tunnel/connect', { headers });
}

/** RFC 9110 §15.5.22. The agent prints the message and ends. */
function versionMismatch(protocol: string | null): Response {
  const theirs = protocol === null ? 'none' : protocol.slice(0, 16);
  const older = Number(theirs) < PROTOCOL_VERSION;
  const message = `This gateway speaks tunnel protocol ${PROTOCOL_VERSION}, the agent ${theirs}: upgrade the ${older ? 'agent' : 'gateway'}.`;
  const error = { message, type: 'invalid_request_error', param: 'x-otela-protocol', code: 'protocol_mismatch' };
  return Response.json({ error }, { status: 426, headers: { upgrade: 'websocket' } });
}
